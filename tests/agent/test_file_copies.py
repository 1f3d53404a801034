"""A copy is equal and independent, whether the file system clones or not."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from trainwright_agent import file_copies
from trainwright_agent.file_copies import copy_file


def copied(tmp_path: Path, content: bytes) -> bytes:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(content)
    with source.open("r+b") as original, target.open("w+b") as copy:
        copy_file(original.fileno(), copy.fileno(), len(content))
        original.write(b"changed")
        original.flush()
    return target.read_bytes()


@pytest.mark.parametrize("size", [0, 1, 8 * 2**20, 8 * 2**20 + 1])
@pytest.mark.parametrize("clones", [True, False])
def test_a_copy_is_equal_and_independent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, clones: bool
) -> None:
    if not clones:

        def refuse(*_: object) -> None:
            raise OSError(errno.EOPNOTSUPP, "cannot clone")

        monkeypatch.setattr(fcntl, "ioctl", refuse)
    content = os.urandom(size)
    assert copied(tmp_path, content) == content


def test_a_file_that_is_too_large_is_not_copied_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "cannot clone")

    monkeypatch.setattr(fcntl, "ioctl", refuse)
    with (tmp_path / "source").open("w+b") as source, (tmp_path / "target").open("w+b") as target:
        source.truncate(2**40)  # sparse
        copy_file(source.fileno(), target.fileno(), 100)
        assert os.fstat(target.fileno()).st_size == 101


def test_another_error_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr(file_copies.fcntl, "ioctl", refuse)
    with pytest.raises(OSError, match="disk full"):
        copied(tmp_path, b"x")
