"""Text that a run's model generated from its prompts."""

from typing import Annotated

from fastapi import Query

from trainwright.contracts.api.envelopes import Page
from trainwright.contracts.api.runs import RunSamples
from trainwright_backend.api.dependencies import ReadSession
from trainwright_backend.api.paging import MAX_ITEMS, refused_cursor
from trainwright_backend.auth.policies import Viewer
from trainwright_backend.core.ids import MAX_NUMBER
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.core.resource_router import ResourceRouter
from trainwright_backend.metrics.samples import list_samples
from trainwright_backend.runs.service import get_run

router = ResourceRouter(prefix="/teams/{team}/runs/{run}/samples", tags=["runs"], route_class=GuardedRoute)


@router.get("")
def list_run_samples(
    access: Viewer,
    session: ReadSession,
    run: str,
    limit: Annotated[int, Query(ge=1, le=MAX_ITEMS)] = 50,
    cursor: Annotated[str | None, Query(max_length=200)] = None,
) -> Page[RunSamples]:
    """The samples of the run's validations, newest first."""
    before = None if cursor is None else _step(cursor)
    found = list_samples(session, get_run(session, access.team_id, run), before, limit + 1)
    items = found[:limit]
    return Page(items=items, next_cursor=str(items[-1].step) if len(found) > limit else None)


def _step(cursor: str) -> int:
    if not cursor.isdecimal() or int(cursor) > MAX_NUMBER:
        raise refused_cursor(cursor)
    return int(cursor)
