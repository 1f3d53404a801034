"""The timings of steps add up to the time of the training, without validation and checkpoints."""

import time
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from tests.cuda_stand_in.driver import cuda_stand_in
from tests.trainer.jobs import build_here, events, write_job
from trainwright.contracts.events import Step, TrainerEvent
from trainwright.contracts.job_spec import output_folder
from trainwright_trainer.observe.step_timer import StepTimer, Timing
from trainwright_trainer.training.loop import train


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_time_between_two_steps_belongs_to_the_second(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    with cuda_stand_in() if device == "cuda" else nullcontext():
        timer = StepTimer(torch.device(device))
        found = []
        for gap in (7.0, 0.5, 0.25):
            now += gap
            timer.start()
            now += 2
            timer.mark(Timing.FORWARD)
            now += 1
            timer.mark(Timing.BACKWARD)
            found.append(timer.seconds())
            if gap == 0.5:
                timer.interrupt()
    assert [step[Timing.OTHER] for step in found] == pytest.approx([0, 0.5, 0])
    assert [sum(step.values()) for step in found] == pytest.approx([3, 3.5, 3])


def test_a_slow_report_counts_and_a_slow_checkpoint_does_not(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports of steps take 0.05 s and all others 0.5 s, among them those of validations."""
    job_file = write_job(
        tmp_path / "job",
        data,
        schedule={"steps": 6},
        validation={"every_steps": 3},
        checkpoint={"every_steps": 5},
    )
    output_folder(job_file).mkdir()
    training = build_here(job_file)
    report = training.report

    def slow(event: TrainerEvent) -> None:
        report(event)
        time.sleep(0.05 if isinstance(event, Step) else 0.5)

    monkeypatch.setattr(training, "report", slow)
    train(training)
    other = [event["values"]["other_seconds"] for event in events(job_file, "step")]
    follows = [step in (2, 3, 5) for step in range(1, 7)]
    assert [0.05 < seconds < 0.5 for seconds in other] == follows
    assert [seconds == 0 for seconds in other] == [not one for one in follows]
