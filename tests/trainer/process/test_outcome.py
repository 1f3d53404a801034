"""Every failure writes a file that explains it, even on a full disk."""

import errno
import json
from pathlib import Path

import pytest
import torch

from trainwright.contracts.end_codes import EndCode
from trainwright_trainer.distributed.axis import RankLostError
from trainwright_trainer.process import outcome
from trainwright_trainer.runtime.errors import BadJobError, CheckpointInvalidError, DivergedError


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (BadJobError("slots: too many"), EndCode.BAD_JOB, "slots: too many"),
        (CheckpointInvalidError("step-3: torn"), EndCode.CHECKPOINT_INVALID, "step-3: torn"),
        (DivergedError("the loss was nan"), EndCode.DIVERGED, "the loss was nan"),
        (torch.OutOfMemoryError("CUDA out of memory."), EndCode.OUT_OF_MEMORY, None),
        (MemoryError(), EndCode.OUT_OF_MEMORY, "MemoryError"),
        (OSError(errno.ENOSPC, "No space left on device"), EndCode.DISK_FULL, None),
        (
            OSError(errno.EACCES, "Permission denied"),
            EndCode.CRASHED,
            "PermissionError: [Errno 13] Permission denied",
        ),
        (RankLostError("lost contact"), EndCode.RANK_LOST, None),
        (KeyError("wq"), EndCode.CRASHED, "KeyError: 'wq'"),
    ],
)
def test_an_error_is_reported_with_its_code(
    tmp_path: Path, error: Exception, code: EndCode, message: str | None
) -> None:
    outcome.reserve_failure_file(tmp_path, 3)
    outcome.write_failure(tmp_path, 3, error)
    failure = json.loads((tmp_path / "failure-3.json").read_text())
    assert (failure["code"], failure["rank"]) == (code, 3)
    if message is not None:
        assert failure["message"] == message
    assert [path.name for path in tmp_path.iterdir()] == ["failure-3.json"]


def test_a_tensor_too_large_for_the_cpu_is_out_of_memory() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**62, dtype=torch.uint8)
    assert outcome.end_code_of(caught.value) is EndCode.OUT_OF_MEMORY


def test_the_outcome_is_written_to_space_reserved_at_the_start(tmp_path: Path) -> None:
    """The renamed file is the one that was reserved, so writing it needs no new block."""
    outcome.reserve_failure_file(tmp_path, 0)
    reserved = next(tmp_path.iterdir()).stat()
    assert reserved.st_size == 4_096
    outcome.write_failure(tmp_path, 0, OSError(errno.ENOSPC, "No space left on device"))
    path = tmp_path / "failure-0.json"
    assert path.stat().st_ino == reserved.st_ino
    assert json.loads(path.read_text())["code"] == "disk_full"


def test_a_very_long_message_still_fits(tmp_path: Path) -> None:
    outcome.reserve_failure_file(tmp_path, 0)
    outcome.write_failure(tmp_path, 0, RuntimeError("é" * 100_000))
    assert (tmp_path / "failure-0.json").stat().st_size <= 4_096
