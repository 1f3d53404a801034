"""A fork resumes from another run's checkpoint,
and matches the parent bit for bit where nothing was changed."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer.jobs import build_here, events, losses, resume_from, train_here, write_job
from trainwright.contracts.checkpoint import digest_of
from trainwright_trainer.runtime.errors import BadJobError, CheckpointInvalidError

STEPS, FORKED_AT = 20, 10


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """The ``job.json`` of a run of 20 steps with checkpoints at 10 and 20."""
    job_file = write_job(tmp_path_factory.mktemp("parent"), data)
    train_here(job_file)
    return job_file


def fork(
    folder: Path, data: Path, parent: Path, resume: dict[str, Any] | None = None, **sections: Any
) -> Path:
    """A fork's job from the parent's checkpoint at the middle."""
    point = resume_from(parent.parent / "out" / "checkpoints" / f"step-{FORKED_AT}", folder)
    point["resume"] |= {"forked": True} | (resume or {})
    return write_job(folder, data, job=point, name="fork", **sections)


def tokens(job_file: Path) -> list[float]:
    return [event["values"]["tokens"] for event in events(job_file, "step")]


def read(job_file: Path, step: int) -> list[list[int]]:
    """The sequences that a job's training reads in a step."""
    batches = build_here(job_file).loader.micro_batches(step)
    return [row.tolist() for batch in batches for row in batch.sequences]


def digests(folder: Path) -> dict[str, str]:
    return {str(path): digest_of(path.read_bytes()) for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_fork_without_changes_repeats_the_losses_of_its_parent_bit_for_bit(
    tmp_path: Path, data: Path, parent: Path
) -> None:
    before = digests(parent.parent)
    job_file = fork(tmp_path, data, parent)
    train_here(job_file)
    assert losses(job_file) == losses(parent)[FORKED_AT:]
    assert tokens(job_file) == tokens(parent)[FORKED_AT:]
    assert digests(parent.parent) == before, "the parent must be unchanged"
    (started,) = events(job_file, "attempt_started")
    assert started["resume_step"] == FORKED_AT


@pytest.mark.slow(target="layouts")
def test_a_fork_with_another_learning_rate_has_other_losses(tmp_path: Path, data: Path, parent: Path) -> None:
    job_file = fork(tmp_path, data, parent, optimizer={"learning_rate": 1e-2}, schedule={"steps": 24})
    train_here(job_file)
    went, parents = losses(job_file), losses(parent)[FORKED_AT:]
    assert len(went) == 24 - FORKED_AT
    assert went[0] == parents[0], "the weights are the parent's"
    assert went[1] != parents[1]


@pytest.mark.slow(target="layouts")
def test_a_fork_resumes_from_its_own_checkpoint_with_its_own_steps(
    tmp_path: Path, data: Path, parent: Path
) -> None:
    smaller = {"global_sequences": 4}
    whole = fork(tmp_path / "whole", data, parent, batch=smaller, checkpoint={"every_steps": 5})
    train_here(whole)
    per_step = 4 * 32
    parents = tokens(parent)[FORKED_AT - 1]
    assert tokens(whole) == [parents + (n + 1) * per_step for n in range(STEPS - FORKED_AT)]
    manifest = json.loads(
        (tmp_path / "whole" / "out" / "checkpoints" / "step-15" / "manifest.json").read_bytes()
    )
    assert manifest["state"]["sequences"] == FORKED_AT * 8 + 5 * 4
    again = tmp_path / "again"
    point = resume_from(tmp_path / "whole" / "out" / "checkpoints" / "step-15", again)
    resumed = write_job(again, data, job=point, name="fork", batch=smaller)
    train_here(resumed)
    assert losses(resumed) == losses(whole)[5:]
    assert tokens(resumed) == tokens(whole)[5:]


def test_the_same_data_continues_and_other_data_starts_at_the_beginning(
    tmp_path: Path, data: Path, parent: Path
) -> None:
    first = read(write_job(tmp_path / "plain", data), 1)
    next_of_parent = read(fork(tmp_path / "same", data, parent), FORKED_AT + 1)
    smaller = fork(tmp_path / "smaller", data, parent, batch={"global_sequences": 4})
    assert read(smaller, FORKED_AT + 1) + read(smaller, FORKED_AT + 2) == next_of_parent
    restarted = fork(tmp_path / "restarted", data, parent, resume={"data_from_start": True})
    assert read(restarted, FORKED_AT + 1) == first
    assert not np.array_equal(first, next_of_parent)


def test_a_checkpoint_that_does_not_fit_is_a_configuration_error(
    tmp_path: Path, data: Path, parent: Path
) -> None:
    job_file = fork(tmp_path, data, parent, model={"layers": 3})
    with pytest.raises(BadJobError, match=r"does not fit this run: .*layers\.2.* is missing"):
        build_here(job_file)


def test_a_damaged_checkpoint_is_reported_as_damaged_not_as_unfit(
    tmp_path: Path, data: Path, parent: Path
) -> None:
    source = tmp_path / "parent" / "out" / "checkpoints" / f"step-{FORKED_AT}"
    shutil.copytree(parent.parent / "out" / "checkpoints" / f"step-{FORKED_AT}", source)
    job_file = fork(tmp_path / "fork", data, tmp_path / "parent" / "job.json")
    largest = max(source.glob("*.safetensors"), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[-1] ^= 1
    largest.write_bytes(content)
    with pytest.raises(CheckpointInvalidError, match="does not match the manifest"):
        build_here(job_file)


def test_an_own_checkpoint_of_another_configuration_is_still_refused(
    tmp_path: Path, data: Path, parent: Path
) -> None:
    job_file = fork(tmp_path, data, parent, resume={"forked": False}, batch={"global_sequences": 4})
    with pytest.raises(CheckpointInvalidError, match="another configuration"):
        build_here(job_file)
