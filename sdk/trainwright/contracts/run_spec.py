"""RunSpec: what somebody asked for. It is stored, shown, compared and forked, and never carries a path or code.

Each section stands in a file of its own (``…_spec``) and is taken by the one component that it configures; no component
takes the whole spec. Defaults stand there and nowhere else. The sentence under a field becomes the help of the form, the
CLI, the API and the docs.

What is not built yet is refused here, at the field, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from trainwright.contracts.base import Strict, refused
from trainwright.contracts.data_spec import DataSpec
from trainwright.contracts.layout_rules import Sections, check_layout
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.parallelism_spec import Degrees, ParallelismSpec, ResourcesSpec, degrees_of
from trainwright.contracts.precision_spec import FP8Spec, PrecisionSpec, ScalingKind
from trainwright.contracts.training_spec import (
    BatchSpec,
    CheckpointSpec,
    MemorySpec,
    OptimizerSpec,
    ScheduleSpec,
    ValidationSpec,
)

SCHEMA_VERSION = 1


def _plain(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 ._-]*", name):
        raise ValueError("use letters, digits, spaces and . _ -, beginning with a letter or a digit")
    return name


Name = Annotated[str, StringConstraints(min_length=1, max_length=80), AfterValidator(_plain)]


class RunSpec(Strict):
    """Everything that was asked of one run."""

    schema_version: Literal[1] = 1
    """Version of this format."""

    name: Name
    """What people call the run: letters, digits, spaces and . _ -."""

    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of the weights and of the order of the data."""

    data: DataSpec
    """What the model is trained on."""

    model: ModelSpec = ModelSpec()
    """Shape of the network."""

    batch: BatchSpec = BatchSpec()
    """How much text one step sees."""

    optimizer: OptimizerSpec = OptimizerSpec()
    """The update rule."""

    schedule: ScheduleSpec = ScheduleSpec()
    """Length of the run and learning rate."""

    validation: ValidationSpec = ValidationSpec()
    """Loss on held-out documents."""

    precision: PrecisionSpec = PrecisionSpec()
    """Number formats."""

    memory: MemorySpec = MemorySpec()
    """Memory against time."""

    parallelism: ParallelismSpec = ParallelismSpec()
    """How the work is cut over the ranks."""

    checkpoint: CheckpointSpec = CheckpointSpec()
    """How often the state is saved."""

    resources: ResourcesSpec = ResourcesSpec()
    """What the run occupies."""

    @model_validator(mode="after")
    def _sections_fit(self) -> Self:
        check_layout(self._sections())
        if self.precision.fp8 is not None:
            self._fp8_fits(self.precision.fp8)
        return self

    def _fp8_fits(self, fp8: FP8Spec) -> None:
        """What the recipe asks of the sections around it."""
        _check_fp8_shapes(self.model, self.batch, fp8.scaling, self.parallelism.tensor)
        high = fp8.high_first_layers + fp8.high_last_layers
        if high >= self.model.layers:
            rule = f"first and {fp8.high_last_layers} last layers leave none of {self.model.layers} for FP8: lower one"
            raise refused("precision.fp8.high_first_layers", fp8.high_first_layers, rule)
        if fp8.release_gradients:
            hindrances = "; ".join(self._why_no_release(fp8))
            if hindrances:
                rule = f"updates in the backward pass, before all is known: {hindrances}; or use false"
                raise refused("precision.fp8.release_gradients", "true", rule)

    def _why_no_release(self, fp8: FP8Spec) -> Iterator[str]:
        """What hinders that a weight is updated as soon as this rank has its gradient."""
        if fp8.skip_limit:
            yield "set skip_limit to 0, since no step can be skipped"
        if self.optimizer.clip_norm is not None:
            yield "set optimizer.clip_norm to null (off), since clipping needs the norm of all gradients"
        if self.accumulation_rounds > 1:
            yield "make batch.micro_sequences × ranks equal batch.global_sequences, since rounds must be added up"
        if self.resources.ranks > 1:
            yield "use one slot, since all ranks must have found their gradients finite"

    @property
    def accumulation_rounds(self) -> int:
        """Forward passes of one rank in one optimizer step."""
        return self.batch.global_sequences // (self.batch.micro_sequences * self.degrees.data)

    @property
    def degrees(self) -> Degrees:
        """Sizes of the axes that the ranks form."""
        return degrees_of(self.parallelism, self.resources.ranks)

    @property
    def tokens_per_step(self) -> int:
        return self.batch.global_sequences * self.batch.sequence_tokens

    def _sections(self) -> Sections:
        return Sections(self.model, self.batch, self.precision, self.memory, self.parallelism, self.resources)


def _check_fp8_shapes(model: ModelSpec, batch: BatchSpec, scaling: ScalingKind, tensor: int) -> None:
    """The products' dims: GPUs multiply FP8 matrices in tiles of 16, and blocks of 128 must not be cut.

    A tensor group cuts heads and hidden features, of which each rank's part must fit.
    """
    tile = 128 if scaling is ScalingKind.BLOCK else 16
    sizes = {
        "model.width": model.width,
        "model.heads": model.heads * model.features_per_head,
        "model.kv_heads": model.key_value_heads * model.features_per_head,
        "model.feed_forward": model.hidden,
        "batch.micro_sequences": batch.micro_sequences * batch.sequence_tokens,
    }
    what = {
        "model.heads": "heads × head_size",
        "model.kv_heads": "kv_heads × head_size",
        "batch.micro_sequences": "micro_sequences × sequence_tokens",
    }
    cut = ("model.heads", "model.kv_heads", "model.feed_forward")
    for field, size in sizes.items():
        step = tile * tensor if field in cut else tile
        if size % step:
            product = what.get(field, field.partition(".")[2])
            parts = f" over tensor {tensor}" if step > tile else ""
            rule = f"is no multiple of {step}, which FP8 products with scaling {scaling} need of {product}{parts}"
            raise refused(field, size, f"{rule}: the next is {-(-size // step) * step}")
