"""The training loop equals a bare loop bit for bit, and resumes exactly."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.optim import AdamW

from tests.selection import partly_slow
from tests.trainer.jobs import build_here, events, losses, resume_from, train_here, write_job
from trainwright.contracts.events import Step
from trainwright.contracts.series import FP8_SERIES, HARDWARE_SERIES, STORED_SERIES
from trainwright_trainer.model.init import initialize
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.observe.step_timer import Timing
from trainwright_trainer.optim.learning_rate import learning_rate_at
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.runtime.errors import BadJobError, DivergedError
from trainwright_trainer.runtime.seeds import seed_step
from trainwright_trainer.training.build import Training
from trainwright_trainer.training.loop import train


def test_fifty_steps_equal_a_bare_loop_bit_for_bit(tmp_path: Path, data: Path) -> None:
    job_file = write_job(tmp_path, data, schedule={"steps": 50})
    training = train_here(job_file)
    assert losses(job_file) == _bare_loop(job_file, training.loader, steps=50)


def _bare_loop(job_file: Path, loader, steps: int) -> list[float]:
    """What the trainer must compute, written as in a notebook."""
    spec = read_job(job_file).spec
    model = Transformer(spec.model, 257, spec.batch.sequence_tokens)
    initialize(model, spec.model, spec.seed)
    matrices = [weight for weight in model.parameters() if weight.ndim >= 2]
    vectors = [weight for weight in model.parameters() if weight.ndim < 2]
    optimizer = AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        betas=(0.9, 0.95),
        eps=1e-8,
        fused=True,
    )
    seen = []
    for step in range(1, steps + 1):
        total = torch.zeros(())
        for batch in loader.micro_batches(step):
            loss = cross_entropy(model(batch.tokens).flatten(0, 1), batch.targets.flatten()) / 4
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(step, 3e-3, spec.schedule)
        optimizer.step()
        optimizer.zero_grad()
        seen.append(total.item())
    return seen


def test_the_loss_falls(tmp_path: Path, data: Path) -> None:
    job_file = write_job(tmp_path, data, schedule={"steps": 60}, optimizer={"learning_rate": 1e-2})
    train_here(job_file)
    seen = losses(job_file)
    assert seen[0] == pytest.approx(5.55, abs=0.1)  # ln 257: an untrained model
    assert seen[-1] < 3.5


@pytest.mark.parametrize("precision", partly_slow(["fp32", "bf16"], ["bf16"]))
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(
    tmp_path: Path, data: Path, precision: str
) -> None:
    straight = write_job(tmp_path / "straight", data, precision={"kind": precision})
    whole = train_here(straight)
    point = resume_from(tmp_path / "straight/out/checkpoints/step-10", tmp_path / "resumed")
    resumed = write_job(tmp_path / "resumed", data, precision={"kind": precision}, job=point)
    second = train_here(resumed)
    assert [event["resume_step"] for event in events(resumed, "attempt_started")] == [10]
    assert losses(resumed) == losses(straight)[10:]
    for name, weight in whole.engine.model.named_parameters():
        assert torch.equal(weight, second.engine.model.get_parameter(name)), name


@pytest.mark.slow(target="layouts")
def test_a_wrong_moment_in_the_checkpoint_is_detected(tmp_path: Path, data: Path) -> None:
    """Negative control of the test above: losing the optimizer state changes the losses."""
    straight = write_job(tmp_path / "straight", data)
    train_here(straight)
    point = resume_from(tmp_path / "straight/out/checkpoints/step-10", tmp_path / "resumed")
    resumed = write_job(tmp_path / "resumed", data, job=point)
    training = build_here(resumed)
    for state in training.engine.updater.optimizer.state.values():
        state["exp_avg_sq"].zero_()
    train(training)
    assert losses(resumed) != losses(straight)[10:]


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("off", [1, -8])
def test_a_wrong_data_position_is_detected(tmp_path: Path, data: Path, off: int) -> None:
    """Off by a sequence, or by a step of 8."""
    straight = write_job(tmp_path / "straight", data)
    train_here(straight)
    copy = tmp_path / "wrong"
    shutil.copytree(tmp_path / "straight/out/checkpoints/step-10", copy)
    manifest = json.loads((copy / "manifest.json").read_bytes())
    assert manifest["state"]["sequences"] == 10 * 8
    manifest["state"]["sequences"] += off
    (copy / "manifest.json").write_text(json.dumps(manifest))
    resumed = write_job(tmp_path / "resumed", data, job=resume_from(copy, tmp_path / "resumed"))
    train_here(resumed)
    assert losses(resumed)[0] != losses(straight)[10]


@pytest.mark.slow(target="layouts")
def test_a_wrong_number_of_updates_in_the_checkpoint_is_detected(tmp_path: Path, data: Path) -> None:
    """AdamW corrects its moments by 1 - beta ** updates: a count that is off by one changes the losses."""
    straight = write_job(tmp_path / "straight", data)
    train_here(straight)
    copy = tmp_path / "wrong"
    shutil.copytree(tmp_path / "straight/out/checkpoints/step-10", copy)
    manifest = json.loads((copy / "manifest.json").read_bytes())
    assert manifest["state"]["updates"] == 10
    manifest["state"]["updates"] = 9
    (copy / "manifest.json").write_text(json.dumps(manifest))
    resumed = write_job(tmp_path / "resumed", data, job=resume_from(copy, tmp_path / "resumed"))
    train_here(resumed)
    assert losses(resumed)[0] == losses(straight)[10], "the weights are right"
    assert losses(resumed) != losses(straight)[10:]


SKIPPING = {"kind": "fp8", "fp8": {"skip_limit": 2}}


def _overflow_after(training: Training, *steps: int) -> None:
    """Inject an infinite gradient into the step after each of ``steps``."""

    def spoil(gradient: torch.Tensor) -> torch.Tensor:
        return gradient + torch.inf if training.step in steps else gradient

    named = training.engine.model.named_parameters()
    (weight,) = [weight for name, weight in named if name.startswith("layers.1.feed_forward.down.")]
    weight.register_hook(spoil)


@pytest.mark.slow(target="layouts")
def test_steps_are_skipped_and_training_continues(tmp_path: Path, data: Path) -> None:
    job_file = write_job(tmp_path, data, precision=SKIPPING)
    training = build_here(job_file)
    _overflow_after(training, 3, 4, 6)
    train(training)
    lines = [event["values"] for event in events(job_file, "step")]
    skipped = [step for step, values in enumerate(lines, start=1) if "loss" not in values]
    assert skipped == [4, 5, 7], "two in a row, and the count restarts after a good step"
    assert skipped == [step for step, values in enumerate(lines, start=1) if "grad_norm" not in values]
    assert [values["skipped_steps"] for values in lines[2:8]] == [0, 1, 2, 2, 3, 3]
    assert lines[3]["learning_rate"] > 0
    messages = [note["message"] for note in events(job_file, "note")]
    assert [message.split(" was skipped")[0] for message in messages] == ["Step 4", "Step 5", "Step 7"]
    assert all("layers.1.feed_forward.down.weight" in message for message in messages)
    assert training.engine.updater.scalars() == {"updates": 17}
    manifest = json.loads((tmp_path / "out/checkpoints/step-10/manifest.json").read_bytes())
    assert (manifest["state"]["skipped_steps"], manifest["state"]["updates"]) == (3, 7)


def test_a_skipped_step_changes_neither_weights_nor_moments(tmp_path: Path, data: Path) -> None:
    training = build_here(write_job(tmp_path, data, schedule={"steps": 5}, precision=SKIPPING))
    _overflow_after(training, 2)
    report = training.report
    seen: list[dict[str, torch.Tensor]] = []

    def watching(line: object) -> None:
        report(line)
        if isinstance(line, Step):
            held = {item.name: item.tensor for item in training.engine.updater.state()}
            seen.append({name: held[name].float() for name in held if not name.startswith("fp8.")})

    training.report = watching
    train(training)
    same = [
        all(torch.equal(before[name], after[name]) for name in before) for before, after in pairwise(seen)
    ]
    assert same == [False, True, False, False]


@pytest.mark.slow(target="layouts")
def test_a_run_that_skipped_steps_resumes_bit_for_bit(tmp_path: Path, data: Path) -> None:
    """The number of updates differs from that of steps, and the count of skipped steps continues."""
    straight = build_here(write_job(tmp_path / "straight", data, precision=SKIPPING))
    _overflow_after(straight, 3, 8, 9)
    train(straight)
    resumed = tmp_path / "resumed"
    point = resume_from(tmp_path / "straight/out/checkpoints/step-10", resumed)
    second = build_here(write_job(resumed, data, precision=SKIPPING, job=point))
    assert second.skipped_steps.scalars() == {"skipped_steps": 3, "skipped_in_a_row": 2}
    train(second)
    assert losses(resumed / "job.json") == losses(tmp_path / "straight/job.json")[7:]


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize(
    ("precision", "message"),
    [
        ({"kind": "fp32"}, r"^the loss was \d.* norm (inf|nan), also when computed again; the FIRST$"),
        (
            SKIPPING,
            r"^after 2 skipped steps the loss was \d.* norm (inf|nan), also when computed again; the FIRST$",
        ),
    ],
)
def test_one_skipped_step_too_many_ends_the_run_and_names_the_tensor(
    tmp_path: Path, data: Path, precision: dict[str, object], message: str
) -> None:
    training = build_here(write_job(tmp_path, data, precision=precision))
    _overflow_after(training, *range(10, 20))
    first = r"first tensor that was not finite: layers\.1\.feed_forward\.down\.weight:gradient"
    with pytest.raises(DivergedError, match=message.replace("FIRST", first)):
        train(training)
    assert training.step == 10 + training.skipped_steps.limit
    assert (tmp_path / "out/checkpoints/step-10/manifest.json").exists(), (
        "the previous write must be finished"
    )


def test_a_diverged_run_that_updates_in_the_backward_pass_reports_changed_weights(
    tmp_path: Path, data: Path
) -> None:
    precision = {"kind": "fp8", "fp8": {"optimizer_in_backward": True, "skip_limit": 0}}
    sections = {"batch": {"micro_sequences": 8, "global_sequences": 8}, "optimizer": {"clip_norm": None}}
    training = build_here(write_job(tmp_path, data, precision=precision, **sections))
    codes = training.engine.updater.optimizer.master.codes
    _overflow_after(training, 0)
    before = codes.clone()
    with pytest.raises(DivergedError, match=r"not finite: .*; weights .* resume from the last checkpoint$"):
        train(training)
    assert not torch.equal(codes, before)


def test_random_numbers_are_a_function_of_the_step() -> None:
    cpu = torch.device("cpu")
    seed_step(1, step=5, rank=0, device=cpu)
    first = torch.rand(3)
    torch.rand(100)
    seed_step(1, step=5, rank=0, device=cpu)
    assert torch.equal(torch.rand(3), first)
    seed_step(1, step=5, rank=1, device=cpu)
    assert not torch.equal(torch.rand(3), first)


def test_divergence_is_detected_before_the_optimizer_step(tmp_path: Path, data: Path) -> None:
    training = build_here(write_job(tmp_path, data))
    model = training.engine.model
    with torch.no_grad():
        model.get_parameter("layers.1.feed_forward.down.weight")[0, 0] = float("inf")
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    named = r"loss was nan .*, also when computed again; .* not finite: layers\.1\.feed_forward\.down\.weight:weight$"
    with pytest.raises(DivergedError, match=named):
        train(training)
    assert training.step == 0
    assert training.engine.updater.scalars() == {"updates": 0}
    assert all(not state["exp_avg"].any() for state in training.engine.updater.optimizer.state.values())
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())


@pytest.mark.parametrize(
    ("sections", "word"),
    [
        ({"data": {"tokenizer": {"kind": "bytes", "vocabulary": 300}}}, "spec.data.tokenizer"),
        ({"batch": {"sequence_tokens": 1_000_000}}, "too few for one sequence"),
    ],
)
def test_data_that_does_not_fit_the_spec_is_refused(
    tmp_path: Path, data: Path, sections: dict[str, object], word: str
) -> None:
    with pytest.raises(BadJobError, match=word):
        build_here(write_job(tmp_path, data, **sections))


def test_step_events_contain_every_series_and_phases_sum_to_the_step(tmp_path: Path, data: Path) -> None:
    peak = {"flops_per_second": 1e11, "dtype": "fp32", "device": "a CPU", "measured": True}
    job_file = write_job(tmp_path, data, job={"peak": peak})
    train_here(job_file)
    lines = events(job_file, "step")
    assert [line["step"] for line in lines] == list(range(1, 21))
    assert {*lines[0]["values"], "validation_loss"} == set(STORED_SERIES) - FP8_SERIES - HARDWARE_SERIES
    for values in (line["values"] for line in lines):
        assert sum(values[f"{timing}_seconds"] for timing in Timing) == pytest.approx(values["seconds"])
        assert values["tokens_per_second"] == pytest.approx(8 * 32 / values["seconds"])
    assert lines[-1]["values"]["tokens"] == 20 * 8 * 32
    assert lines[-1]["values"]["eta_seconds"] == 0
    assert [line["step"] for line in events(job_file, "validation")] == [10, 20]
    assert [line["folder"] for line in events(job_file, "checkpoint_saved")] == ["step-10", "step-20"]
    assert [line["step"] for line in events(job_file, "finished")] == [20]


def test_no_mfu_is_reported_without_a_known_peak(tmp_path: Path, data: Path) -> None:
    job_file = write_job(tmp_path, data, schedule={"steps": 5})
    train_here(job_file)
    assert "mfu" not in events(job_file, "step")[0]["values"]
