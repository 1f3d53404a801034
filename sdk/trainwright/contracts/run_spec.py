"""RunSpec: the configuration of a run. It is stored, shown, compared and forked, and never contains a path or code.

Each section is in its own file (``…_spec``) and configures one component; no component takes the whole spec. Defaults are
defined there and nowhere else. The sentence under a field is its help in the form, the CLI, the API and the docs.

Values that are not supported yet are rejected here, at the field, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from trainwright.contracts.base import Strict, field_error
from trainwright.contracts.block_parts import attention_of
from trainwright.contracts.data_spec import DataSpec
from trainwright.contracts.layout_rules import check_layout, fits_nodes
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.optimizer_spec import OptimizerSpec
from trainwright.contracts.parallelism_spec import Degrees, ParallelismSpec, ResourcesSpec, resolve_degrees
from trainwright.contracts.precision_spec import FP8Spec, PrecisionKind, PrecisionSpec, ScalingKind
from trainwright.contracts.refused_combination import Sections
from trainwright.contracts.spec_upgrade import SCHEMA_VERSION, upgrade_spec
from trainwright.contracts.training_spec import (
    BatchSpec,
    CheckpointSpec,
    MemorySpec,
    ScheduleSpec,
    ValidationSpec,
)


def _plain(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 ._-]*", name):
        raise ValueError("use letters, digits, spaces and . _ -, starting with a letter or a digit")
    return name


Name = Annotated[str, StringConstraints(min_length=1, max_length=80), AfterValidator(_plain)]


class RunSpec(Strict):
    """The configuration of a run."""

    schema_version: Literal[2] = SCHEMA_VERSION
    """Version of this format."""

    name: Name
    """Name of the run: letters, digits, spaces and . _ -."""

    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of the initial weights and of the data order."""

    data: DataSpec
    """The training data."""

    model: ModelSpec = ModelSpec()
    """The shape of the network."""

    batch: BatchSpec = BatchSpec()
    """How much text each step processes."""

    optimizer: OptimizerSpec = OptimizerSpec()
    """The update rule."""

    schedule: ScheduleSpec = ScheduleSpec()
    """The length of the run and its learning rate."""

    validation: ValidationSpec = ValidationSpec()
    """The loss on held-out documents, and samples of generated text."""

    precision: PrecisionSpec = PrecisionSpec()
    """Number formats."""

    memory: MemorySpec = MemorySpec()
    """Trading time for memory."""

    parallelism: ParallelismSpec = ParallelismSpec()
    """How the work is distributed over the ranks."""

    checkpoint: CheckpointSpec = CheckpointSpec()
    """How often the state is saved."""

    resources: ResourcesSpec = ResourcesSpec()
    """The nodes and slots that the run occupies."""

    @model_validator(mode="before")
    @classmethod
    def _upgrade(cls, given: Any) -> Any:
        return upgrade_spec(given)

    @model_validator(mode="after")
    def _sections_fit(self) -> Self:
        check_layout(self.sections())
        factors = self.optimizer.learning_rate_factors
        if factors is not None and factors.head != 1.0 and self.model.tied_embeddings:
            rule = "applies to a head of its own: use embedding, which is also the head, or set model.tied_embeddings to false"
            raise field_error("optimizer.learning_rate_factors.head", factors.head, rule)
        if self.precision.fp8 is not None:
            self._fp8_fits(self.precision.fp8)
        return self

    def _fp8_fits(self, fp8: FP8Spec) -> None:
        """Check what FP8 requires of the other sections."""
        _check_fp8_shapes(self.model, self.batch, fp8.scaling, self.parallelism.tensor)
        high = fp8.bf16_first_layers + fp8.bf16_last_layers
        if high >= self.model.layers:
            rule = f"first and {fp8.bf16_last_layers} last layers leave none of the {self.model.layers} layers for FP8: lower one of them"
            raise field_error("precision.fp8.bf16_first_layers", fp8.bf16_first_layers, rule)
        if fp8.optimizer_in_backward:
            obstacles = "; ".join(self._obstacles_to_optimizer_in_backward(fp8))
            if obstacles:
                rule = f"updates weights during the backward pass: {obstacles}; or use false"
                raise field_error("precision.fp8.optimizer_in_backward", "true", rule)

    def _obstacles_to_optimizer_in_backward(self, fp8: FP8Spec) -> Iterator[str]:
        """Why a weight cannot be updated as soon as this rank has its gradient."""
        if fp8.skip_limit:
            yield "set skip_limit to 0, since no step can be skipped"
        if self.optimizer.clip_norm is not None:
            yield "set optimizer.clip_norm to null (off), since clipping needs the norm over all gradients"
        if self.accumulation_steps > 1:
            yield "make batch.micro_sequences × ranks equal batch.global_sequences, since gradients of several micro batches must be added up"
        if self.resources.ranks > 1:
            yield "use one slot, since every rank must first find its gradients finite"

    @property
    def accumulation_steps(self) -> int:
        """Micro batches of one rank in one optimizer step."""
        return self.batch.global_sequences // (self.batch.micro_sequences * self.degrees.data)

    @property
    def export_format(self) -> Literal["fp32", "bf16"]:
        """Number format of the exported weights, once `precision.kind` is no longer `auto`."""
        if self.checkpoint.export_dtype != "auto":
            return self.checkpoint.export_dtype
        return "fp32" if self.precision.kind is PrecisionKind.FP32 else "bf16"

    @property
    def degrees(self) -> Degrees:
        """Sizes of the mesh axes."""
        return resolve_degrees(self.parallelism, self.resources.ranks)

    @property
    def tokens_per_step(self) -> int:
        return self.batch.global_sequences * self.batch.sequence_tokens

    def fits_nodes(self, nodes: int) -> bool:
        """Whether an attempt may run on ``nodes`` nodes."""
        least = self.resources.min_nodes or self.resources.nodes
        return nodes == self.resources.nodes or (
            least <= nodes < self.resources.nodes and fits_nodes(self.sections(), nodes)
        )

    def on_nodes(self, nodes: int) -> RunSpec:
        """This run on as many nodes, for an attempt (``fits_nodes``)."""
        return self.model_copy(update={"resources": self.resources.model_copy(update={"nodes": nodes})})

    def sections(self) -> Sections:
        """The sections that rules about several of them compare."""
        return Sections(
            self.model,
            self.batch,
            self.optimizer,
            self.precision,
            self.memory,
            self.parallelism,
            self.resources,
        )


