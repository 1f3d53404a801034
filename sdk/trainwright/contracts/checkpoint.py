"""The manifest of a checkpoint or an export: the list by which it is verified, committed and re-sharded.

Names are canonical and unsharded (``model.layers.0.attention.query.weight``,
``optimizer.exp_avg.layers.0.…``). Each slice has its offset in the whole tensor, so a checkpoint can be loaded on any number
of ranks. Scalars (step, cursor, random states) are in JSON, tensors in safetensors files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal

from pydantic import Field, model_validator

from trainwright.contracts.base import Envelope, Report


class CheckpointKind(StrEnum):
    STATE = "state"
    """Resumable: weights, optimizer and position."""
    EXPORT = "export"
    """Weights only, Hugging Face layout."""


DIGEST_PATTERN = r"^[0-9a-f]{64}$"
MAX_STEP = 2**31 - 1
MAX_FILE_BYTES = 2**48


class FileEntry(Report):
    """One file of a checkpoint."""

    name: str = Field(max_length=255)
    bytes: int = Field(ge=0, le=MAX_FILE_BYTES)
    digest: str = Field(pattern=DIGEST_PATTERN)
    """SHA-256, in hex."""


class TensorSlice(Envelope):
    """A slice of a tensor, in one file."""

    file: str
    offset: tuple[int, ...]
    """First index of the slice along each dim of the whole tensor."""

    shape: tuple[int, ...]

    @model_validator(mode="before")
    @classmethod
    def _accept_start(cls, given: Any) -> Any:
        """Manifests up to version 0.1 call the offset `start`."""
        return _with_key(given, "start", "offset")


class TensorEntry(Envelope):
    """A whole tensor, and the files that its slices are in."""

    shape: tuple[int, ...]
    dtype: str
    slices: list[TensorSlice]
    scale: str | None = None
    """Name of the tensor by which stored values are multiplied to get real ones. Empty: stored values are the real ones.

    It is one number, or one for each block of 128 elements of the tensor in row-major order. If a tensor has several slices,
    each slice has its own blocks, along its own rows, under the name that ``block_scale_name`` gives."""

    @model_validator(mode="before")
    @classmethod
    def _accept_pieces(cls, given: Any) -> Any:
        """Manifests up to version 0.1 call slices `pieces`."""
        return _with_key(given, "pieces", "slices")


class CheckpointManifest(Envelope):
    """Written last: a folder without it is not a checkpoint."""

    schema_version: Literal[1] = 1
    kind: CheckpointKind
    step: int
    files: list[FileEntry]
    """Every file except the manifest itself."""

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
    scale: str, whole: tuple[int, ...], offset: tuple[int, ...], shape: tuple[int, ...]
) -> str:
    """Name of the tensor with the scales of a slice's blocks: ``scale`` itself if the slice is the whole tensor.

    Args:
        scale: as ``TensorEntry`` has it.
        whole: shape of the whole tensor; ``offset`` and ``shape`` are those of the slice.
    """
    return scale if shape == whole else f"{scale}@{','.join(map(str, offset))}"


def _with_key(given: Any, older: str, current: str) -> Any:
    if isinstance(given, Mapping) and older in given and current not in given:
        return {current if key == older else key: value for key, value in given.items()}
    return given


def digest_of(content: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(content).hexdigest()
