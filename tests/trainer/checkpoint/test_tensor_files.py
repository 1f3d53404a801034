"""Tensor files are read as by the safetensors library, and refused if they are damaged."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import safe_open

from trainwright_trainer.checkpoint import tensor_files
from trainwright_trainer.checkpoint.tensor_files import (
    CorruptFileError,
    read_box,
    stored_tensors,
    write_tensors,
)

STATE = {
    "matrix": torch.arange(7 * 13, dtype=torch.float32).view(7, 13),
    "cube": torch.arange(4 * 3 * 5).view(4, 3, 5),
    "row": torch.arange(9, dtype=torch.float32).bfloat16(),
    "number": torch.tensor(7),
    "codes": torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).view(16, 16),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tensors.safetensors"
    write_tensors(path, STATE)
    return path


@pytest.mark.parametrize("together", [1, 100, 2**24])
@pytest.mark.parametrize(
    ("name", "box"),
    [
        ("matrix", (slice(0, 7), slice(0, 13))),
        ("matrix", (slice(2, 5), slice(0, 13))),
        ("matrix", (slice(1, 7), slice(4, 9))),
        ("matrix", (slice(6, 7), slice(12, 13))),
        ("cube", (slice(1, 3), slice(0, 3), slice(0, 5))),
        ("cube", (slice(0, 4), slice(1, 3), slice(2, 5))),
        ("row", (slice(3, 9),)),
        ("number", ()),
        ("codes", (slice(3, 16), slice(8, 16))),
    ],
)
def test_a_slice_is_read_as_by_the_safetensors_library(
    file: Path, monkeypatch: pytest.MonkeyPatch, name: str, box: tuple[slice, ...], together: int
) -> None:
    """Into separate memory, and into a part of a larger tensor without changing the rest of it."""
    monkeypatch.setattr(tensor_files, "_READ_TOGETHER_BYTES", together)
    with safe_open(file, framework="pt") as library:
        expected = library.get_slice(name)[box] if box else library.get_tensor(name)
    stored = stored_tensors(file)[name]
    assert (stored.dtype, stored.shape) == (STATE[name].dtype, tuple(STATE[name].shape))
    into = torch.empty_like(expected)
    read_box(file, stored, box, into)
    assert torch.equal(into.float(), expected.float()) or name == "codes"
    assert torch.equal(into.flatten().view(torch.uint8), expected.flatten().view(torch.uint8))
    frame = torch.zeros([size + 2 for size in expected.shape], dtype=expected.dtype)
    inner = frame[tuple(slice(1, -1) for _ in expected.shape)] if expected.ndim else frame
    read_box(file, stored, box, inner)
    assert torch.equal(inner.contiguous().view(-1).view(torch.uint8), into.view(-1).view(torch.uint8))
    inner.zero_()
    assert not frame.float().any()


def _with_header(path: Path, change: dict[str, object]) -> None:
    """Override entries in the header of ``matrix`` with ``change``."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["matrix"] |= change
    head = json.dumps(header).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + content[8 + length :])


@pytest.mark.parametrize(
    "change",
    [
        {"data_offsets": [0, 2**40]},
        {"data_offsets": [-4, 360]},
        {"data_offsets": [0]},
        {"data_offsets": "all"},
        {"shape": [7, 14]},
        {"dtype": "F64"},
        {"dtype": "BF16"},
    ],
)
def test_a_header_that_does_not_fit_its_file_is_refused(file: Path, change: dict[str, object]) -> None:
    stored_tensors(file)  # the cached header of the previous file must not be used for the new one
    _with_header(file, change)
    with pytest.raises(CorruptFileError, match="header"):
        stored_tensors(file)


@pytest.mark.parametrize("content", [b"", b"\x05", b"\xff" * 40, (2).to_bytes(8, "little") + b"[]"])
def test_a_file_that_is_not_safetensors_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(CorruptFileError):
        stored_tensors(path)


def test_a_file_truncated_after_its_header_was_read_is_refused(file: Path) -> None:
    stored = stored_tensors(file)["codes"]
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CorruptFileError):
        read_box(file, stored, (slice(0, 16), slice(0, 16)), torch.empty(16, 16, dtype=stored.dtype))
