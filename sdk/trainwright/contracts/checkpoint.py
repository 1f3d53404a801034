"""The manifest of a checkpoint or an export: the list by which it is verified, committed and re-sharded.

Names are canonical and unsharded (``model.layers.0.attention.query.weight``,
``optimizer.exp_avg.layers.0.…``); each piece tells where it lies in the whole, so that loading on another number of
ranks is reading slices. Scalars (step, cursor, random states) stand in JSON, tensors in safetensors files.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Any, Literal

from trainwright.contracts.base import Envelope


class CheckpointKind(StrEnum):
    STATE = "state"
    """Resumable: weights, optimizer and position."""
    EXPORT = "export"
    """Weights only, Hugging Face layout."""


class FileEntry(Envelope):
    """One file of a checkpoint."""

    name: str
    bytes: int
    digest: str
    """SHA-256, in hex."""


class Piece(Envelope):
    """A slice of a tensor in one file."""

    file: str
    start: tuple[int, ...]
    """First index of the slice along each dim of the whole tensor."""

    shape: tuple[int, ...]


class TensorEntry(Envelope):
    """A whole tensor and where its pieces lie."""

    shape: tuple[int, ...]
    dtype: str
    pieces: list[Piece]
    scale: str | None = None
    """Name of the tensor that the stored values are multiplied with to get real ones. Empty: they are the real ones.

    It is one number, or one for each 128 elements of the tensor in row-major order. Of a tensor with several pieces the
    latter belong to pieces: each has its own blocks, along its own rows, under the name that ``block_scale_name`` gives."""


class CheckpointManifest(Envelope):
    """Written last; a folder without it is no checkpoint."""

    schema_version: Literal[1] = 1
    kind: CheckpointKind
    step: int
    files: list[FileEntry]
    """Every file but the manifest itself."""

    config_digest: str
    """SHA-256 of the RunSpec's sections that shape the state."""

    code_version: str
    world_size: int = 1
    parent_digest: str | None = None
    """Digest of the manifest this training was resumed from."""

    tensors: dict[str, TensorEntry] = {}
    state: dict[str, Any] = {}
    """Scalars: data cursor, tokens seen, random states."""

    def to_bytes(self) -> bytes:
        """The manifest file's content; its SHA-256 is the checkpoint's digest."""
        return self.model_dump_json(indent=1).encode()


def block_scale_name(
    scale: str, whole: tuple[int, ...], start: tuple[int, ...], shape: tuple[int, ...]
) -> str:
    """Name of the tensor with the scales of a piece's blocks: ``scale`` itself for a piece that is all of the tensor.

    Args:
        scale: as ``TensorEntry`` has it.
        whole: shape of the tensor that the piece is of; ``start`` and ``shape`` are the piece's.
    """
    return scale if shape == whole else f"{scale}@{','.join(map(str, start))}"


def digest_of(content: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(content).hexdigest()
