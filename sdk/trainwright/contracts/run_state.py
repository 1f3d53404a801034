"""The states of a run, the verdicts of a stopping run, and the allowed moves.

``queued → leased → starting → running → completing → succeeded``. A run that occupies a node and ends early passes through
``stopping`` with a verdict. A stronger verdict replaces a weaker one.
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
    """What happens to a stopping run: it is retried, moved, paused, failed or cancelled. Weakest first."""

    RETRY = "retry"
    MOVE = "move"
    """It saves, leaves its nodes, and is queued again."""
    PAUSE = "pause"
    FAIL = "fail"
    CANCEL = "cancel"

    @property
    def strength(self) -> int:
        return list(Verdict).index(self)


FINAL = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED})
WITHOUT_TRAINER = frozenset({RunState.QUEUED, RunState.RETRY_WAIT, RunState.PAUSED}) | FINAL
"""States in which the run is not on a node."""
ADVANCING = (RunState.QUEUED, RunState.LEASED, RunState.STARTING, RunState.RUNNING, RunState.COMPLETING)
"""The states of a run without interruptions, in order, before it succeeds."""

SAVING_VERDICTS = frozenset({Verdict.MOVE, Verdict.PAUSE})
"""Verdicts of runs that save before they stop."""

SETTLES_TO = {
    Verdict.RETRY: RunState.RETRY_WAIT,
    Verdict.MOVE: RunState.QUEUED,
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
"""Allowed moves. ``starting → completing`` is a claim that only exports: nothing is left to train. ``stopping →
succeeded`` is a run that finished before the request to pause arrived."""
