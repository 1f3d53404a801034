"""The complete trainer as processes: ranks agree, the outcome is reported, and no process is left behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import torch

from tests.trainer.jobs import (
    events,
    losses,
    read_exits,
    read_out,
    resume_from,
    run_trainer,
    train_here,
    trainer,
    write_job,
)
from trainwright_trainer.checkpoint.host_memory import HostMemory
from trainwright_trainer.checkpoint.save import Origin, Writer, save_checkpoint
from trainwright_trainer.checkpoint.snapshot import config_digest, take_snapshot, training_position
from trainwright_trainer.main import main
from trainwright_trainer.process import launcher
from trainwright_trainer.process.job_file import read_job

ENDLESS = {"steps": 1_000_000}
MARKER = "TRAINWRIGHT_TEST_MARKER"


@pytest.fixture(scope="module")
def straight(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The job of an uninterrupted run of two ranks.
    It was launched with its sibling ``temporary`` for temporary files."""
    folder = tmp_path_factory.mktemp("straight")
    job_file = write_job(folder / "run", data, ranks=2)
    (folder / "temporary").mkdir()
    assert run_trainer("train", job_file, TMPDIR=str(folder / "temporary")) == 0
    return job_file


@pytest.fixture(scope="module")
def alone(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The job of the same run in this process alone."""
    job_file = write_job(tmp_path_factory.mktemp("alone"), data)
    train_here(job_file)
    return job_file


def test_two_ranks_train_checkpoint_resume_and_export(tmp_path: Path, data: Path, straight: Path) -> None:
    out = straight.parent / "out"
    assert read_out(straight, "outcome.json")["code"] == "finished"
    assert {path.name for path in (out / "logs").iterdir()} == {"rank-0.log", "rank-1.log"}
    assert not list(out.glob("failure-*"))
    assert not list(out.glob(".failure-*"))

    point = resume_from(out / "checkpoints/step-10", tmp_path / "resumed")
    resumed = write_job(tmp_path / "resumed", data, ranks=2, job=point)
    assert run_trainer("train", resumed) == 0
    assert losses(resumed) == losses(straight)[10:]

    assert run_trainer("export", resumed) == 0
    assert main(["sample", str(tmp_path / "resumed/out/export"), "--tokens", "3"]) == 0


def test_a_launch_leaves_no_temporary_folder_of_torch(straight: Path) -> None:
    assert not list((straight.parent.parent / "temporary").glob("torchelastic_*"))


def test_two_ranks_equal_one_process(alone: Path, straight: Path) -> None:
    """Same weights, same batches; only the order of float32 sums differs.

    A loss of 5.5 is a sum of a few partial means, each rounded to 2^-24 of itself: 5.5 · 8 · 6e-8 ≈ 3e-6 in
    the first step. Gradients then differ by about 1e-6 of themselves, and since a step changes the loss by
    less than 1, each adds at most about 1e-6: 3e-5 over 20 steps with a margin for growth.
    """
    assert losses(straight)[0] == pytest.approx(losses(alone)[0], abs=3e-6)
    assert losses(straight) == pytest.approx(losses(alone), abs=3e-5)
    held_out = [
        [line["values"]["validation_loss"] for line in events(job, "validation")] for job in (alone, straight)
    ]
    assert held_out[1] == pytest.approx(held_out[0], abs=3e-5)


@pytest.mark.slow(target="layouts")
def test_a_run_continues_with_another_number_of_ranks(tmp_path: Path, data: Path, alone: Path) -> None:
    """Tolerance as above."""
    point = resume_from(alone.parent / "out/checkpoints/step-10", tmp_path)
    two = write_job(tmp_path, data, ranks=2, job=point)
    assert run_trainer("train", two) == 0
    assert losses(two) == pytest.approx(losses(alone)[10:], abs=3e-5)


@pytest.mark.slow(target="layouts")
def test_divergence_ends_all_ranks_with_its_own_outcome(tmp_path: Path, data: Path) -> None:
    trained = train_here(write_job(tmp_path / "trained", data, schedule={"steps": 5}))
    with torch.no_grad():
        trained.engine.model.get_parameter("norm.weight")[0] = float("nan")
    where = training_position(5, trained.spec) | trained.skipped_steps.scalars()
    snapshot = take_snapshot(trained.engine.updater, where, HostMemory())
    origin = Origin(config_digest(trained.spec), 1, None)
    poisoned = save_checkpoint(tmp_path, snapshot, origin, Writer(rank=0, on_node=range(1), nonce="poisoned"))
    assert poisoned
    point = resume_from(poisoned.folder, tmp_path / "run")
    job_file = write_job(tmp_path / "run", data, ranks=2, job=point)
    assert run_trainer("train", job_file) == 0
    outcome = read_out(job_file, "outcome.json")
    assert (outcome["code"], outcome["step"]) == ("diverged", 5)
    first = "norm.weight:weight"
    assert outcome["message"] == f"Training diverged at step 6: the loss was nan, first in {first}."
    batch = trained.loader.describe_batch(6)
    assert batch.startswith("sequences ") and batch.endswith(" and 4 more of the training split")
    [note] = [line["message"] for line in events(job_file, "note")]
    assert note.startswith("Step 6 made the run diverge: the loss was nan and the gradient norm ")
    assert note.endswith(f"the first tensor that was not finite: {first}. It trained on {batch}.")
    assert outcome["sequences_read"] == 6 * 8
    assert not losses(job_file)
    assert not (tmp_path / "run/out/ranks.json").exists()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (
            {"spec": {"name": "x", "data": {"dataset": "d"}, "optimizer": {"learning_rte": 1}}},
            "learning_rate",
        ),
        pytest.param({"slots": [0, 1, 2]}, "slots", marks=pytest.mark.slow(target="layouts")),
    ],
)
def test_a_bad_job_is_refused_with_the_field(
    tmp_path: Path, data: Path, change: dict[str, object], word: str
) -> None:
    job_file = write_job(tmp_path, data, job=change)
    assert run_trainer("train", job_file) == 1
    failure = read_out(job_file, "failure-0.json")
    assert failure["code"] == "bad_job"
    assert word in failure["message"]


@pytest.fixture
def marker() -> Iterator[str]:
    """An environment variable for the processes that a test starts.
    Those that still have it at the end are killed."""
    mark = f"{MARKER}={uuid4().hex}"
    yield mark
    for pid in _marked(mark):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def endless(
    tmp_path: Path, data: Path, marker: str
) -> Iterator[tuple[Path, subprocess.Popen[bytes], dict[int, int]]]:
    """A run of two ranks that is making steps: its job, its launcher, and the pid of each rank."""
    job_file = write_job(tmp_path, data, ranks=2, schedule=ENDLESS, checkpoint={"every_steps": 5})
    name, value = marker.split("=")
    with trainer("train", job_file, **{name: value}) as launcher:
        _wait_until(lambda: len(losses(job_file)) > 3)
        yield job_file, launcher, {rank: _pid_of(job_file, rank) for rank in (0, 1)}
        launcher.kill()


@pytest.mark.slow(target="layouts")
def test_killing_the_launcher_leaves_no_rank(
    endless: tuple[Path, subprocess.Popen[bytes], dict[int, int]], marker: str
) -> None:
    _, launcher, ranks = endless
    assert {launcher.pid, *ranks.values()} <= set(_marked(marker))
    launcher.kill()
    _wait_until(lambda: set(_marked(marker)) <= {launcher.pid}, seconds=5)


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_rank_is_named_with_its_signal(
    endless: tuple[Path, subprocess.Popen[bytes], dict[int, int]], marker: str, victim: int
) -> None:
    job_file, launcher, ranks = endless
    os.kill(ranks[victim], signal.SIGKILL)
    launcher.communicate(timeout=60)
    assert launcher.returncode == 1
    cause = read_exits(job_file).exits[0]
    assert (cause.rank, cause.signal, cause.exit_code) == (victim, signal.SIGKILL, None)
    assert not list((job_file.parent / "out").glob("failure-*.json")), "the other rank is not a cause"
    assert not _marked(marker)


@pytest.mark.slow(target="layouts")
def test_a_killed_reader_ends_the_run_with_an_error_that_names_it(
    endless: tuple[Path, subprocess.Popen[bytes], dict[int, int]], marker: str
) -> None:
    job_file, launcher, _ = endless
    (reader,) = (pid for pid in _marked(marker) if _name_of(pid) == "tw-reader")
    os.kill(reader, signal.SIGKILL)
    launcher.communicate(timeout=60)
    assert launcher.returncode == 1
    failures = [json.loads(path.read_text()) for path in (job_file.parent / "out").glob("failure-*.json")]
    assert failures and {failure["code"] for failure in failures} == {"crashed"}
    assert all(
        "the reader of this node ended before it had read step" in failure["message"] for failure in failures
    )
    assert not _marked(marker)


@pytest.mark.slow(target="layouts")
def test_sigterm_ends_all_ranks_immediately_and_saves_nothing(
    endless: tuple[Path, subprocess.Popen[bytes], dict[int, int]], marker: str
) -> None:
    job_file, launcher, _ = endless
    launcher.terminate()
    launcher.communicate(timeout=60)
    assert launcher.returncode == 128 + signal.SIGTERM
    assert not _marked(marker)
    assert not (job_file.parent / "out/outcome.json").exists()


@pytest.mark.slow(target="layouts")
def test_a_kill_during_saving_leaves_only_complete_checkpoints(
    endless: tuple[Path, subprocess.Popen[bytes], dict[int, int]], tmp_path: Path, data: Path
) -> None:
    job_file, launcher, _ = endless
    checkpoints = job_file.parent / "out/checkpoints"
    _wait_until(lambda: checkpoints.exists() and len(list(checkpoints.glob("step-*"))) > 2)
    _wait_until(lambda: any(checkpoints.glob("*.tmp-*")))
    launcher.kill()
    launcher.communicate()
    whole = sorted((path for path in checkpoints.iterdir() if "." not in path.name), key=_step)
    assert whole
    again = tmp_path / "again"
    shutil.copytree(whole[-1], again / "newest")
    point = resume_from(again / "newest", again / "run")
    steps = {"steps": _step(whole[-1]) + 1}
    assert run_trainer("train", write_job(again / "run", data, ranks=2, schedule=steps, job=point)) == 0


@pytest.mark.slow(target="layouts")
def test_killing_the_parent_of_the_launcher_leaves_no_process(
    tmp_path: Path, data: Path, marker: str
) -> None:
    """The parent passes its own pid to the launcher, as the agent's supervisor does."""
    job_file = write_job(tmp_path, data, ranks=2, schedule=ENDLESS)
    code = (
        "import os, subprocess, sys; os.environ['TRAINWRIGHT_PARENT'] = str(os.getpid());"
        "subprocess.run([sys.executable, '-m', 'trainwright_trainer.launch', sys.argv[1]])"
    )
    name, value = marker.split("=")
    with subprocess.Popen([sys.executable, "-c", code, job_file], env=os.environ | {name: value}) as parent:
        _wait_until(lambda: bool(losses(job_file)))
        parent.kill()
    _wait_until(lambda: not _marked(marker), seconds=5)


@pytest.mark.slow(target="layouts")
def test_a_failure_reports_the_last_completed_step(tmp_path: Path, data: Path) -> None:
    job_file = write_job(tmp_path, data, ranks=2, checkpoint={"every_steps": 20})
    (tmp_path / "out").mkdir()
    (tmp_path / "out/checkpoints").write_text("a file in place of the folder")
    assert run_trainer("train", job_file) == 1
    failure = read_out(job_file, "failure-0.json")
    assert (failure["code"], failure["step"]) == ("crashed", 20)


def test_a_trainer_with_another_parent_exits_immediately(tmp_path: Path, data: Path) -> None:
    job_file = write_job(tmp_path, data)
    with trainer("train", job_file, TRAINWRIGHT_PARENT="1") as process:
        process.communicate(timeout=30)
    assert process.returncode == 1
    assert not (tmp_path / "out").exists()


def _marked(mark: str) -> list[int]:
    """Live processes with ``mark`` in their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                environment = (folder / "environ").read_bytes()
            except OSError:
                continue  # exited meanwhile, a zombie, or another user's
            if mark.encode() in environment.split(b"\0"):
                found.append(int(folder.name))
    return found


def _pid_of(job_file: Path, rank: int) -> int:
    first_line = (job_file.parent / "out/logs" / f"rank-{rank}.log").read_text().splitlines()[0]
    return int(first_line.rpartition("pid ")[2])


def _name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step-"))


def _wait_until(holds: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "the condition did not hold in time"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("device", "owners", "found"),
    [("cuda", None, "expandable_segments:True"), ("cuda", "max_split_size_mb:64", None), ("cpu", None, None)],
)
def test_ranks_on_gpus_use_expandable_segments_unless_configured_otherwise(
    device: str,
    owners: str | None,
    found: str | None,
    tmp_path: Path,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.setenv(name, "")
    if owners:
        monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", owners)
    launcher.launch_config(read_job(write_job(tmp_path, data, job={"device": device})))
    assert (os.environ["PYTORCH_ALLOC_CONF"] or None) == found
