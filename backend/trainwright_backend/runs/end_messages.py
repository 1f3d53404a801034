"""Messages to webhooks, and notices to who submitted it, about the end of a run or its pause at a limit."""

from trainwright.contracts.api.notices import NoticeKind
from trainwright.contracts.api.webhooks import WebhookEvent
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.run_state import FINAL, RunState
from trainwright_backend.core.db import Write
from trainwright_backend.core.ids import public_id
from trainwright_backend.runs.state_text import PAUSED_BY_LIMITS, decimal
from trainwright_backend.runs.tables import Run
from trainwright_backend.teams.notices import notify_members
from trainwright_backend.teams.webhooks import queue_message


def queue_end_messages(session: Write, run: Run) -> None:
    """Queue messages if the run has just ended, or was paused at a limit."""
    event = _event(run)
    if event is None:
        return
    run_id = public_id("run", run.id)
    data = {
        "run": run_id,
        "name": run.name,
        "state": run.state.value,
        "reason": None if run.reason is None else run.reason.value,
        "message": run.message,
        "step": run.last_step,
        "created_by": run.created_by_name,
    }
    queue_message(session, run.team_id, event, data)
    if run.created_by is not None:
        kind, page = NoticeKind(event.value), f"runs/{run_id}"
        notify_members(session, kind, run.team_id, _sentence(run), page, only=run.created_by)


def _event(run: Run) -> WebhookEvent | None:
    if run.state is RunState.FAILED:
        return WebhookEvent.RUN_FAILED
    if run.state in FINAL:
        return WebhookEvent.RUN_ENDED
    paused = run.state is RunState.PAUSED and run.reason in PAUSED_BY_LIMITS
    return WebhookEvent.RUN_PAUSED_BY_LIMIT if paused else None


def _sentence(run: Run) -> str:
    if run.state is RunState.SUCCEEDED:
        result = "" if run.loss is None else f": loss {decimal(run.loss)}"
        return f"{run.name} is done{result}."
    if run.reason is EndCode.CANCELLED:  # its message says by whom
        return f"{run.name} was {run.message[:1].lower()}{run.message[1:].rstrip('.')}."
    verb = {RunState.FAILED: "failed", RunState.CANCELLED: "was cancelled"}.get(run.state, "was paused")
    return f"{run.name} {verb}: {run.message}" if run.message else f"{run.name} {verb}."
