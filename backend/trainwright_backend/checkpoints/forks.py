"""Forking: a new run that begins from a checkpoint of another, and what a run begins or goes on from.

A fork is a run like any other, with a spec of its own. What its state's tensors depend on cannot differ from the
parent's: that is refused by field, with the reason. Until it has a state of its own its attempts begin from the
parent's checkpoint, which `retention` keeps as long. Tokens mean to a model what the tokenizer made them mean: other
data is taken only with the parent's own tokenizer.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Select, exists, select
from sqlalchemy.orm import undefer

from trainwright.contracts.api.verbs import NewFork
from trainwright.contracts.base import Problem
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright.contracts.data_spec import TokenizerKind, TokenizerSpec
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.precision_spec import AmaxKind, PrecisionKind, PrecisionSpec
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.run_state import RunState
from trainwright.contracts.shards import ShardManifest
from trainwright_backend.checkpoints.service import get_checkpoint, newest_state
from trainwright_backend.checkpoints.tables import Checkpoint
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.errors import Conflict, Invalid
from trainwright_backend.datasets.preparations import preparation_digest
from trainwright_backend.datasets.tables import Preparation
from trainwright_backend.runs.copies import changed_spec, differences, refuse_gone_data
from trainwright_backend.runs.moves import add_event, lock_run, move
from trainwright_backend.runs.sentences import lost_beginning_sentence
from trainwright_backend.runs.service import locked_run
from trainwright_backend.runs.submission import Submitted, Submitter, begin_run, earlier_run
from trainwright_backend.runs.tables import Run

TOKENIZER = "data.tokenizer"


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
    parent = locked_run(session, team_id, run_id)  # so that nobody deletes the checkpoint meanwhile
    checkpoint = _state_of(session, parent, asked.checkpoint)
    before, spec = RunSpec.model_validate(parent.spec), changed_spec(parent, asked)
    refuse_gone_data(session, parent, spec)
    found = list(_misfits(before, spec, checkpoint.step))
    if found:
        raise Invalid(found)
    run = begin_run(session, team_id, submitter, spec, key)
    _check_tokens(session, parent, run)
    run.forked_from_id, run.forked_from_name = parent.id, parent.name
    run.forked_checkpoint_id, run.forked_step = checkpoint.id, checkpoint.step
    session.flush()
    stored = RunSpec.model_validate(run.spec)
    data = "; the data starts at its beginning" if _reads_anew(before, stored) else ""
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
    return Resume(parents, forked=True, data_from_start=_reads_anew(before, spec))


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
    """A node found that the checkpoint which the run was forked from does not match its manifest."""
    found = _forked_checkpoint(session, run)
    if found is not None and newest_state(session, run.id) is None and step in (None, found.step):
        found.valid = False
        session.flush()


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


def _misfits(before: RunSpec, spec: RunSpec, step: int) -> Iterator[Problem]:
    """Fields of ``spec`` for which a state of ``before`` after ``step`` does not do."""
    for field, value, was in _changed("model", before.model.model_dump(), spec.model.model_dump()):
        message = f"The checkpoint's weights are those of a model with {was}. Leave it so, or clone the run."
        yield Problem(field=field, message=message, value=value)
    yield from _format_misfits(before.precision, spec.precision)
    if spec.schedule.steps <= step:
        message = (
            f"The checkpoint stands at step {step:,}: a run that goes on from it needs more steps than that."
        )
        yield Problem(field="schedule.steps", message=message, value=spec.schedule.steps)
    if before.data.tokenizer.size != spec.data.tokenizer.size:
        message = f"The checkpoint's weights are for {before.data.tokenizer.size:,} token ids. Leave it so, or clone the run."
        yield Problem(field=f"{TOKENIZER}.vocabulary", message=message, value=spec.data.tokenizer.size)
    else:
        yield from _token_misfits(before, spec)


def _changed(path: str, before: dict[str, Any], after: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for name, was in before.items():
        if after[name] != was:
            yield f"{path}.{name}", after[name], was


def _format_misfits(before: PrecisionSpec, after: PrecisionSpec) -> Iterator[Problem]:
    """`fp32` and `bf16` both keep weights and moments in float32."""
    fp8 = PrecisionKind.FP8
    if (before.kind is fp8) is not (after.kind is fp8):
        kept = "in 8 and 16 bits" if before.kind is fp8 else "in float32"
        message = f"The checkpoint has weights and moments {kept}, which {after.kind} does not go on from."
        yield Problem(field="precision.kind", message=f"{message} Use {before.kind}.", value=after.kind)
        return
    if before.fp8 is None or after.fp8 is None:
        return
    wanted = ["level", "moments"]
    if after.fp8.amax is AmaxKind.DELAYED:
        wanted += ["amax", "high_first_layers", "high_last_layers"]  # the history is kept by layer
    was, now_ = before.fp8.model_dump(mode="json"), after.fp8.model_dump(mode="json")
    for name in wanted:
        if was[name] != now_[name]:
            message = f"The checkpoint's numbers are kept as {was[name]} asks for. Leave it so."
            yield Problem(field=f"precision.fp8.{name}", message=message, value=now_[name])


def _in_full(wanted: TokenizerSpec, before: RunSpec) -> TokenizerSpec:
    """A vocabulary that is left to the source is taken for the parent's until the source has been looked at."""
    if wanted.vocabulary is None and wanted.has_source:
        return wanted.model_copy(update={"vocabulary": before.data.tokenizer.size})
    return wanted


