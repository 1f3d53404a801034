"""Building blocks of API responses: pages of a list, errors, health."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from trainwright.contracts.api.plans import GpuModel
from trainwright.contracts.base import Envelope, Problem
from trainwright.contracts.model_spec import ModelSpec

Item = TypeVar("Item")


class Page(Envelope, Generic[Item]):
    """One page of a list."""

    items: list[Item]
    next_cursor: str | None = None
    """Opaque; pass it as `cursor` to get the next page. Empty: this is the last page."""


class ErrorBody(Envelope):
    """An error (RFC 9457, `application/problem+json`)."""

    type: str = "about:blank"
    title: str
    status: int
    code: str
    """Stable code for programs, such as `quota_exceeded`."""

    detail: str
    """What happened, why, and what to do about it."""

    request_id: str = ""
    errors: list[Problem] = []
    """Problems of invalid input, one entry per field."""


class PartProblem(Envelope):
    """A part of the platform that does not work."""

    part: str
    """`broker`, `worker`, `agent`, `api`, or `hints broker` and `tasks broker` if there are two brokers."""

    message: str
    """What happened, and what it means."""


class Health(Envelope):
    status: str
    """`ok`, or `degraded`: the API works, and a part of the platform named in `problems` does not."""

    version: str
    problems: list[PartProblem] = []
    sends_mail: bool = False
    """Whether people can have sign-in links sent by email."""

    control_loop_seconds: float | None = None
    """Seconds since the last pass of this process's control loop; empty if it has none."""


class SpecInfo(Envelope):
    run_spec: dict[str, Any]
    """JSON Schema of RunSpec."""

    presets: dict[str, ModelSpec]
    preset_parameters: dict[str, int] = {}
    """Parameters of each preset, including embeddings: with the vocabulary that it was published with, or the default one."""

    preset_families: dict[str, str] = {}
    """The family of each preset, such as `Llama 2`."""

    gpus: list[GpuModel] = []
    """The GPUs that `…/runs/what-if` can plan for."""
