"""Logs of a run: the list of files, their text by bytes and by lines, and a search."""

from typing import Annotated

from fastapi import Path, Query

from trainwright.contracts.api.logs import LogFile, LogLines, LogMatches, LogText
from trainwright_backend.api.dependencies import ReadSession
from trainwright_backend.auth.policies import Viewer
from trainwright_backend.core.ids import MAX_INTEGER, MAX_NUMBER
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.core.resource_router import ResourceRouter
from trainwright_backend.runs import attempt_files, log_lines
from trainwright_backend.runs.service import get_run

router = ResourceRouter(prefix="/teams/{team}/runs/{run}/logs", tags=["runs"], route_class=GuardedRoute)

Attempt = Annotated[int, Path(ge=0, le=MAX_INTEGER)]
LOG_BYTES = 256 * 1024


@router.get("")
def list_logs(access: Viewer, session: ReadSession, run: str) -> list[LogFile]:
    """The logs of all attempts, one file per rank."""
    return attempt_files.list_logs(session, get_run(session, access.team_id, run))


@router.get("/{attempt}/{file}")
def read_log(
    access: Viewer,
    session: ReadSession,
    run: str,
    attempt: Attempt,
    file: str,
    offset: Annotated[int, Query(ge=0, le=MAX_NUMBER)] = 0,
    limit: Annotated[int, Query(ge=64, le=4 * LOG_BYTES)] = LOG_BYTES,
) -> LogText:
    """A range of a log. Continue from `next_offset`."""
    return attempt_files.read_log(
        session, get_run(session, access.team_id, run), attempt, file, offset, limit
    )


@router.get("/{attempt}/{file}/lines")
def read_log_lines(
    access: Viewer,
    session: ReadSession,
    run: str,
    attempt: Attempt,
    file: str,
    first: Annotated[int, Query(ge=1, le=MAX_NUMBER)] = 1,
    limit: Annotated[int, Query(ge=1, le=5_000)] = 1_000,
) -> LogLines:
    """Lines of a log from number `first` on. A page may have fewer than `limit` lines if they are very long."""
    found = get_run(session, access.team_id, run)
    return log_lines.read_lines(session, found, attempt, file, first, limit)


@router.get("/{attempt}/{file}/search")
def search_log(
    access: Viewer,
    session: ReadSession,
    run: str,
    attempt: Attempt,
    file: str,
    q: Annotated[str, Query(min_length=1, max_length=200)],
    after_line: Annotated[int, Query(ge=0, le=MAX_NUMBER)] = 0,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> LogMatches:
    """Lines of a log that contain `q`, ignoring case. Continue from `searched_to` until `end`."""
    found = get_run(session, access.team_id, run)
    return log_lines.search_log(session, found, attempt, file, q, after_line, limit)
