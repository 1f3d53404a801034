"""Messages to webhooks about the end of a run, or its pause at a limit."""

from trainwright.contracts.api.webhooks import WebhookEvent
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.run_state import FINAL, RunState
from trainwright_backend.core.db import Write
from trainwright_backend.core.ids import public_id
from trainwright_backend.runs.tables import Run
from trainwright_backend.teams.webhooks import queue_message

LIMITS = (EndCode.MAX_HOURS, EndCode.QUOTA_HOURS, EndCode.QUOTA_STORAGE)


def queue_run_message(session: Write, run: Run) -> None:
    """Queue a message if the run has just ended, or was paused at a limit."""
    event = _event(run)
    if event is None:
        return
    data = {
        "run": public_id("run", run.id),
        "name": run.name,
        "state": run.state.value,
        "reason": None if run.reason is None else run.reason.value,
        "message": run.message,
        "step": run.last_step,
        "created_by": run.created_by_name,
    }
    queue_message(session, run.team_id, event, data)


def _event(run: Run) -> WebhookEvent | None:
    if run.state is RunState.FAILED:
        return WebhookEvent.RUN_FAILED
    if run.state in FINAL:
        return WebhookEvent.RUN_ENDED
    paused = run.state is RunState.PAUSED and run.reason in LIMITS
    return WebhookEvent.RUN_PAUSED_BY_LIMIT if paused else None
