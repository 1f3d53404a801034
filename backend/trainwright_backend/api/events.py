"""Events of a run: a list and a live stream."""

from typing import Annotated

from fastapi import Query, Request, Response

from trainwright.contracts.api.envelopes import Page
from trainwright.contracts.api.runs import RunEvent
from trainwright_backend.api.dependencies import CurrentDatabase, CurrentTopics, LastEventId, ReadSession
from trainwright_backend.api.paging import MAX_ITEMS, Paged, first_page, refused_cursor
from trainwright_backend.auth.policies import Viewer, still_in_team
from trainwright_backend.core.ids import MAX_INTEGER
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.core.resource_router import ResourceRouter
from trainwright_backend.core.sse import EventStream, stream_events
from trainwright_backend.runs import service
from trainwright_backend.runs.event_stream import EventStreamReader
from trainwright_backend.runs.notify import run_topic

router = ResourceRouter(prefix="/teams/{team}/runs/{run}/events", tags=["runs"], route_class=GuardedRoute)


@router.get("", response_model=Page[RunEvent])
def list_run_events(
    access: Viewer,
    session: ReadSession,
    run: str,
    asked: Paged,
    after: Annotated[int, Query(ge=0, le=MAX_INTEGER)] = 0,
) -> Page[RunEvent] | Response:
    """The run's events after number `after`, oldest first: at most a thousand at once."""
    if asked.cursor is not None:
        after = _number(asked.cursor)
    limit = service.EVENTS_AT_ONCE if asked.is_legacy else (asked.limit or MAX_ITEMS) + 1
    found = service.list_events(session, service.get_run(session, access.team_id, run), after, limit)
    return first_page(found, asked, lambda event: str(event.sequence))


def _number(cursor: str) -> int:
    if not cursor.isdecimal() or int(cursor) > MAX_INTEGER:
        raise refused_cursor(cursor)
    return int(cursor)


@router.get("/stream", response_class=EventStream)
def stream_run_events(
    access: Viewer,
    request: Request,
    database: CurrentDatabase,
    topics: CurrentTopics,
    run: str,
    last_event_id: LastEventId = None,
) -> EventStream:
    """The run's events as they happen; the stream ends after the last one."""
    with database.read() as session:
        run_id = service.get_run(session, access.team_id, run).id
    reader = EventStreamReader(database, run_id, last_event_id)
    permitted = still_in_team(request, access)
    return stream_events(topics, run_topic(run_id), reader.read, permitted, access.user_id)
