"""Forking: a new run that starts from a checkpoint of another.

A fork is an ordinary run with its own spec. The fields that its state's tensors depend on cannot differ from the
parent's (`compatibility`). Until it has its own state, its attempts start from the parent's checkpoint, which
`retention` keeps until then.
"""

from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import Select, exists, func, select

from trainwright.contracts.api.actions import NewFork
from trainwright.contracts.api.runs import SpecCheck
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.run_state import RunState
from trainwright_backend.checkpoints.compatibility import (
    check_tokens,
    incompatibilities,
    restarts_data,
    with_vocabulary,
)
from trainwright_backend.checkpoints.resume import forked_checkpoint, has_lost_resume_point
from trainwright_backend.checkpoints.service import find_checkpoint, get_checkpoint, newest_state
from trainwright_backend.checkpoints.tables import Checkpoint
from trainwright_backend.core.author import Author
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.errors import Conflict, Invalid
from trainwright_backend.datasets.data_resolution import lock_data, with_ids
from trainwright_backend.runs.clone import changed_spec, differences, refuse_deleted_data
from trainwright_backend.runs.service import get_run, locked_run
from trainwright_backend.runs.state_text import lost_resume_point_text
from trainwright_backend.runs.stored_spec import stored_spec
from trainwright_backend.runs.submission import (
    SubmitResult,
    create_run,
    reserve_key_or_find_run,
    validate_run,
    with_data,
)
from trainwright_backend.runs.tables import NodeSize, Placement, Run
from trainwright_backend.runs.transitions import add_event, lock_run, move


def fork_run(
    session: Write, team_id: UUID, author: Author, run_id: str, request: NewFork, key: str | None
) -> SubmitResult:
    """Create a run that continues from a checkpoint of another, which does not change.

    Raises:
        NotFound: see `get_run` and `get_checkpoint`.
        Conflict: ``no_checkpoint``: the run has no valid state.
        Invalid: a change names no field, or is incompatible with the state.
        AppError: as `submit_run`.
    """
    earlier = reserve_key_or_find_run(
        session, team_id, key, {"fork": run_id, **request.model_dump(mode="json")}
    )
    if earlier is not None:
        return SubmitResult(earlier, replayed=True)
    data = lock_data(session, team_id, changed_spec(session, get_run(session, team_id, run_id), request).data)
    parent = locked_run(session, team_id, run_id)  # so that the checkpoint is not deleted in the meantime
    checkpoint = _state_of(session, parent, request.checkpoint)
    before = stored_spec(parent)
    spec = with_vocabulary(with_data(changed_spec(session, parent, request), data), before)
    refuse_deleted_data(session, parent, spec)
    found = list(incompatibilities(before, spec, checkpoint.step))
    if found:
        raise Invalid(found)
    same_data = parent.preparation_id if spec.data == before.data else None
    run = create_run(session, team_id, author, spec, key, prepared=same_data)
    check_tokens(session, parent, run)
    run.forked_from_id, run.forked_from_name = parent.id, parent.name
    run.forked_checkpoint_id, run.forked_step = checkpoint.id, checkpoint.step
    session.flush()
    stored = stored_spec(run)
    restart = "; the data starts at its beginning" if restarts_data(before, stored) else ""
    origin = f"forked from {parent.name} at step {checkpoint.step:,}"
    add_event(
        session, run, "forked", f"{origin}{differences(request.changes)}{restart}", step=checkpoint.step
    )
    return SubmitResult(run, replayed=False)


def validate_fork(session: Read, team_id: UUID, spec: object, checkpoint_id: str) -> SpecCheck:
    """Check ``spec``, any JSON value, for a run that continues from a checkpoint, as `fork_run` would; nothing is stored.

    Raises:
        NotFound: the team has no such checkpoint.
    """
    checkpoint = find_checkpoint(session, team_id, checkpoint_id)
    checked = validate_run(session, team_id, spec)
    try:
        parsed = RunSpec.model_validate(spec)
        parsed = with_data(parsed, with_ids(session, team_id, parsed.data))
    except (ValidationError, Invalid):
        return checked
    before = stored_spec(session.get_one(Run, checkpoint.run_id))
    found = list(incompatibilities(before, with_vocabulary(parsed, before), checkpoint.step))
    known = {problem.field for problem in found}
    problems = [*found, *(problem for problem in checked.problems if problem.field not in known)]
    return checked.model_copy(update={"problems": problems, "valid": not problems})


