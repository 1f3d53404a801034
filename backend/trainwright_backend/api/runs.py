"""Runs: submit, list, show, edit, stop, resume, copy, delete."""

from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import Body, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from trainwright.contracts.api.actions import (
    MAX_TAGS,
    BulkAction,
    BulkResult,
    FreedSpace,
    NewClone,
    NewFork,
    RunEdit,
    RunLayout,
    RunMove,
    Tag,
)
from trainwright.contracts.api.envelopes import Page
from trainwright.contracts.api.plans import RunPlan, WhatIf
from trainwright.contracts.api.queue import Priority
from trainwright.contracts.api.runs import (
    ExportFormat,
    Run,
    RunGroup,
    RunGrouping,
    RunSort,
    SortOrder,
    SpecCheck,
)
from trainwright.contracts.api.usage import RunEstimate
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.run_state import RunState
from trainwright_backend.api.dependencies import (
    CurrentDatabase,
    CurrentSettings,
    DeletedNames,
    DryRun,
    Flag,
    IdempotencyKey,
    ReadSession,
    WriteSession,
)
from trainwright_backend.auth import audit
from trainwright_backend.auth.policies import Access, Editor, Viewer
from trainwright_backend.checkpoints import bulk_run_actions, deletion, fork, layout_change
from trainwright_backend.checkpoints.resume import resume_run_if_space
from trainwright_backend.core.author import Author
from trainwright_backend.core.ids import MAX_INTEGER
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.core.resource_router import ResourceRouter
from trainwright_backend.core.thread_context import without_thread
from trainwright_backend.runs import (
    clone,
    edits,
    groups,
    lists,
    pause,
    service,
    submission,
    table_export,
    what_if,
)
from trainwright_backend.scheduling import moving, run_estimate
from trainwright_backend.teams.limits import check_priority

router = ResourceRouter(prefix="/teams/{team}/runs", tags=["runs"], route_class=GuardedRoute)

_MEDIA_TYPES = {
    ExportFormat.CSV: "text/csv; charset=utf-8",
    ExportFormat.PARQUET: "application/vnd.apache.parquet",
}

BeginStep = Annotated[
    int,
    Query(
        ge=0,
        le=MAX_INTEGER,
        description="Step of the checkpoint that a fork continues from; 0 for a new run.",
    ),
]


ForkedCheckpoint = Annotated[
    str | None,
    Query(max_length=80, description="The checkpoint that a fork with this spec would continue from."),
]


@dataclass(frozen=True)
class RunFilters:
    """The filters of a list of runs."""

    state: Annotated[list[RunState] | None, Query(max_length=len(RunState))] = None
    q: Annotated[str, Query(max_length=200, description="Words that the name must contain.")] = ""
    tag: Annotated[
        list[Tag] | None, Query(max_length=MAX_TAGS, description="Tags; a run must have all of them.")
    ] = None
    untagged: Annotated[Flag, Query(description="Only runs without a tag.")] = False
    dataset: Annotated[str | None, Query(max_length=80, description="Id of the runs' dataset.")] = None
    model: Annotated[
        str | None, Query(max_length=40, description="Layers and width of the runs' model: `12x768`.")
    ] = None
    by: Annotated[str | None, Query(max_length=80, description="Who started the runs: a name, or `me`.")] = (
        None
    )

    def query(self, access: Access) -> lists.RunQuery:
        return lists.RunQuery(
            states=tuple(self.state or ()),
            words=self.q,
            created_by=access.user_id if self.by == "me" else self.by,
            tags=tuple(self.tag or ()),
            is_untagged=self.untagged,
            dataset=self.dataset,
            model=self.model,
        )


Filters = Annotated[RunFilters, Depends(without_thread(RunFilters))]


@router.get("")
def list_runs(
    access: Viewer,
    session: ReadSession,
    settings: CurrentSettings,
    filters: Filters,
    ids: Annotated[
        list[str] | None, Query(max_length=200, description="Only these runs; unknown ids are ignored.")
    ] = None,
    sort: RunSort = RunSort.CREATED,
    order: SortOrder = SortOrder.DESCENDING,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(max_length=2_000)] = None,
) -> Page[Run]:
    """The team's runs, newest first unless sorted otherwise; runs without the value sorted by come last."""
    asked = replace(filters.query(access), ids=tuple(ids or ()), sort=sort, order=order)
    return lists.list_runs(session, access.team_id, asked, limit, cursor, settings.timers.scale)


