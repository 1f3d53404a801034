"""Pausing a run and resuming it.

A paused run uses no node and no quota. After it is resumed, it waits in the queue and continues from its newest
checkpoint, with its maximum run time counted from zero. A training run saves first: it is `stopping` until its node has
released it, and an error in the meantime does not count as a failure. A run that is exporting can be paused too, and then
only exports when it is resumed. A run that has exported has succeeded and cannot be paused.
"""

from uuid import UUID

from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.run_state import FINAL, WITHOUT_TRAINER, RunState, Verdict
from trainwright_backend.core.db import Write
from trainwright_backend.core.errors import AppError, Conflict
from trainwright_backend.runs.limit_usage import check_hours
from trainwright_backend.runs.service import locked_run
from trainwright_backend.runs.state_words import run_is_final, state_in_words
from trainwright_backend.runs.tables import Run
from trainwright_backend.runs.transitions import move, stop
from trainwright_backend.teams.slot_quota import why_never_fits


def pause_run(session: Write, team_id: UUID, run_id: str, by: str) -> Run:
    """Ask the run's nodes to save and stop it; a run without a node is paused immediately. Repeating is harmless.

    Raises:
        Conflict: ``run_is_final``; ``run_is_stopping``: it is about to be cancelled or failed.
    """
    run = locked_run(session, team_id, run_id)
    if run.state in FINAL:
        raise run_is_final(run)
    if run.state is RunState.PAUSED or run.verdict is Verdict.PAUSE:
        return run
    if run.verdict is not None and run.verdict.strength > Verdict.PAUSE.strength:
        becomes = "cancelled" if run.verdict is Verdict.CANCEL else "failed"
        raise Conflict("run_is_stopping", f"This run is stopping and will be {becomes}: it cannot be paused.")
    message = f"Paused by {by}"
    if run.state in WITHOUT_TRAINER:
        return move(session, run, RunState.PAUSED, message, reason=EndCode.STOPPED)
    return stop(session, run, Verdict.PAUSE, EndCode.STOPPED, message)


def resume_run(session: Write, team_id: UUID, run_id: str, by: str) -> Run:
    """Queue a paused run again; it resumes from its newest checkpoint.

    Raises:
        AppError: 403 ``quota_exceeded``: the team's limit is lower than what the run needs, or its hours are used up; it stays
            paused.
        Conflict: ``run_not_paused``.
    """
    run = locked_run(session, team_id, run_id)
    if run.verdict is Verdict.PAUSE:
        detail = (
            "This run is still saving its state: its node has not released it yet. Wait until it is paused."
        )
        raise Conflict("run_not_paused", detail)
    if run.state is not RunState.PAUSED:
        raise Conflict(
            "run_not_paused", f"This run {state_in_words(run.state)}: only a paused run can be resumed."
        )
    why = why_never_fits(session, team_id, run.device, run.slots)
    if why is not None:
        raise AppError("quota_exceeded", 403, why)
    check_hours(session, run)
    run.avoided_nodes = []
    run.occupied_seconds = 0.0
    session.flush()
    return move(session, run, RunState.QUEUED, f"Resumed by {by}")
