"""Which checkpoints are kept: one rule for pruning at each commit, for a person's retention, and for deleting
one checkpoint.

Always kept are pinned ones, those with valid links, those that a fork still starts from, and the two newest
valid states of a run that has not ended, since it may have to resume from them. This module only reads. Callers
that delete have locked the rows of the run and its checkpoints, so that none is pinned, forked or downloaded
in the meantime.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Select, func, select

from trainwright.contracts.api.actions import Retention, RetentionReason
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright.contracts.run_state import FINAL
from trainwright_backend.checkpoints.tables import Checkpoint
from trainwright_backend.core.db import Read
from trainwright_backend.runs.tables import Run

MIN_KEPT = 2
"""Valid states of a run that has not ended: if one turns out to be damaged, another is left."""


@dataclass(frozen=True)
class Rule:
    """What is kept in addition to what is always kept."""

    keep_last: int
    keep_every_steps: int | None = None
    keep_exports: bool = True

    @classmethod
    def of(cls, request: Retention) -> "Rule":
        return cls(request.keep_last, request.keep_every_steps, keep_exports=not request.delete_exports)


@dataclass(frozen=True)
class RetentionContext:
    """What the retention of a run's checkpoints depends on, in addition to the checkpoints themselves."""

    live: bool
    """The run has not ended."""

    forks: Mapping[UUID, str]
    """Checkpoints that forks start from, each with the name of one fork."""

    at: datetime


def keep_reasons(
    checkpoints: Sequence[Checkpoint], rule: Rule, about: RetentionContext
) -> dict[UUID, RetentionReason | None]:
    """For each of a run's committed checkpoints the reason to keep it; None if it may be deleted."""
    ordered = sorted(checkpoints, key=lambda checkpoint: (checkpoint.step, checkpoint.fence), reverse=True)
    states = [item.id for item in ordered if item.kind is CheckpointKind.STATE and item.valid]
    exports = [item.id for item in ordered if item.kind is CheckpointKind.EXPORT]
    newest, needed = set(states[: rule.keep_last]), set(states[:MIN_KEPT] if about.live else ())
    kept_exports = set(exports if rule.keep_exports else exports[:1])

    def why(one: Checkpoint) -> RetentionReason | None:
        if one.id in newest:
            return RetentionReason.NEWEST
        if one.id in states and rule.keep_every_steps and one.step % rule.keep_every_steps == 0:
            return RetentionReason.MULTIPLE
        if one.id in kept_exports:
            return RetentionReason.EXPORT
        if one.pinned:
            return RetentionReason.PINNED
        if is_downloading(one, about.at):
            return RetentionReason.DOWNLOADING
        if one.id in about.forks:
            return RetentionReason.FORKED
        return RetentionReason.LIVE if one.id in needed else None

    return {item.id: why(item) for item in ordered}


def is_downloading(checkpoint: Checkpoint, at: datetime) -> bool:
    """Whether links to it are still valid."""
    return checkpoint.links_until is not None and checkpoint.links_until > at


def forks_that_need(session: Read, checkpoints: Select[UUID]) -> dict[UUID, str]:
    """Those of ``checkpoints`` that forks may have to start from, each with the name of one fork.

    A fork needs its parent's checkpoint until it has ended, or has itself saved as many states as a live run must have.
    """
    own = (
        select(func.count())
        .where(
            Checkpoint.run_id == Run.id,
            Checkpoint.kind == CheckpointKind.STATE,
            Checkpoint.committed.is_not(None),
            Checkpoint.valid,
        )
        .scalar_subquery()
    )
    forks = select(Run.forked_checkpoint_id, Run.name).where(
        Run.forked_checkpoint_id.in_(checkpoints), Run.state.not_in(FINAL), own < MIN_KEPT
    )
    return {checkpoint: name for checkpoint, name in session.execute(forks) if checkpoint is not None}
