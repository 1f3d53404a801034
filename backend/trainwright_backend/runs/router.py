"""HTTP of runs for people: submit, look, cancel, follow."""

import re
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Body, Header, Path, Query, Request, Response
from pydantic import ValidationError

from trainwright.contracts.api.envelopes import Page
from trainwright.contracts.api.logs import LogFile, LogLines, LogMatches, LogText
from trainwright.contracts.api.plans import RunPlan
from trainwright.contracts.api.runs import Run as ShownRun
from trainwright.contracts.api.runs import RunEvent, RunSort, SortOrder, Verdicts
from trainwright.contracts.api.verbs import MOST_TAGS, Tag
from trainwright.contracts.base import problems
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.run_state import FINAL, RunState
from trainwright_backend.auth.policies import Editor, Viewer, still_in_team
from trainwright_backend.core.db import Read, ReadSession, WriteSession
from trainwright_backend.core.errors import Invalid
from trainwright_backend.core.ids import LARGEST_INTEGER, LARGEST_NUMBER
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.core.stream import EventStream, News, ServerEvent, follow
from trainwright_backend.runs import files, lists, loglines, pause_router, service, submission, verbs_router
from trainwright_backend.runs.tables import Run
from trainwright_backend.runs.wake import run_topic

router = APIRouter(prefix="/teams/{team}/runs", tags=["runs"], route_class=GuardedRoute)

Limit = Annotated[int, Query(ge=1, le=200)]
LastEventId = Annotated[str | None, Header()]
Attempt = Annotated[int, Path(ge=0, le=LARGEST_INTEGER)]
LOG_BYTES = 256 * 1024
_NUMBER = re.compile(r"[0-9]{1,19}")


