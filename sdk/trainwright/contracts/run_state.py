"""The states of a run, the verdicts of a stopping one, and the moves that are allowed.

``queued → leased → starting → running → completing → succeeded``. Every early end of a run that holds a node passes
through ``stopping`` with a verdict; a stronger verdict replaces a weaker one.
"""

from __future__ import annotations

from enum import StrEnum


class RunState(StrEnum):
    QUEUED = "queued"
    LEASED = "leased"
    STARTING = "starting"
    RUNNING = "running"
    COMPLETING = "completing"
    STOPPING = "stopping"
    RETRY_WAIT = "retry_wait"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Verdict(StrEnum):
    """What a stopping run is to become, weakest first."""

    RETRY = "retry"
    PAUSE = "pause"
    FAIL = "fail"
    CANCEL = "cancel"

    @property
    def strength(self) -> int:
        return list(Verdict).index(self)


FINAL = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED})
WITHOUT_TRAINER = frozenset({RunState.QUEUED, RunState.RETRY_WAIT, RunState.PAUSED}) | FINAL
"""States in which no node holds the run."""
HOLDS_QUOTA = frozenset(RunState) - FINAL - {RunState.PAUSED}
"""States in which the run's slots are reserved in its team's quota."""
ADVANCING = (RunState.QUEUED, RunState.LEASED, RunState.STARTING, RunState.RUNNING, RunState.COMPLETING)
"""The way of a run that nothing disturbs, up to its success."""

SETTLES_TO = {
    Verdict.RETRY: RunState.RETRY_WAIT,
    Verdict.PAUSE: RunState.PAUSED,
    Verdict.FAIL: RunState.FAILED,
    Verdict.CANCEL: RunState.CANCELLED,
}

MOVES: dict[RunState, frozenset[RunState]] = {
    RunState.QUEUED: frozenset({RunState.LEASED, RunState.PAUSED, RunState.FAILED, RunState.CANCELLED}),
    RunState.LEASED: frozenset({RunState.STARTING, RunState.QUEUED, RunState.STOPPING}),
    RunState.STARTING: frozenset({RunState.RUNNING, RunState.COMPLETING, RunState.STOPPING}),
    RunState.RUNNING: frozenset({RunState.COMPLETING, RunState.STOPPING}),
    RunState.COMPLETING: frozenset({RunState.SUCCEEDED, RunState.STOPPING}),
    RunState.STOPPING: frozenset({RunState.SUCCEEDED, *SETTLES_TO.values()}),
    RunState.RETRY_WAIT: frozenset({RunState.QUEUED, RunState.PAUSED, RunState.FAILED, RunState.CANCELLED}),
    RunState.PAUSED: frozenset({RunState.QUEUED, RunState.CANCELLED}),
    RunState.SUCCEEDED: frozenset(),
    RunState.FAILED: frozenset(),
    RunState.CANCELLED: frozenset(),
}
"""Allowed moves. ``starting → completing`` is the claim of an export: nothing is left to train. ``stopping → succeeded`` is
a run that had done everything before the word to pause reached it."""