def _check_fp8_shapes(model: ModelSpec, batch: BatchSpec, scaling: ScalingKind, tensor: int) -> None:
    """Check the dims of matmuls: GPUs multiply FP8 matrices in tiles of 16, and blocks of 128 must stay whole.

    Tensor parallelism splits heads and hidden features, and each rank's part must meet the same rule.
    """
    tile = 128 if scaling is ScalingKind.BLOCK else 16
    sizes = {
        "model.width": model.width,
        "model.heads": model.heads * model.features_per_head,
        "model.kv_heads": model.key_value_heads * model.features_per_head,
        "model.feed_forward": model.feed_forward_width,
        "batch.micro_sequences": batch.micro_sequences * batch.sequence_tokens,
    }
    what = {
        "model.heads": "heads × head_size",
        "model.kv_heads": "kv_heads × head_size",
        "batch.micro_sequences": "micro_sequences × sequence_tokens",
    }
    split = ("model.heads", "model.kv_heads", "model.feed_forward")
    attention = attention_of(model)
    for field, size in sizes.items():
        step = tile * tensor if field in split else tile
        if field == "model.width" and attention.width_divisor is not None:
            step = attention.width_divisor * tile * tensor
        if size % step:
            matmul = what.get(field, field.partition(".")[2])
            parts = f" with tensor {tensor}" if step > tile else ""
            rule = f"is not a multiple of {step}, which FP8 matmuls with scaling {scaling} need for {matmul}{parts}"
            raise field_error(field, size, f"{rule}: the next is {-(-size // step) * step}")
