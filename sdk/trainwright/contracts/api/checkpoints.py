"""Checkpoints and their files."""

from __future__ import annotations

from pydantic import AwareDatetime

from trainwright.contracts.base import Envelope
from trainwright.contracts.checkpoint import CheckpointKind


class Checkpoint(Envelope):
    id: str
    kind: CheckpointKind
    step: int
    attempt: int
    bytes: int
    created: AwareDatetime
    valid: bool


class CheckpointFile(Envelope):
    name: str
    bytes: int
    digest: str
    url: str
    """Signed link, relative to the API's address when it begins with `/`; good for an hour."""
