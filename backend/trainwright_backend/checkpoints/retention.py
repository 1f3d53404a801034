"""Which checkpoints are kept, by one rule for all who delete some: the prune at each commit, a person's retention, and a
person who deletes one.

Kept in any case are pinned ones, those that somebody was given links to, those that a fork still begins from, and the
two newest valid states of a run that has not ended: it may have to go on from them. Everything here only reads; whoever
deletes holds the run's row and the rows of its checkpoints, so that nobody pins, forks or fetches one meanwhile.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Select, func, select

from trainwright.contracts.api.verbs import KeptBecause, Retention
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright.contracts.run_state import FINAL
from trainwright_backend.checkpoints.tables import Checkpoint
from trainwright_backend.core.db import Read
from trainwright_backend.runs.tables import Run

LEAST_KEPT = 2
"""Valid states of a run that has not ended: one that turns out to be damaged leaves another."""


@dataclass(frozen=True)
class Rule:
    """What is kept besides that which is kept in any case."""

    keep_last: int
    keep_every_steps: int | None = None
    keep_exports: bool = True

    @classmethod
    def of(cls, asked: Retention) -> "Rule":
        return cls(asked.keep_last, asked.keep_every_steps, keep_exports=not asked.delete_exports)


@dataclass(frozen=True)
class Circumstances:
    """What the fate of a run's checkpoints depends on besides themselves."""

    live: bool
    """The run has not ended."""

    forks: Mapping[UUID, str]
    """Checkpoints that forks begin from, and a name of such a fork."""

    at: datetime


def why_kept(
    checkpoints: Sequence[Checkpoint], rule: Rule, about: Circumstances
) -> dict[UUID, KeptBecause | None]:
    """For each of a run's committed checkpoints why it is kept; None: it may go."""
    ordered = sorted(checkpoints, key=lambda one: (one.step, one.fence), reverse=True)
    states = [one.id for one in ordered if one.kind is CheckpointKind.STATE and one.valid]
    exports = [one.id for one in ordered if one.kind is CheckpointKind.EXPORT]
    newest, needed = set(states[: rule.keep_last]), set(states[:LEAST_KEPT] if about.live else ())
    kept_exports = set(exports if rule.keep_exports else exports[:1])

    def why(one: Checkpoint) -> KeptBecause | None:
        if one.id in newest:
            return KeptBecause.NEWEST
        if one.id in states and rule.keep_every_steps and one.step % rule.keep_every_steps == 0:
            return KeptBecause.MULTIPLE
        if one.id in kept_exports:
            return KeptBecause.EXPORT
        if one.pinned:
            return KeptBecause.PINNED
        if is_downloading(one, about.at):
            return KeptBecause.DOWNLOADING
        if one.id in about.forks:
            return KeptBecause.FORKED
        return KeptBecause.LIVE if one.id in needed else None

    return {one.id: why(one) for one in ordered}


def is_downloading(checkpoint: Checkpoint, at: datetime) -> bool:
    """Somebody was given links to it that are still good."""
    return checkpoint.links_until is not None and checkpoint.links_until > at


def forks_that_need(session: Read, checkpoints: Select[UUID]) -> dict[UUID, str]:
    """Those of ``checkpoints`` that forks may have to begin from, and the name of one such fork each.

    A fork needs its parent's checkpoint until it has ended, or has as many states of its own as a run must have.
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
        Run.forked_checkpoint_id.in_(checkpoints), Run.state.not_in(FINAL), own < LEAST_KEPT
    )
    return {checkpoint: name for checkpoint, name in session.execute(forks) if checkpoint is not None}
