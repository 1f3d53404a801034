"""Forking: a new run that begins from a checkpoint of another, and what a run begins or goes on from.

A fork is a run like any other, with a spec of its own. What its state's tensors depend on cannot differ from the
parent's (`fit`). Until it has a state of its own its attempts begin from the parent's checkpoint, which `retention`
keeps as long.
"""

from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Select, exists, func, select

from trainwright.contracts.api.verbs import NewFork
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.run_state import RunState
from trainwright_backend.checkpoints.fit import check_tokens, misfits, reads_anew, with_vocabulary
from trainwright_backend.checkpoints.service import get_checkpoint, newest_state
from trainwright_backend.checkpoints.tables import Checkpoint
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.errors import Conflict, Invalid
from trainwright_backend.datasets.resolution import hold_data
from trainwright_backend.runs.copies import changed_spec, differences, refuse_gone_data
from trainwright_backend.runs.moves import add_event, lock_run, move
from trainwright_backend.runs.sentences import lost_beginning_sentence
from trainwright_backend.runs.service import get_run, locked_run
from trainwright_backend.runs.submission import Submitted, Submitter, begin_run, earlier_run
from trainwright_backend.runs.tables import NodeSize, Placement, Run


class Resume(NamedTuple):
    """Where an attempt begins that does not begin from the start."""

    checkpoint: Checkpoint
    forked: bool
    """It is the parent's."""

    data_from_start: bool
    """The data is not that which the checkpoint was trained on."""


def fork_run(
    session: Write, team_id: UUID, submitter: Submitter, run_id: str, asked: NewFork, key: str | None
) -> Submitted:
    """A new run that goes on from a checkpoint of another, which stays as it is.

    Raises:
        NotFound: see `get_run` and `get_checkpoint`.
        Conflict: ``no_checkpoint``: the run has no valid state.
        Invalid: a change names no field, or does not fit the state.
        AppError: as `submit_run`.
    """
    earlier = earlier_run(session, team_id, key, {"fork": run_id, **asked.model_dump(mode="json")})
    if earlier is not None:
        return Submitted(earlier, replayed=True)
    hold_data(session, team_id, changed_spec(get_run(session, team_id, run_id), asked).data)
    parent = locked_run(session, team_id, run_id)  # so that nobody deletes the checkpoint meanwhile
    checkpoint = _state_of(session, parent, asked.checkpoint)
    before = RunSpec.model_validate(parent.spec)
    spec = with_vocabulary(changed_spec(parent, asked), before)
    refuse_gone_data(session, parent, spec)
    found = list(misfits(before, spec, checkpoint.step))
    if found:
        raise Invalid(found)
    same_data = parent.preparation_id if spec.data == before.data else None
    run = begin_run(session, team_id, submitter, spec, key, prepared=same_data)
    check_tokens(session, parent, run)
    run.forked_from_id, run.forked_from_name = parent.id, parent.name
    run.forked_checkpoint_id, run.forked_step = checkpoint.id, checkpoint.step
    session.flush()
    stored = RunSpec.model_validate(run.spec)
    data = "; the data starts at its beginning" if reads_anew(before, stored) else ""
    origin = f"forked from {parent.name} at step {checkpoint.step:,}"
    add_event(session, run, "forked", f"{origin}{differences(asked.changes)}{data}", step=checkpoint.step)
    return Submitted(run, replayed=False)


def where_to_begin(session: Read, run: Run) -> Resume | None:
    """What the run's next attempt begins from: its newest state, else the one it was forked from; None: the start."""
    own = newest_state(session, run.id)
    if own is not None:
        return Resume(own, forked=False, data_from_start=False)
    parents = _forked_checkpoint(session, run)
    if parents is None:
        return None
    parent = session.get_one(Run, parents.run_id)
    before, spec = RunSpec.model_validate(parent.spec), RunSpec.model_validate(run.spec)
    return Resume(parents, forked=True, data_from_start=reads_anew(before, spec))