@router.post("", status_code=201)
def submit_run(
    access: Editor,
    session: WriteSession,
    request: Request,
    response: Response,
    spec: RunSpec,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> ShownRun:
    """Start a run. With an Idempotency-Key the same body gives the same run, however often it is sent."""
    submitter = submission.Submitter(access.user_id, access.user_name)
    submitted = submission.submit_run(session, access.team_id, submitter, spec, idempotency_key)
    response.status_code = 200 if submitted.replayed else 201
    return service.show_run(session, submitted.run, _scale(request))


@router.post("/validate")
def validate_run(access: Viewer, session: ReadSession, spec: Annotated[Any, Body()]) -> Verdicts:
    """Check a spec without submitting it."""
    try:
        parsed = RunSpec.model_validate(spec)
    except ValidationError as error:
        return Verdicts(valid=False, problems=problems(error, RunSpec))
    try:
        return submission.check_spec(session, access.team_id, parsed)
    except Invalid as error:
        return Verdicts(valid=False, problems=error.errors)


@router.post("/plan")
def plan_run(access: Viewer, session: ReadSession, spec: RunSpec) -> RunPlan:
    """What the layout of a run comes to: place of each rank, stages, memory, and the order of the pipeline's work."""
    return submission.plan_run(session, access.team_id, spec)


@router.get("")
def list_runs(
    access: Viewer,
    session: ReadSession,
    request: Request,
    state: Annotated[list[RunState] | None, Query(max_length=len(RunState))] = None,
    q: Annotated[str, Query(max_length=200, description="Words that the name contains.")] = "",
    tag: Annotated[
        list[Tag] | None, Query(max_length=MOST_TAGS, description="Tags that it has, all.")
    ] = None,
    by: Annotated[str | None, Query(max_length=80, description="Who started them: a name, or `me`.")] = None,
    ids: Annotated[
        list[str] | None, Query(max_length=200, description="Of these only; an unknown one is left out.")
    ] = None,
    sort: RunSort = RunSort.CREATED,
    order: SortOrder = SortOrder.DESCENDING,
    limit: Limit = 50,
    cursor: Annotated[str | None, Query(max_length=2_000)] = None,
) -> Page[ShownRun]:
    """The team's runs, newest first unless sorted otherwise; those without the number sorted by come last."""
    person = access.user_id if by == "me" else by
    asked = lists.Asked(tuple(state or ()), q, person, tuple(tag or ()), tuple(ids or ()), sort, order)
    return lists.list_runs(session, access.team_id, asked, limit, cursor, _scale(request))


@router.get("/{run}")
def show_run(access: Viewer, session: ReadSession, request: Request, run: str) -> ShownRun:
    """One run."""
    return service.show_run(session, service.get_run(session, access.team_id, run), _scale(request))


@router.post("/{run}/cancel", status_code=202)
def cancel_run(access: Editor, session: WriteSession, request: Request, run: str) -> ShownRun:
    """Stop a run for good. It is `stopping` until its node has let go of it."""
    cancelled = service.cancel_run(session, access.team_id, run, access.user_name)
    return service.show_run(session, cancelled, _scale(request))


router.include_router(pause_router.router)
router.include_router(verbs_router.router)


@router.get("/{run}/events")
def list_run_events(
    access: Viewer, session: ReadSession, run: str, after: Annotated[int, Query(ge=0, le=LARGEST_INTEGER)] = 0
) -> list[RunEvent]:
    """What happened to the run, oldest first, at most a thousand after number `after`."""
    return service.list_events(session, service.get_run(session, access.team_id, run), after)


@router.get("/{run}/events/stream", response_class=EventStream)
def stream_run_events(
    access: Viewer, request: Request, run: str, last_event_id: LastEventId = None
) -> EventStream:
    """What happens to the run, as it happens; ends after the run's last event."""
    database = request.app.state.database
    with database.read() as session:
        run_id = service.get_run(session, access.team_id, run).id
    seen = (
        min(int(last_event_id), LARGEST_INTEGER) if last_event_id and _NUMBER.fullmatch(last_event_id) else 0
    )

    def read() -> News:
        nonlocal seen
        with database.read() as session:
            found, ended = _events_after(session, run_id, seen)
        seen = found[-1].sequence if found else seen
        events = [ServerEvent(event.model_dump_json(), id=str(event.sequence)) for event in found]
        return News(events, ended, more=len(found) == service.EVENTS_AT_ONCE)

    return follow(request.app.state.topics, run_topic(run_id), read, still_in_team(request, access))


@router.get("/{run}/logs")
def list_logs(access: Viewer, session: ReadSession, run: str) -> list[LogFile]:
    """The logs of all attempts, one file a rank."""
    return files.list_logs(session, service.get_run(session, access.team_id, run))


@router.get("/{run}/logs/{attempt}/{file}")
def read_log(
    access: Viewer,
    session: ReadSession,
    run: str,
    attempt: Attempt,
    file: str,
    offset: Annotated[int, Query(ge=0, le=LARGEST_NUMBER)] = 0,
    limit: Annotated[int, Query(ge=64, le=4 * LOG_BYTES)] = LOG_BYTES,
) -> LogText:
    """A stretch of a log. Go on from `next_offset`."""
    return files.read_log(
        session, service.get_run(session, access.team_id, run), attempt, file, offset, limit
    )


@router.get("/{run}/logs/{attempt}/{file}/lines")
def read_log_lines(
    access: Viewer,
    session: ReadSession,
    run: str,
    attempt: Attempt,
    file: str,
    first: Annotated[int, Query(ge=1, le=LARGEST_NUMBER)] = 1,
    limit: Annotated[int, Query(ge=1, le=5_000)] = 1_000,
) -> LogLines:
    """Lines of a log from number `first` on. A page may end before `limit` where lines are very long."""
    found = service.get_run(session, access.team_id, run)
    return loglines.read_lines(session, found, attempt, file, first, limit)


@router.get("/{run}/logs/{attempt}/{file}/search")
def search_log(
    access: Viewer,
    session: ReadSession,
    run: str,
    attempt: Attempt,
    file: str,
    q: Annotated[str, Query(min_length=1, max_length=200)],
    after_line: Annotated[int, Query(ge=0, le=LARGEST_NUMBER)] = 0,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> LogMatches:
    """Lines of a log that contain `q`, in whatever case. Go on from `searched_to` until `end`."""
    found = service.get_run(session, access.team_id, run)
    return loglines.search_log(session, found, attempt, file, q, after_line, limit)


def _events_after(session: Read, run_id: UUID, seen: int) -> tuple[list[RunEvent], bool]:
    run = session.get(Run, run_id)
    if run is None:
        return [], True
    final = run.state in FINAL  # read before the events, so that the last event cannot slip in between
    found = service.list_events(session, run, seen)
    return found, final and len(found) < service.EVENTS_AT_ONCE


def _scale(request: Request) -> float:
    scale = request.app.state.settings.timers.scale
    assert isinstance(scale, float)
    return scale
