"""What one rank adds to a checkpoint, and how the parts of all ranks become one.

A rank writes its files of tensors and then, in one instant, a list of what is in them. Lists are how the ranks talk
here: the writing threads must not use collectives, which the training threads use at the same time. A list that is
there says that its rank's part is on disk; one that has gone again, that the part is in the manifest.

    tensors-<rank>-<index>.safetensors     rank-<rank>.json
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from trainwright.contracts.base import Envelope
from trainwright.contracts.checkpoint import FileEntry, Piece, TensorEntry
from trainwright_trainer.checkpoint.files import DTYPE_NAMES, write_tensors
from trainwright_trainer.checkpoint.snapshot import HeldPiece

FILE_BYTES = 2**28
"""A file of tensors is closed when it has reached this size. Each file is hashed on one core, and several at a time."""

_POLL_SECONDS = 0.05


class PartList(Envelope):
    """A rank's list."""

    files: list[FileEntry]
    tensors: dict[str, TensorEntry]


def write_part(draft: Path, rank: int, pieces: list[HeldPiece]) -> None:
    """Write what ``rank`` answers for, and then its list, which is empty where others answer for all."""
    files: list[FileEntry] = []
    tensors: dict[str, TensorEntry] = {}
    for index, held in enumerate(_files(pieces)):
        path = draft / f"tensors-{rank}-{index:05d}.safetensors"
        files.append(write_tensors(path, {piece.name: piece.tensor for piece in held}))
        tensors |= {piece.name: _entry(piece, path.name) for piece in held}
    _tell(draft, rank, PartList(files=files, tensors=tensors))


def collect_parts(draft: Path, ranks: int) -> PartList:
    """Wait for the lists of all ranks, take them away and return them as one."""
    lists = [_list(draft, rank) for rank in range(ranks)]
    while not all(path.exists() for path in lists):
        time.sleep(_POLL_SECONDS)
    parts = [PartList.model_validate_json(path.read_bytes()) for path in lists]
    tensors: dict[str, TensorEntry] = {}
    for name, entry in chain.from_iterable(part.tensors.items() for part in parts):
        tensors[name] = _joined(tensors.get(name), entry)
    for path in lists:
        path.unlink()
    return PartList(files=list(chain.from_iterable(part.files for part in parts)), tensors=tensors)


def await_collection(draft: Path, rank: int) -> None:
    """Return when the list of ``rank``, which has been written, was taken away."""
    while _list(draft, rank).exists():
        time.sleep(_POLL_SECONDS)


def _tell(draft: Path, rank: int, part: PartList) -> None:
    path = _list(draft, rank)
    unfinished = path.with_suffix(".tmp")
    unfinished.write_bytes(part.model_dump_json().encode())
    unfinished.rename(path)


def _list(draft: Path, rank: int) -> Path:
    return draft / f"rank-{rank}.json"


def _files(pieces: list[HeldPiece]) -> Iterator[list[HeldPiece]]:
    held: list[HeldPiece] = []
    for piece in pieces:
        held.append(piece)
        if sum(one.tensor.nbytes for one in held) >= FILE_BYTES:
            yield held
            held = []
    if held:
        yield held


def _entry(piece: HeldPiece, file: str) -> TensorEntry:
    lies = Piece(file=file, start=piece.start, shape=tuple(piece.tensor.shape))
    return TensorEntry(
        shape=piece.whole, dtype=DTYPE_NAMES[piece.tensor.dtype], pieces=[lies], scale=piece.scale
    )


def _joined(held: TensorEntry | None, more: TensorEntry) -> TensorEntry:
    """One entry of a tensor of which several ranks have pieces."""
    if held is None:
        return more
    assert held.model_copy(update={"pieces": more.pieces}) == more, "ranks hold one tensor in two ways"
    return held.model_copy(update={"pieces": held.pieces + more.pieces})