def forks_without_resume_point() -> Select[UUID]:
    """The queued runs for which `has_lost_resume_point` is true."""
    good = (Checkpoint.committed.is_not(None), Checkpoint.valid)
    own = exists().where(Checkpoint.run_id == Run.id, Checkpoint.kind == CheckpointKind.STATE, *good)
    parents = exists().where(Checkpoint.id == Run.forked_checkpoint_id, *good)
    return select(Run.id).where(
        Run.state == RunState.QUEUED, Run.forked_checkpoint_id.is_not(None), ~own, ~parents
    )


def fail_fork_without_resume_point(session: Write, run_id: UUID) -> None:
    """Fail a queued fork without a checkpoint to start from: it must not train from step 0 instead."""
    run = lock_run(session, run_id)
    if run is not None and run.state is RunState.QUEUED and has_lost_resume_point(session, run):
        move(session, run, RunState.FAILED, lost_resume_point_text(run), reason=EndCode.CHECKPOINT_INVALID)


def mark_parent_invalid(session: Write, run: Run, step: int | None) -> None:
    """Handle a node's report that the checkpoint from which the run was forked does not match its manifest.

    The parent and other forks use this checkpoint too, so one report is not enough. It is marked as damaged
    once a second attempt of this fork reports it, from another node if another one could take the run. Until
    then the fork retries, and fails if it retries too often.
    """
    found = forked_checkpoint(session, run)
    if found is None or newest_state(session, run.id) is not None or step != found.step:
        return
    reports = _reports_of_damage(session, run, found)
    attempts, nodes = {fence for fence, _ in reports}, {node for _, node in reports}
    if len(attempts) < 2 or (len(nodes) < 2 and _nodes_for(session, run) > 1):
        return
    parent = lock_run(session, found.run_id)  # before its checkpoint's row, in the same order as deletions
    if parent is None:
        return
    where = " and ".join(sorted(nodes))
    words = f"the checkpoint of step {found.step:,} is damaged: {run.name}, forked from it, could not read it on {where}"
    add_event(session, parent, "note", f"{words} in {len(attempts)} attempts", step=found.step)
    found.valid = False
    session.flush()


def _reports_of_damage(session: Read, run: Run, parents: Checkpoint) -> list[tuple[int | None, str]]:
    """Fence and node of each placement that ended because the parent's checkpoint could not be read, including the one that
    is being reported. The nodes of one attempt read it together, so if one fails, all of them end this way."""
    ended = (Placement.run_id == run.id, Placement.end_reason == EndCode.CHECKPOINT_INVALID)
    of_parents = Placement.job["resume"]["digest"].as_string() == parents.manifest_digest
    rows = session.execute(select(Placement.fence, Placement.node_name).where(*ended, of_parents))
    return [(fence, node) for fence, node in rows]


def _nodes_for(session: Read, run: Run) -> int:
    """Joined nodes that are large enough for the run."""
    fitting = (NodeSize.device == run.device, NodeSize.joined, NodeSize.slots >= run.slots // run.nodes)
    return session.scalar(select(func.count()).select_from(NodeSize).where(*fitting)) or 0


def _state_of(session: Read, parent: Run, checkpoint_id: str | None) -> Checkpoint:
    if checkpoint_id is None:
        newest = newest_state(session, parent.id)
        if newest is None:
            detail = (
                f"{parent.name} has no valid checkpoint to start from. Clone it instead, to start at step 0."
            )
            raise Conflict("no_checkpoint", detail)
        return newest
    found = get_checkpoint(session, parent, checkpoint_id)
    if found.kind is not CheckpointKind.STATE:
        message = "This is an export, which has weights only. Choose a checkpoint of kind state."
        raise Invalid.at("checkpoint", message, checkpoint_id)
    if not found.valid:
        raise Invalid.at("checkpoint", "This checkpoint is damaged. Choose another one.", checkpoint_id)
    return found
