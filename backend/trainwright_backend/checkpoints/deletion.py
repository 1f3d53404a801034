"""Deleting checkpoints and runs for people, or reporting how much that would free.

Deleting one checkpoint or one run is deliberate, so links that were given out do not prevent it. They do
prevent retention from deleting, since nobody reviews its choices one by one. Rows are deleted immediately; the
bytes stay until those links have expired. Retention uses a transaction for each run, so that no agent waits for
it, and decides again under the run's lock.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Select, delete, select
from sqlalchemy.orm import defer

from trainwright.contracts.api.actions import (
    FreedSpace,
    Retention,
    RetentionEntry,
    RetentionReason,
    RetentionResult,
)
from trainwright.contracts.run_state import FINAL
from trainwright_backend.checkpoints.retention import (
    MIN_KEPT,
    RetentionContext,
    Rule,
    forks_that_need,
    keep_reasons,
)
from trainwright_backend.checkpoints.service import get_checkpoint, remove, show_checkpoint
from trainwright_backend.checkpoints.tables import Checkpoint
from trainwright_backend.core.db import Database, Read, Write, now
from trainwright_backend.core.deletion_queue import latest_link_expiry, queue_deletion
from trainwright_backend.core.errors import Conflict
from trainwright_backend.runs.service import check_final, get_run, locked_run, run_folder
from trainwright_backend.runs.tables import Run
from trainwright_backend.runs.transitions import lock_run

MAX_LISTED = 2_000


class _Judged(NamedTuple):
    run: Run
    checkpoint: Checkpoint
    kept: RetentionReason | None


def delete_run(session: Write, team_id: UUID, run_id: str, *, dry_run: bool) -> FreedSpace:
    """Delete an ended run with its metrics, logs and checkpoints.

    Raises:
        Conflict: ``run_not_final``; ``checkpoint_pinned``; ``checkpoint_forked``, naming the fork.
    """
    run = locked_run(session, team_id, run_id)
    check_final(run)
    checkpoints = _held(session, run)
    forks = forks_that_need(session, select(Checkpoint.id).where(Checkpoint.run_id == run.id))
    for checkpoint in checkpoints:
        _refuse_if_wanted(checkpoint, forks)
    if not dry_run:
        links = (_last_link(checkpoints), latest_link_expiry(session, run_folder(run)))
        queue_deletion(
            session,
            run_folder(run),
            links_until=max((link for link in links if link is not None), default=None),
        )
        session.deleted_names = (run.name,)
        session.execute(delete(Run).where(Run.id == run.id))
    return _freed(checkpoints, dry_run)


def delete_checkpoint(
    session: Write, team_id: UUID, run_id: str, checkpoint_id: str, *, dry_run: bool
) -> FreedSpace:
    """Delete one checkpoint or export.

    Raises:
        Conflict: ``checkpoint_pinned``; ``checkpoint_forked``; ``checkpoint_needed``: the run may resume from it.
    """
    run = locked_run(session, team_id, run_id)
    checkpoints = _held(session, run)
    checkpoint = get_checkpoint(session, run, checkpoint_id)
    forks = forks_that_need(session, select(Checkpoint.id).where(Checkpoint.run_id == run.id))
    _refuse_if_wanted(checkpoint, forks)
    live = RetentionContext(run.state not in FINAL, forks, now())
    if (
        keep_reasons(checkpoints, Rule(keep_last=0, keep_exports=False), live)[checkpoint.id]
        is RetentionReason.LIVE
    ):
        detail = (
            f"The run has not ended and may have to resume from step {checkpoint.step:,}: its {MIN_KEPT} newest valid "
            "states are kept. Cancel the run first, or wait for newer ones."
        )
        raise Conflict("checkpoint_needed", detail)
    if not dry_run:
        session.deleted_names = (f"step {checkpoint.step:,} of {run.name}",)
        remove(session, checkpoint)
    return _freed([checkpoint], dry_run)


def retain(database: Database, team_id: UUID, request: Retention) -> RetentionResult:
    """Keep what ``request`` keeps and delete the other checkpoints, or only say which.

    Raises:
        NotFound: one of the runs is not the team's.
    """
    rule = Rule.of(request)
    with database.read() as session:
        wanted = None if request.runs is None else [get_run(session, team_id, run).id for run in request.runs]
        judged = _judge_all(session, team_id, wanted, rule)
    if not request.dry_run:
        judged = [
            item
            for run_id, of_run in groupby(judged, key=lambda judgement: judgement.run.id)
            for item in _retain_run(database, run_id, list(of_run), rule)
        ]
    gone = [item.checkpoint for item in judged if item.kept is None]
    shown = [
        RetentionEntry(checkpoint=show_checkpoint(item.checkpoint, item.run), kept=item.kept)
        for item in judged[:MAX_LISTED]
    ]
    return RetentionResult(freed=_freed(gone, request.dry_run), checkpoints=shown)


def _judge_all(session: Read, team_id: UUID, run_ids: Sequence[UUID] | None, rule: Rule) -> list[_Judged]:
    """All committed checkpoints, newest run first, newest first within it."""
    mine = Run.team_id == team_id if run_ids is None else Run.id.in_(run_ids)
    rows = session.execute(
        select(Checkpoint, Run)
        .join(Run, Run.id == Checkpoint.run_id)
        .where(mine, Checkpoint.committed.is_not(None))
        .order_by(Run.id.desc(), Checkpoint.step.desc(), Checkpoint.id.desc())
        .options(defer(Checkpoint.files), defer(Run.spec))
    ).all()
    ids: Select[UUID] = select(Checkpoint.id).join(Run, Run.id == Checkpoint.run_id).where(mine)
    forks = forks_that_need(session, ids)
    at = now()
    return [
        item
        for _, of_run in groupby(rows, key=lambda row: row.Run.id)
        for item in _judge([(row.Run, row.Checkpoint) for row in of_run], rule, forks, at)
    ]


def _judge(
    rows: Sequence[tuple[Run, Checkpoint]], rule: Rule, forks: dict[UUID, str], at: datetime
) -> list[_Judged]:
    run = rows[0][0]
    about = RetentionContext(run.state not in FINAL, forks, at)
    kept = keep_reasons([checkpoint for _, checkpoint in rows], rule, about)
    return [_Judged(run, checkpoint, kept[checkpoint.id]) for _, checkpoint in rows]


def _retain_run(database: Database, run_id: UUID, seen: list[_Judged], rule: Rule) -> list[_Judged]:
    """Delete the run's checkpoints that are not kept, and return the decisions; ``seen`` if there is nothing to
    delete."""
    if all(item.kept is not None for item in seen):
        return seen
    with database.write() as session:
        run = lock_run(session, run_id)
        checkpoints = [] if run is None else _held(session, run)
        if run is None or not checkpoints:
            return []
        forks = forks_that_need(session, select(Checkpoint.id).where(Checkpoint.run_id == run.id))
        judged = _judge([(run, checkpoint) for checkpoint in checkpoints], rule, forks, now())
        for item in judged:
            if item.kept is None:
                remove(session, item.checkpoint)
        session.expunge_all()
    return judged


def _held(session: Write, run: Run) -> list[Checkpoint]:
    """The committed checkpoints of a locked run, newest first, locked so that none is pinned or downloaded
    in the meantime."""
    rows = (
        select(Checkpoint)
        .where(Checkpoint.run_id == run.id, Checkpoint.committed.is_not(None))
        .order_by(Checkpoint.step.desc(), Checkpoint.id.desc())
    )
    return list(session.scalars(rows.with_for_update()).all())


def _refuse_if_wanted(checkpoint: Checkpoint, forks: dict[UUID, str]) -> None:
    if checkpoint.pinned:
        detail = f"The {checkpoint.kind} of step {checkpoint.step:,} is pinned. Unpin it first."
        raise Conflict("checkpoint_pinned", detail)
    if checkpoint.id in forks:
        fork = forks[checkpoint.id]
        detail = (
            f"The run {fork} was forked from step {checkpoint.step:,} and may still have to start there. Wait until it "
            f"has saved {MIN_KEPT} checkpoints itself, or cancel it."
        )
        raise Conflict("checkpoint_forked", detail, extensions={"fork": fork})


def _last_link(checkpoints: Iterable[Checkpoint]) -> datetime | None:
    return max(
        (checkpoint.links_until for checkpoint in checkpoints if checkpoint.links_until is not None),
        default=None,
    )


def _freed(checkpoints: Sequence[Checkpoint], dry_run: bool) -> FreedSpace:
    return FreedSpace(
        dry_run=dry_run,
        bytes=sum(checkpoint.bytes for checkpoint in checkpoints),
        checkpoints=len(checkpoints),
    )
