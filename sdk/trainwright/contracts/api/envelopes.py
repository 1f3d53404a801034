"""What every answer of the API is made of: pages of a list, and errors."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from trainwright.contracts.base import Envelope, Problem
from trainwright.contracts.model_spec import ModelSpec

Item = TypeVar("Item")


class Page(Envelope, Generic[Item]):
    """A stretch of a list."""

    items: list[Item]
    next_cursor: str | None = None
    """Opaque; pass it as `cursor` for the next page. Empty: this was the last."""


class ErrorBody(Envelope):
    """An error (RFC 9457, `application/problem+json`)."""

    type: str = "about:blank"
    title: str
    status: int
    code: str
    """Fixed word for programs, such as `quota_exceeded`."""

    detail: str
    """What happened, why, and what to do."""

    request_id: str = ""
    errors: list[Problem] = []
    """For refused input: one entry a field."""


class Health(Envelope):
    status: str
    version: str
    control_loop_seconds: float | None = None
    """Since the control loop of this process last came round; empty where it has none."""


class SpecInfo(Envelope):
    run_spec: dict[str, Any]
    """JSON Schema of RunSpec."""

    presets: dict[str, ModelSpec]
