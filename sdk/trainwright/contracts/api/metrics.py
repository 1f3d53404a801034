"""Series of numbers, and the attempts that they are of."""

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
    """Pass as Last-Event-ID to the stream to go on from here."""


class RunSeries(Envelope):
    """Series of one run among several that are compared."""

    run: str
    series: list[Series]


class AttemptMark(Envelope):
    """Where an attempt begins on the step axis, for charts."""

    attempt: int
    resume_step: int
    started: AwareDatetime | None
    ended: AwareDatetime | None
    reason: EndCode | None


class MetricPoints(Envelope):
    attempt: int
    steps: list[int]
    series: dict[str, list[float]]
