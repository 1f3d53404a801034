"""Rules and queries of runs for people: show, cancel, events.

States change elsewhere: in `transitions`, through the agents' messages and the control loop in `nodes`.
"""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import bindparam, select

from trainwright.contracts.api.queue import Priority
from trainwright.contracts.api.runs import ForkedFrom
from trainwright.contracts.api.runs import Run as ShownRun
from trainwright.contracts.api.runs import RunEvent as ShownEvent
from trainwright.contracts.api.runs import RunSummary as ShownSummary
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.run_state import FINAL, WITHOUT_TRAINER, RunState, Verdict
from trainwright.planner.flops import training_flops
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.errors import Conflict
from trainwright_backend.core.ids import parse_id, public_id, unknown
from trainwright_backend.datasets.preparations import PREPARATION_USERS
from trainwright_backend.runs.attempts import newest_layouts, nodes_by_fence, seconds_of_attempts
from trainwright_backend.runs.state_text import state_text
from trainwright_backend.runs.state_words import run_is_final, state_in_words
from trainwright_backend.runs.stored_spec import stored_spec
from trainwright_backend.runs.tables import Placement, Run, RunEvent, RunSummary, RunTag
from trainwright_backend.runs.transitions import lock_run, move, stop

_OPEN_PLACEMENTS = (
    select(Placement)
    .where(Placement.run_id.in_(bindparam("run_ids", expanding=True)), Placement.closed.is_(None))
    .order_by(Placement.node_rank)
)
_TAGS = (
    select(RunTag.run_id, RunTag.tag)
    .where(RunTag.run_id.in_(bindparam("run_ids", expanding=True)))
    .order_by(RunTag.tag)
)
"""This and `_OPEN_PLACEMENTS` are built once (see `core.db`)."""

SUSPECT_SECONDS = 30.0
"""Longer silence of a run's node is shown (at the standard lease)."""
EVENTS_AT_ONCE = 1_000


def get_run(session: Read, team_id: UUID, run_id: str) -> Run:
    """The team's run.

    Raises:
        NotFound: there is none with this id in the team.
    """
    run = session.get(Run, parse_id("run", run_id))
    if run is None or run.team_id != team_id:
        raise unknown("run", run_id)
    return run


def locked_run(session: Write, team_id: UUID, run_id: str) -> Run:
    """The team's run, locked against other writers.

    Raises:
        NotFound: see `get_run`.
    """
    run = lock_run(session, parse_id("run", run_id))
    if run is None or run.team_id != team_id:
        raise unknown("run", run_id)
    return run


def cancel_run(session: Write, team_id: UUID, run_id: str, by: str) -> Run:
    """Ask the run's nodes to stop it; a run without a node is cancelled immediately. Repeating is harmless.

    Raises:
        Conflict: the run has ended in another way.
    """
    run = locked_run(session, team_id, run_id)
    if run.state is RunState.CANCELLED:
        return run
    if run.state in FINAL:
        raise run_is_final(run)
    message = f"Cancelled by {by}"
    if run.state in WITHOUT_TRAINER:
        return move(session, run, RunState.CANCELLED, message, reason=EndCode.CANCELLED)
    return stop(session, run, Verdict.CANCEL, EndCode.CANCELLED, message)


def cancel_runs_of(session: Write, team_id: UUID, user_id: UUID, by: str) -> None:
    """Cancel the unfinished runs that a person submitted in a team."""
    live = (Run.team_id == team_id, Run.created_by == user_id, Run.state.not_in(FINAL))
    for run_id in session.scalars(select(Run.id).where(*live).order_by(Run.id)).all():
        cancel_run(session, team_id, public_id("run", run_id), by)


def check_final(run: Run) -> None:
    """Refuse to delete a run that has not ended.

    Raises:
        Conflict: the run has not ended.
    """
    if run.state is RunState.STOPPING:
        detail = "This run is still stopping: its node has not released it yet. Wait until it has ended, then delete it."
        raise Conflict("run_not_final", detail)
    if run.state not in FINAL:
        raise Conflict(
            "run_not_final", f"This run {state_in_words(run.state)}: cancel it first, then delete it."
        )


def run_folder(run: Run) -> str:
    """The run's folder in the object store."""
    return f"{run.team_id}/runs/{run.id}"


def list_events(session: Read, run: Run, after: int, limit: int) -> list[ShownEvent]:
    """The run's events whose number is greater than ``after``, oldest first, at most ``limit``."""
    events = (
        select(RunEvent)
        .where(RunEvent.run_id == run.id, RunEvent.sequence > after)
        .order_by(RunEvent.sequence)
        .limit(limit)
    )
    return [
        ShownEvent(
            sequence=event.sequence,
            time=event.time,
            type=event.type,
            state=event.state,
            attempt=event.attempt or None,
            step=event.step,
            message=event.message,
        )
        for event in session.scalars(events)
    ]


