"""Runs as people see them."""

from __future__ import annotations

from enum import StrEnum

from pydantic import AwareDatetime

from trainwright.contracts.api.verbs import RunLayout
from trainwright.contracts.base import Envelope, Problem
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.run_state import RunState, Verdict


class RunSummary(Envelope):
    """Last known numbers of a run."""

    step: int = 0
    attempt: int = 0
    values: dict[str, float] = {}
    """Last value of each series, such as `loss` or `mfu`."""

    spark: list[float] = []
    """Up to 32 values of the loss over the whole run, oldest first."""

    peak_name: str | None = None
    """What MFU is a fraction of."""

    bf16_peak_name: str | None = None
    """In an FP8 run, what `bf16_mfu` is a fraction of."""


class ForkedFrom(Envelope):
    """Where a run began that did not begin at step 0."""

    run: str | None
    """Its id; empty once it was deleted."""

    name: str
    step: int


class Run(Envelope):
    id: str
    name: str
    state: RunState
    verdict: Verdict | None = None
    """What a stopping run is to become."""

    sentence: str
    """The state's reason in words: why it waits, what it does, how it ended."""

    reason: EndCode | None = None
    suspect_seconds: float | None = None
    """Silence of the run's node, when it is longer than 30 s: shown, not acted upon."""

    spec: RunSpec
    """As it is for the next attempt: a run's layout can be changed."""

    flops: float
    """Of the whole training, by formula, as `RunEstimate.flops`: of a fork the steps after the one that it began at."""

    attempt: int
    attempt_layout: RunLayout | None = None
    """How the newest attempt is cut, or was; empty before the first one, and for one that only exports."""

    summary: RunSummary
    created: AwareDatetime
    created_by: str | None
    started: AwareDatetime | None = None
    ended: AwareDatetime | None = None
    retry_at: AwareDatetime | None = None
    nodes: list[str] = []
    tags: list[str] = []
    notes: str = ""
    forked_from: ForkedFrom | None = None


class Verdicts(Envelope):
    """Answer to a validation."""

    valid: bool
    problems: list[Problem] = []
    spec: RunSpec | None = None
    """The spec as it would be stored, with what is resolved at submission filled in."""

    parameters: int | None = None
    """Of the model, embeddings included."""


class RunSort(StrEnum):
    """By what a list of runs is sorted; runs without the value come last."""

    CREATED = "created"
    NAME = "name"
    LOSS = "loss"
    MFU = "mfu"
    TOKENS_PER_SECOND = "tokens_per_second"
    STEP = "step"
    ENDED = "ended"


class SortOrder(StrEnum):
    ASCENDING = "asc"
    DESCENDING = "desc"


class RunEvent(Envelope):
    """Something that happened to a run, in order."""

    sequence: int
    time: AwareDatetime
    type: str
    """`state` for a move, else the type of the trainer's event."""

    state: RunState | None = None
    attempt: int | None = None
    step: int | None = None
    message: str
