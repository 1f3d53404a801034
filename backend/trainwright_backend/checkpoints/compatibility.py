"""Whether a run's state is compatible with a spec: the incompatible fields, each with the reason.

The tensors of a state depend on the model, the size of the vocabulary, the optimizer and the number formats. A model knows
only the tokens of its tokenizer, so other data is accepted only with the parent's own tokenizer.
"""

from collections.abc import Iterator
from typing import Any

from sqlalchemy.orm import undefer

from trainwright.contracts.base import Problem
from trainwright.contracts.data_spec import TokenizerKind, TokenizerSpec
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.precision_spec import AmaxKind, PrecisionKind, PrecisionSpec
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.token_shards import ShardManifest
from trainwright_backend.core.db import Read
from trainwright_backend.core.errors import Invalid
from trainwright_backend.datasets.preparations import preparation_digest
from trainwright_backend.datasets.tables import Preparation
from trainwright_backend.runs.stored_spec import stored_spec
from trainwright_backend.runs.tables import Run

TOKENIZER = "data.tokenizer"


def with_vocabulary(spec: RunSpec, before: RunSpec) -> RunSpec:
    """``spec`` with the vocabulary of ``before``, if it is left to the tokenizer's source, which may have several."""
    wanted = spec.data.tokenizer
    if wanted.vocabulary is not None or not wanted.has_source:
        return spec
    filled = wanted.model_copy(update={"vocabulary": before.data.tokenizer.size})
    return spec.model_copy(update={"data": spec.data.model_copy(update={"tokenizer": filled})})


def incompatibilities(before: RunSpec, spec: RunSpec, step: int) -> Iterator[Problem]:
    """Fields of ``spec`` that are incompatible with a state of ``before`` after ``step``."""
    for field, value, was in _changed("model", _shaping(before.model), _shaping(spec.model)):
        name, what = field.rpartition(".")[2], "left empty" if was is None else was
        label = name.replace("_", " ")
        message = f"The checkpoint's model has {label} {what}. Keep that value, or clone the run."
        yield Problem(field=field, message=message, value=value)
    yield from _learned_position_incompatibilities(before, spec)
    if spec.optimizer.kind != before.optimizer.kind:
        message = f"The checkpoint has the state of {before.optimizer.kind}. Keep it, or clone the run."
        yield Problem(field="optimizer.kind", message=message, value=spec.optimizer.kind)
    yield from _precision_incompatibilities(before.precision, spec.precision)
    if spec.schedule.steps <= step:
        message = (
            f"The checkpoint is at step {step:,}: a run that continues from it needs more steps than that."
        )
        yield Problem(field="schedule.steps", message=message, value=spec.schedule.steps)
    if before.data.tokenizer.size != spec.data.tokenizer.size:
        message = f"The checkpoint's weights are for {before.data.tokenizer.size:,} token ids. Keep it, or clone the run."
        yield Problem(field=f"{TOKENIZER}.vocabulary", message=message, value=spec.data.tokenizer.size)
    else:
        yield from _tokenizer_incompatibilities(before, spec)


def check_tokens(session: Read, parent: Run, run: Run) -> None:
    """Compare the tokenizers' files, since a dataset may have several tokenizers of one size.

    Raises:
        Invalid: the fork's tokenizer differs, or the parent's was deleted with its data.
    """
    assert run.preparation_id is not None, "a run that has not ended keeps its data"
    made = session.get_one(Preparation, run.preparation_id)
    wanted = stored_spec(run).data.tokenizer
    if wanted.kind is not TokenizerKind.DATASET or made.id == parent.preparation_id:
        return
    known = _tokenizer_digest(session, parent)
    if (
        known is None
        or preparation_digest(made.version, wanted, made.validation_fraction, known) != made.digest
    ):
        message = (
            "This dataset's tokenizer is not the one that the parent was trained with, which was deleted."
        )
        raise Invalid.at(f"{TOKENIZER}.source", message, wanted.source)


def restarts_data(before: RunSpec, spec: RunSpec) -> bool:
    """Whether the data starts from its beginning: these settings determine its order, so that the old position
    is meaningless."""
    return (before.data, before.seed, before.batch.sequence_tokens) != (
        spec.data,
        spec.seed,
        spec.batch.sequence_tokens,
    )


def _shaping(model: ModelSpec) -> dict[str, Any]:
    """What a continued run must keep. It may scale rotary positions, to learn longer sequences with the same weights."""
    return model.model_dump(exclude={"rope_scaling"})


def _learned_position_incompatibilities(before: RunSpec, spec: RunSpec) -> Iterator[Problem]:
    length = before.batch.sequence_tokens
    if before.model.positions == "learned" and spec.batch.sequence_tokens != length:
        message = f"The checkpoint has learned positions for {length:,} tokens. Keep it, or clone the run."
        yield Problem(field="batch.sequence_tokens", message=message, value=spec.batch.sequence_tokens)


def _changed(path: str, before: dict[str, Any], after: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for name, was in before.items():
        if after[name] != was:
            yield f"{path}.{name}", after[name], was


def _precision_incompatibilities(before: PrecisionSpec, after: PrecisionSpec) -> Iterator[Problem]:
    """`fp32` and `bf16` both keep weights and moments in float32."""
    fp8 = PrecisionKind.FP8
    if (before.kind is fp8) is not (after.kind is fp8):
        kept = "in 8 and 16 bits" if before.kind is fp8 else "in float32"
        message = f"The checkpoint has weights and moments {kept}, from which {after.kind} cannot continue."
        yield Problem(field="precision.kind", message=f"{message} Use {before.kind}.", value=after.kind)
        return
    if before.fp8 is None or after.fp8 is None:
        return
    wanted = ["level", "moments"]
    if after.fp8.amax is AmaxKind.DELAYED:
        wanted += ["amax", "bf16_first_layers", "bf16_last_layers"]  # the history is kept by layer
    was, now_ = before.fp8.model_dump(mode="json"), after.fp8.model_dump(mode="json")
    for name in wanted:
        if was[name] != now_[name]:
            message = f"The checkpoint's values are stored for {was[name]}. Keep it."
            yield Problem(field=f"precision.fp8.{name}", message=message, value=now_[name])


def _tokenizer_incompatibilities(before: RunSpec, spec: RunSpec) -> Iterator[Problem]:
    """Refuse other data that would bring its own tokenizer."""
    was, wanted = before.data.tokenizer, spec.data.tokenizer
    if wanted.kind is TokenizerKind.BPE:
        made_of_the_same = before.data == spec.data
    else:
        made_of_the_same = wanted == was or (was, wanted) == (_bpe_of(was), _taken_from(before))
    if made_of_the_same:
        return
    remedy = f"Set {TOKENIZER} to that of the parent: {_in_words(before)}."
    message = f"The checkpoint's weights are for the tokens of another tokenizer. {remedy}"
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


def _tokenizer_digest(session: Read, run: Run) -> str | None:
    if run.preparation_id is None:
        return None
    preparation = session.get_one(Preparation, run.preparation_id, options=[undefer(Preparation.manifest)])
    if preparation.manifest is None:
        return None
    return ShardManifest.model_validate(preparation.manifest).tokenizer_digest