@router.get("/groups")
def list_groups(access: Viewer, session: ReadSession, group: RunGrouping, filters: Filters) -> Page[RunGroup]:
    """The groups of the team's runs that match, the one with the newest run first; at most 500."""
    found = groups.list_groups(session, access.team_id, filters.query(access), group)
    return Page[RunGroup](items=found, next_cursor=None)


@router.get("/export", response_class=StreamingResponse)
def export_runs(
    access: Viewer,
    database: CurrentDatabase,
    filters: Filters,
    format: ExportFormat = ExportFormat.PARQUET,
    sort: RunSort = RunSort.CREATED,
    order: SortOrder = SortOrder.DESCENDING,
) -> StreamingResponse:
    """All of the team's runs that match as one file, a row per run; at most 100,000 runs."""
    asked = replace(filters.query(access), sort=sort, order=order)
    with database.read() as session:
        file = table_export.export_runs(session, access.team_id, asked, format)
    return StreamingResponse(
        table_export.blocks_of(file),
        media_type=_MEDIA_TYPES[format],
        headers={"Content-Disposition": f'attachment; filename="runs.{format}"'},
    )


@router.post("", status_code=201)
def submit_run(
    access: Editor,
    session: WriteSession,
    settings: CurrentSettings,
    response: Response,
    spec: RunSpec,
    priority: Annotated[
        Priority, Query(description="Those of a higher priority start first.")
    ] = Priority.NORMAL,
    idempotency_key: IdempotencyKey = None,
) -> Run:
    """Queue a run. With an Idempotency-Key, repeating the request returns the same run."""
    author = Author(access.user_id, access.user_name)
    check_priority(session, access.team_id, access.user_id, access.role, priority)
    submitted = submission.submit_run(session, access.team_id, author, spec, idempotency_key, priority)
    response.status_code = 200 if submitted.replayed else 201
    return service.show_run(session, submitted.run, settings.timers.scale)


@router.post("/validate")
def validate_run(
    access: Viewer, session: ReadSession, spec: Annotated[Any, Body()], checkpoint: ForkedCheckpoint = None
) -> SpecCheck:
    """Check a spec without submitting it."""
    if checkpoint is not None:
        return fork.validate_fork(session, access.team_id, spec, checkpoint)
    return submission.validate_run(session, access.team_id, spec)


@router.post("/plan")
def plan_run(access: Viewer, session: ReadSession, spec: RunSpec) -> RunPlan:
    """The plan of a run's layout: position of each rank, stages, memory, and the pipeline's schedule."""
    return submission.plan_run(session, access.team_id, spec)


@router.post("/estimate")
def estimate_run(
    access: Viewer, session: ReadSession, spec: RunSpec, begin_step: BeginStep = 0
) -> RunEstimate:
    """Estimate a run: FLOPs, memory, bytes, and the time if an equal workload was measured before."""
    return run_estimate.estimate_run(session, access.team_id, spec, begin_step)


@router.post("/what-if")
def plan_elsewhere(
    access: Viewer,
    session: ReadSession,
    spec: RunSpec,
    gpu: Annotated[str, Query(max_length=80, description="Name of a GPU from `GET /spec`.")],
    begin_step: BeginStep = 0,
) -> WhatIf:
    """Plan a run on `resources.nodes` × `resources.slots_per_node` GPUs of any known kind, joined or not: its memory, whether
    it fits, and an estimated time."""
    return what_if.estimate_on_gpu(session, access.team_id, spec, gpu, begin_step)


@router.post("/bulk")
def act_on_runs(
    access: Editor, database: CurrentDatabase, body: BulkAction, deleted: DeletedNames, request: Request
) -> list[BulkResult]:
    """Apply one action to many runs. Each succeeds or is refused separately."""
    done = bulk_run_actions.act(database, access.team_id, body, access.user_name)
    deleted.extend(done.deleted_names)
    if not any(result.done for result in done.results):
        audit.mark_as_unchanged(request)
    return done.results