def has_lost_its_beginning(session: Read, run: Run) -> bool:
    """It was forked, and neither a state of its own nor the parent's is left to begin from."""
    return run.forked_checkpoint_id is not None and where_to_begin(session, run) is None


def lost_beginnings() -> Select[UUID]:
    """The queued runs of which `has_lost_its_beginning` is true."""
    good = (Checkpoint.committed.is_not(None), Checkpoint.valid)
    own = exists().where(Checkpoint.run_id == Run.id, Checkpoint.kind == CheckpointKind.STATE, *good)
    parents = exists().where(Checkpoint.id == Run.forked_checkpoint_id, *good)
    return select(Run.id).where(
        Run.state == RunState.QUEUED, Run.forked_checkpoint_id.is_not(None), ~own, ~parents
    )


def fail_lost(session: Write, run_id: UUID) -> None:
    """Fail a queued fork that nothing is left for to begin from: it must not train from the start instead."""
    run = lock_run(session, run_id)
    if run is not None and run.state is RunState.QUEUED and has_lost_its_beginning(session, run):
        move(session, run, RunState.FAILED, lost_beginning_sentence(run), reason=EndCode.CHECKPOINT_INVALID)


def mark_parent_invalid(session: Write, run: Run, step: int | None) -> None:
    """A node found that the checkpoint which the run was forked from does not match its manifest.

    It is the parent's, and other forks': one node's word is not enough. It counts as damaged once a second attempt of this
    fork says so, on another node where there is one that could take the run. A fork that is not believed tries again, and
    fails by itself when it has tried too often.
    """
    found = _forked_checkpoint(session, run)
    if found is None or newest_state(session, run.id) is not None or step != found.step:
        return
    nodes = _nodes_that_could_not_read(session, run, found)
    if len(nodes) < 2 or (len(set(nodes)) < 2 and _nodes_for(session, run) > 1):
        return
    parent = lock_run(session, found.run_id)  # before its checkpoint's row, as whoever deletes one does
    if parent is None:
        return
    where = " and ".join(sorted(set(nodes)))
    words = f"the checkpoint of step {found.step:,} is damaged: {run.name}, forked from it, could not read it on {where}"
    add_event(session, parent, "note", f"{words} in {len(nodes)} attempts", step=found.step)
    found.valid = False
    session.flush()


def _nodes_that_could_not_read(session: Read, run: Run, parents: Checkpoint) -> list[str]:
    """Of each attempt that was to begin from the parent's checkpoint and ended so, the one that ends now included."""
    ended = (Placement.run_id == run.id, Placement.end_reason == EndCode.CHECKPOINT_INVALID)
    of_parents = Placement.job["resume"]["digest"].as_string() == parents.manifest_digest
    return list(
        session.scalars(select(Placement.node_name).where(*ended, of_parents).order_by(Placement.fence))
    )


def _nodes_for(session: Read, run: Run) -> int:
    """Joined nodes that are large enough for the run."""
    fitting = (NodeSize.device == run.device, NodeSize.joined, NodeSize.slots >= run.slots)
    return session.scalar(select(func.count()).select_from(NodeSize).where(*fitting)) or 0


def _forked_checkpoint(session: Read, run: Run) -> Checkpoint | None:
    if run.forked_checkpoint_id is None:
        return None
    found = session.get(Checkpoint, run.forked_checkpoint_id)
    return found if found is not None and found.valid else None


def _state_of(session: Read, parent: Run, checkpoint_id: str | None) -> Checkpoint:
    if checkpoint_id is None:
        newest = newest_state(session, parent.id)
        if newest is None:
            detail = (
                f"{parent.name} has no valid checkpoint to begin from. Clone it instead, to begin at step 0."
            )
            raise Conflict("no_checkpoint", detail)
        return newest
    found = get_checkpoint(session, parent, checkpoint_id)
    if found.kind is not CheckpointKind.STATE:
        message = "This is an export, which holds weights only. Name a checkpoint of kind state."
        raise Invalid.at("checkpoint", message, checkpoint_id)
    if not found.valid:
        raise Invalid.at("checkpoint", "This checkpoint is damaged. Name another one.", checkpoint_id)
    return found
