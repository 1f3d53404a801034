"""Checkpoints and their files."""

from __future__ import annotations

from enum import StrEnum

from pydantic import AwareDatetime

from trainwright.contracts.base import Envelope
from trainwright.contracts.checkpoint import CheckpointKind


class CheckpointOrder(StrEnum):
    """Order of the checkpoints of several runs."""

    NEWEST = "newest"
    """The checkpoint saved last first."""
    RUN = "run"
    """Newest run first; of one run the highest step first."""


class CheckpointContents(Envelope):
    """Contents of a checkpoint, from its manifest."""

    ranks: int
    """Number of ranks that wrote it. Any number of ranks can load it."""

    parameters: int
    dtypes: dict[str, int] = {}
    """Elements by dtype, such as `float32`, over all tensors: weights, moments, master weights."""

    resumed_from_step: int | None = None
    """Step of the checkpoint that the attempt resumed from; empty: none, or it no longer exists."""


class Checkpoint(Envelope):
    id: str
    run: str = ""
    run_name: str = ""
    kind: CheckpointKind
    step: int
    attempt: int
    bytes: int
    created: AwareDatetime
    valid: bool
    pinned: bool = False
    contents: CheckpointContents | None = None
    """Empty if an older version committed it."""

    validation_loss: float | None = None
    """Loss of the last validation at or before its step; empty if there was none."""

    validation_step: int | None = None
    """Step of that validation."""


class CheckpointFile(Envelope):
    name: str
    bytes: int
    digest: str
    url: str
    """Signed link, valid for an hour; relative to the API's address if it starts with `/`."""