@router.get("/{run}")
def show_run(access: Viewer, session: ReadSession, settings: CurrentSettings, run: str) -> Run:
    """One run."""
    return service.show_run(session, service.get_run(session, access.team_id, run), settings.timers.scale)


@router.patch("/{run}")
def edit_run(
    access: Editor, session: WriteSession, settings: CurrentSettings, run: str, body: RunEdit
) -> Run:
    """Change a run's name, tags, notes or priority; omitted fields do not change."""
    if body.priority is not None:
        check_priority(session, access.team_id, access.user_id, access.role, body.priority)
    edited = edits.edit_run(session, access.team_id, run, body, access.user_name)
    return service.show_run(session, edited, settings.timers.scale)


@router.delete("/{run}")
def delete_run(access: Editor, session: WriteSession, run: str, dry_run: DryRun) -> FreedSpace:
    """Delete an ended run with everything it produced, or only report what that would free."""
    return deletion.delete_run(session, access.team_id, run, dry_run=dry_run)


@router.post("/{run}/cancel", status_code=202)
def cancel_run(access: Editor, session: WriteSession, settings: CurrentSettings, run: str) -> Run:
    """Cancel a run. It is `stopping` until its node has released it. A cancelled run does not change."""
    cancelled = service.cancel_run(session, access.team_id, run, access.user_name)
    return service.show_run(session, cancelled, settings.timers.scale)


@router.post("/{run}/pause", status_code=202)
def pause_run(access: Editor, session: WriteSession, settings: CurrentSettings, run: str) -> Run:
    """Save a run's state and free its slots. It is `stopping` until its node has released it."""
    paused = pause.pause_run(session, access.team_id, run, access.user_name)
    return service.show_run(session, paused, settings.timers.scale)


@router.post("/{run}/resume", status_code=202)
def resume_run(access: Editor, session: WriteSession, settings: CurrentSettings, run: str) -> Run:
    """Queue a paused run again. If it needs more slots than the team's limit, the request is refused and it stays paused."""
    resumed = resume_run_if_space(session, access.team_id, run, access.user_name)
    return service.show_run(session, resumed, settings.timers.scale)


@router.post("/{run}/move", status_code=202)
def move_run(
    access: Editor, session: WriteSession, settings: CurrentSettings, run: str, body: RunMove
) -> Run:
    """Save a run's state and place the run again without one of its nodes. It keeps its place in the queue."""
    moved = moving.move_run(session, access.team_id, run, body.node, access.user_name, settings.timers)
    return service.show_run(session, moved, settings.timers.scale)


@router.put("/{run}/layout")
def change_layout(
    access: Editor, session: WriteSession, settings: CurrentSettings, run: str, new: RunLayout
) -> Run:
    """Change the parallel layout of the run's next attempt. A live attempt is not affected."""
    changed = layout_change.change_remaining_layout(session, access.team_id, run, new, access.user_name)
    return service.show_run(session, changed, settings.timers.scale)


@router.post("/{run}/clone", status_code=201)
def clone_run(
    access: Editor,
    session: WriteSession,
    settings: CurrentSettings,
    response: Response,
    run: str,
    body: NewClone,
    idempotency_key: IdempotencyKey = None,
) -> Run:
    """Start a run with the configuration of another, except for the fields in `changes`."""
    author = Author(access.user_id, access.user_name)
    made = clone.clone_run(session, access.team_id, author, run, body, idempotency_key)
    response.status_code = 200 if made.replayed else 201
    return service.show_run(session, made.run, settings.timers.scale)


@router.post("/{run}/fork", status_code=201)
def fork_run(
    access: Editor,
    session: WriteSession,
    settings: CurrentSettings,
    response: Response,
    run: str,
    body: NewFork,
    idempotency_key: IdempotencyKey = None,
) -> Run:
    """Start a run that continues from a checkpoint of another, except for the fields in `changes`."""
    author = Author(access.user_id, access.user_name)
    made = fork.fork_run(session, access.team_id, author, run, body, idempotency_key)
    response.status_code = 200 if made.replayed else 201
    return service.show_run(session, made.run, settings.timers.scale)
