"""What one rank writes to a checkpoint, and how the ranks' files become one checkpoint.

A rank writes its files of tensors and then, atomically, a manifest of them. Ranks communicate by these manifests,
because the writing threads must not use collectives, which the training threads use at the same time. If a manifest
exists, its rank's files are on disk. If it has been removed again, they are in the checkpoint's manifest.

    tensors-<rank>-<index>.safetensors     rank-<rank>.json
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from trainwright.contracts.base import Envelope
from trainwright.contracts.checkpoint import FileEntry, TensorEntry, TensorSlice
from trainwright.durable_files import SHARED, write_durably
from trainwright_trainer.checkpoint.snapshot import StateSlice
from trainwright_trainer.checkpoint.tensor_files import DTYPE_NAMES, write_tensors

FILE_BYTES = 2**28
"""A file of tensors is closed when it reaches this size. Each file is hashed on one core, several at a time."""

_POLL_SECONDS = 0.05


class RankManifest(Envelope):
    """The files and tensors of one rank."""

    files: list[FileEntry]
    tensors: dict[str, TensorEntry]


def write_rank_files(draft: Path, rank: int, slices: list[StateSlice]) -> None:
    """Write this rank's slices and then its manifest, which is empty if other ranks write everything."""
    files: list[FileEntry] = []
    tensors: dict[str, TensorEntry] = {}
    for index, group in enumerate(_files(slices)):
        path = draft / f"tensors-{rank}-{index:05d}.safetensors"
        files.append(write_tensors(path, {state_slice.name: state_slice.tensor for state_slice in group}))
        tensors |= {state_slice.name: _entry(state_slice, path.name) for state_slice in group}
    write_rank_manifest(draft, rank, RankManifest(files=files, tensors=tensors))


def collect_rank_manifests(draft: Path, ranks: range) -> RankManifest:
    """Wait for the manifests of ``ranks``, those of this node; remove them and return them merged."""
    paths = [_manifest_path(draft, rank) for rank in ranks]
    while not all(path.exists() for path in paths):
        time.sleep(_POLL_SECONDS)
    merged = merge_manifests([RankManifest.model_validate_json(path.read_bytes()) for path in paths])
    for path in paths:
        path.unlink()
    return merged


def merge_manifests(manifests: Sequence[RankManifest]) -> RankManifest:
    """All files and tensors of ``manifests``. Several manifests may have slices of the same tensor."""
    tensors: dict[str, TensorEntry] = {}
    for name, entry in chain.from_iterable(manifest.tensors.items() for manifest in manifests):
        tensors[name] = _merge(tensors.get(name), entry)
    return RankManifest(
        files=list(chain.from_iterable(manifest.files for manifest in manifests)), tensors=tensors
    )


def await_collection(draft: Path, rank: int) -> None:
    """Return when the manifest of ``rank``, already written, has been collected."""
    while _manifest_path(draft, rank).exists():
        time.sleep(_POLL_SECONDS)


def write_rank_manifest(draft: Path, rank: int, manifest: RankManifest) -> None:
    """Write the manifest that tells the node's first rank that this rank's files are complete."""
    write_durably(_manifest_path(draft, rank), manifest.model_dump_json().encode(), SHARED)


def _manifest_path(draft: Path, rank: int) -> Path:
    return draft / f"rank-{rank}.json"


def _files(slices: list[StateSlice]) -> Iterator[list[StateSlice]]:
    group: list[StateSlice] = []
    for state_slice in slices:
        group.append(state_slice)
        if sum(item.tensor.nbytes for item in group) >= FILE_BYTES:
            yield group
            group = []
    if group:
        yield group


def _entry(state_slice: StateSlice, file: str) -> TensorEntry:
    stored = TensorSlice(file=file, offset=state_slice.offset, shape=tuple(state_slice.tensor.shape))
    return TensorEntry(
        shape=state_slice.full_shape,
        dtype=DTYPE_NAMES[state_slice.tensor.dtype],
        slices=[stored],
        scale=state_slice.scale,
    )


def _merge(group: TensorEntry | None, more: TensorEntry) -> TensorEntry:
    """One entry for a tensor that several ranks have slices of."""
    if group is None:
        return more
    assert group.model_copy(update={"slices": more.slices}) == more, "ranks describe one tensor differently"
    return group.model_copy(update={"slices": group.slices + more.slices})