def live_users_of_preparations(session: Read, team_id: UUID, preparation_ids: Sequence[UUID]) -> list[str]:
    """Names of the team's runs that have not ended and use one of the preparations, oldest first."""
    users = select(Run.name).where(Run.team_id == team_id, Run.preparation_id.in_(preparation_ids))
    return list(session.scalars(users.where(Run.state.not_in(FINAL)).order_by(Run.id)))


PREPARATION_USERS.append(live_users_of_preparations)


def show_run(session: Read, run: Run, scale: float) -> ShownRun:
    """The run as the API returns it."""
    return show_runs(session, [(run, session.get(RunSummary, run.id))], scale)[0]


def show_runs(session: Read, runs: Sequence[tuple[Run, RunSummary | None]], scale: float) -> list[ShownRun]:
    """Runs as the API returns them, with one query of each kind for all. ``scale``: see `Timers.scale`."""
    placements: dict[UUID, list[Placement]] = {run.id: [] for run, _ in runs if run.state not in FINAL}
    if placements:
        for placement in session.scalars(_OPEN_PLACEMENTS, {"run_ids": list(placements)}):
            placements[placement.run_id].append(placement)
    tags = tags_of(session, [run.id for run, _ in runs])
    parents = _parents_of(session, [run for run, _ in runs])
    claimed = [run.id for run, _ in runs if run.fence]
    layouts = newest_layouts(session, claimed) if claimed else {}
    nodes = nodes_by_fence(session, claimed) if claimed else {}
    seconds = seconds_of_attempts(session, claimed) if claimed else {}
    shown = [_shown(run, summary, placements.get(run.id, []), scale) for run, summary in runs]
    return [
        one.model_copy(
            update={
                "tags": tags.get(run.id, []),
                "forked_from": _forked_from(run, parents),
                "attempt_layout": layouts.get(run.id),
                "attempt_nodes": nodes.get((run.id, run.fence), []),
                "run_seconds": seconds.get(run.id, 0.0),
            }
        )
        for one, (run, _) in zip(shown, runs, strict=True)
    ]


def tags_of(session: Read, run_ids: Sequence[UUID]) -> dict[UUID, list[str]]:
    """The tags of each run that has any."""
    found: dict[UUID, list[str]] = {}
    for run_id, tag in session.execute(_TAGS, {"run_ids": run_ids}):
        found.setdefault(run_id, []).append(tag)
    return found


def _parents_of(session: Read, runs: Sequence[Run]) -> set[UUID]:
    """The runs' parents that still exist."""
    ids = {run.forked_from_id for run in runs if run.forked_from_id is not None}
    return set(session.scalars(select(Run.id).where(Run.id.in_(ids)))) if ids else set()


def _forked_from(run: Run, parents: set[UUID]) -> ForkedFrom | None:
    if run.forked_from_name is None or run.forked_step is None:
        return None
    there = run.forked_from_id if run.forked_from_id in parents else None
    return ForkedFrom(
        run=public_id("run", there) if there else None, name=run.forked_from_name, step=run.forked_step
    )


def show_summary(row: RunSummary | None) -> ShownSummary:
    """The latest metrics of a run."""
    if row is None:
        return ShownSummary()
    return ShownSummary(
        step=row.step,
        attempt=row.attempt,
        values=row.values,
        spark=[loss for _, loss in row.spark],
        peak_name=row.peak_name,
        bf16_peak_name=row.bf16_peak_name,
        mfu_unknown=_why_no_mfu(row),
    )


def _why_no_mfu(row: RunSummary) -> str | None:
    if row.peak_beaten:
        return f"peak not known: the run was faster than the {row.peak_name or 'peak'}"
    return "peak not known" if row.step > 0 and row.peak_name is None and row.bf16_peak_name is None else None


def _shown(run: Run, summary_row: RunSummary | None, placements: list[Placement], scale: float) -> ShownRun:
    spec = stored_spec(run)
    summary = show_summary(summary_row)
    return ShownRun.model_construct(  # without validating the spec again, which takes half the time of a page
        id=public_id("run", run.id),
        name=run.name,
        state=run.state,
        verdict=run.verdict,
        sentence=state_text(run, spec, summary),
        reason=run.reason,
        suspect_seconds=_silence(placements, scale),
        spec=spec,
        flops=training_flops(spec, run.forked_step or 0),
        attempt=run.attempt,
        summary=summary,
        created=run.created,
        created_by=run.created_by_name,
        started=run.started,
        ended=run.ended,
        paused=run.paused,
        retry_at=run.retry_at,
        nodes=[placement.node_name for placement in placements],
        tags=[],
        notes=run.notes,
        forked_from=None,
        priority=list(Priority)[run.priority],
        attempt_layout=None,
        attempt_nodes=[],
        run_seconds=0.0,
    )


def _silence(placements: list[Placement], scale: float) -> float | None:
    """Seconds since the last message of the run's most silent node, if they are worth showing."""
    silent = [
        (now() - placement.renewed).total_seconds()
        for placement in placements
        if placement.renewed is not None
    ]
    longest = max(silent, default=0.0)
    return longest if longest > SUSPECT_SECONDS * scale else None