def _another_vocabulary(before: RunSpec, wanted: TokenizerSpec) -> Problem:
    message = f"The checkpoint's weights are for {before.data.tokenizer.size:,} token ids. Leave it so, or clone the run."
    return Problem(field=f"{TOKENIZER}.vocabulary", message=message, value=wanted.size)


def _token_misfits(before: RunSpec, spec: RunSpec, wanted: TokenizerSpec) -> Iterator[Problem]:
    """Where other data would bring a tokenizer of its own."""
    was = before.data.tokenizer
    if wanted.kind is TokenizerKind.BPE:
        made_of_the_same = before.data == spec.data
    else:
        made_of_the_same = wanted == was or (was, wanted) == (_bpe_of(was), _taken_from(before))
    if made_of_the_same:
        return
    remedy = f"Set {TOKENIZER} to that of the parent: {_in_words(before)}."
    message = f"The checkpoint's weights know the tokens of another tokenizer. {remedy}"
    yield Problem(field=f"{TOKENIZER}.kind", message=message, value=wanted.kind)


def _bpe_of(was: TokenizerSpec) -> TokenizerSpec | None:
    return was if was.kind is TokenizerKind.BPE else None


def _taken_from(before: RunSpec) -> TokenizerSpec:
    """The tokenizer that was trained on the parent's data, for other data."""
    return TokenizerSpec(
        kind=TokenizerKind.DATASET, source=before.data.dataset, vocabulary=before.data.tokenizer.size
    )


def _in_words(before: RunSpec) -> str:
    was = before.data.tokenizer
    named = _taken_from(before) if was.kind is TokenizerKind.BPE else was
    if named.source is None:
        return f"kind {named.kind}"
    return f"kind {named.kind}, source {named.source}, vocabulary {named.size}"


def _check_tokens(session: Read, parent: Run, run: Run) -> None:
    """A dataset may have several tokenizers of one size: compare the very files.

    Raises:
        Invalid: the fork's is another one, or the parent's went with its data.
    """
    assert run.preparation_id is not None, "a run that has not ended keeps its data"
    made = session.get_one(Preparation, run.preparation_id)
    wanted, before = TokenizerSpec.model_validate(made.tokenizer), RunSpec.model_validate(parent.spec)
    if wanted.size != before.data.tokenizer.size:
        raise Invalid([_another_vocabulary(before, wanted)])
    if wanted.kind is not TokenizerKind.DATASET or made.id == parent.preparation_id:
        return
    known = _tokenizer_digest(session, parent)
    if (
        known is None
        or preparation_digest(made.version, wanted, made.validation_fraction, known) != made.digest
    ):
        message = "This dataset's tokenizer is not the one that the parent was trained with, which is gone."
        raise Invalid.at(f"{TOKENIZER}.source", message, wanted.source)


def _tokenizer_digest(session: Read, run: Run) -> str | None:
    if run.preparation_id is None:
        return None
    preparation = session.get_one(Preparation, run.preparation_id, options=[undefer(Preparation.manifest)])
    if preparation.manifest is None:
        return None
    return ShardManifest.model_validate(preparation.manifest).tokenizer_digest


def _reads_anew(before: RunSpec, spec: RunSpec) -> bool:
    """The order of the data follows from these; where one differs, a place in the old order says nothing."""
    return (before.data, before.seed, before.batch.sequence_tokens) != (
        spec.data,
        spec.seed,
        spec.batch.sequence_tokens,
    )
