"""The queue of a team: its order, and changing it."""

from typing import Annotated

from fastapi import Query

from trainwright.contracts.api.envelopes import Page
from trainwright.contracts.api.queue import QueuedRun, QueueOrder
from trainwright_backend.api.dependencies import CurrentSettings, ReadSession, WriteSession
from trainwright_backend.api.paging import refused_cursor
from trainwright_backend.auth.policies import Editor, Viewer
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.core.resource_router import ResourceRouter
from trainwright_backend.runs import queue
from trainwright_backend.scheduling.forecast import forecast_starts

router = ResourceRouter(prefix="/teams/{team}/queue", tags=["queue"], route_class=GuardedRoute)


@router.get("")
def list_queue(
    access: Viewer,
    session: ReadSession,
    settings: CurrentSettings,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 200,
    cursor: Annotated[str | None, Query(max_length=200)] = None,
) -> Page[QueuedRun]:
    """The team's waiting runs, by device and then in the order in which they start."""
    starts = forecast_starts(session, access.team_id, settings.timers, settings.min_run_minutes)
    found = queue.list_queue(session, access.team_id, access.user_id, starts)
    if cursor is not None:
        ids = [item.id for item in found]
        if cursor not in ids:
            raise refused_cursor(cursor)
        found = found[ids.index(cursor) + 1 :]
    shown = found[:limit]
    return Page[QueuedRun](items=shown, next_cursor=shown[-1].id if len(found) > limit else None)


@router.put("/order")
def reorder(order: QueueOrder, access: Editor, session: WriteSession) -> QueueOrder:
    """Let waiting runs of one priority start in this order. They exchange their places among themselves, so other runs
    keep theirs. Owners can reorder everybody's runs, editors their own."""
    queue.reorder(session, access.team_id, access.user_id, access.role, order.runs, access.user_name)
    return order
