"""Series of metrics, and the attempts that produced them."""

from __future__ import annotations

from pydantic import AwareDatetime

from trainwright.contracts.base import Envelope
from trainwright.contracts.end_codes import EndCode


class Series(Envelope):
    """One metric of a run over its steps."""

    name: str
    unit: str
    steps: list[int]
    values: list[float]


class Metrics(Envelope):
    series: list[Series]
    attempts: list[AttemptMark]
    cursor: str
    """Pass as Last-Event-ID to the stream to continue from here."""


class RunSeries(Envelope):
    """Series of one of several runs that are compared."""

    run: str
    series: list[Series]


class AttemptMark(Envelope):
    """Where an attempt starts on the step axis, for charts."""

    attempt: int
    resume_step: int
    started: AwareDatetime | None
    ended: AwareDatetime | None
    reason: EndCode | None


class MetricPoints(Envelope):
    attempt: int
    steps: list[int]
    series: dict[str, list[float]]
