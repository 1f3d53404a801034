"""Checkpoints and their files."""

from __future__ import annotations

from pydantic import AwareDatetime

from trainwright.contracts.base import Envelope
from trainwright.contracts.checkpoint import CheckpointKind


class Holds(Envelope):
    """What the manifest of a checkpoint says of it."""

    ranks: int
    """That wrote it; any number can read it."""

    parameters: int
    dtypes: dict[str, int] = {}
    """Numbers of each dtype, such as `float32`, over all tensors: weights, moments, masters."""

    resumed_from_step: int | None = None
    """The state that the attempt began from; empty: the start, or one that is gone."""


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
    holds: Holds | None = None
    """Empty for those committed by older versions."""


class CheckpointFile(Envelope):
    name: str
    bytes: int
    digest: str
    url: str
    """Signed link, relative to the API's address when it begins with `/`; good for an hour."""
