"""How a run trains: batch, schedule, validation, memory and checkpoints."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from trainwright.contracts.base import LAYERS_PATTERN, Strict, field_error


class BatchSpec(Strict):
    """How much text one optimizer step processes."""

    sequence_tokens: int = Field(default=256, ge=8, le=1_048_576)
    """Tokens in one sequence."""

    micro_sequences: int = Field(default=8, ge=1, le=65_536)
    """Sequences one rank processes in one forward pass."""

    global_sequences: int = Field(default=64, ge=1, le=1_048_576)
    """Sequences in one optimizer step, over all ranks and gradient accumulation steps."""

    document_mask: bool = False
    """Tokens attend to their own document only, and positions restart with each document. Off: also to earlier documents in the sequence."""


MAX_AUTO_WARMUP = 50
"""Most steps of a warm-up that the spec leaves open."""


class ScheduleKind(StrEnum):
    COSINE = "cosine"
    LINEAR = "linear"
    WSD = "wsd"


class ScheduleSpec(Strict):
    """How long training lasts, and its learning rate."""

    kind: ScheduleKind = ScheduleKind.COSINE
    """After the warm-up, `cosine` and `linear` decay until the last step; `wsd` stays at the peak and decays at the end."""

    steps: int = Field(default=1_000, ge=1, le=100_000_000)
    """Optimizer steps of the run."""

    warmup_steps: int | None = Field(default=None, ge=0)
    """Steps over which the learning rate rises linearly from 0. Empty: a tenth of all steps, at most 50."""

    final_fraction: float = Field(default=0.1, ge=0.0, le=1.0)
    """Learning rate at the last step, as a fraction of the peak."""

    decay_steps: int | None = Field(default=None, ge=1)
    """Steps over which `wsd` decays linearly at the end. Empty: a fifth of all steps."""

    @model_validator(mode="after")
    def _phases_fit(self) -> Self:
        warmup = self.resolved_warmup_steps
        if warmup >= self.steps:
            rule = f"must be less than steps, which is {self.steps}: lower it, or leave it empty"
            raise field_error("warmup_steps", warmup, rule)
        if self.decay_steps is not None and self.kind is not ScheduleKind.WSD:
            raise field_error(
                "decay_steps", self.decay_steps, f"applies to wsd only: leave it empty for {self.kind}"
            )
        if self.decay_steps is not None and self.decay_steps > self.steps - warmup:
            rule = f"must be at most steps - warmup_steps = {self.steps - warmup}"
            raise field_error("decay_steps", self.decay_steps, rule)
        return self

    @property
    def resolved_warmup_steps(self) -> int:
        """Steps of the warm-up, also if ``warmup_steps`` is empty."""
        return min(self.steps // 10, MAX_AUTO_WARMUP) if self.warmup_steps is None else self.warmup_steps

    @property
    def final_steps(self) -> int:
        """Steps of the decay at the end of `wsd`."""
        return self.decay_steps or min(-(-self.steps // 5), self.steps - self.resolved_warmup_steps)


MAX_PROMPTS = 8
MAX_PROMPT_LENGTH = 500
MAX_SAMPLE_TOKENS = 256

Prompt = Annotated[str, StringConstraints(min_length=1, max_length=MAX_PROMPT_LENGTH)]


class ValidationSpec(Strict):
    """How often the loss on held-out documents is measured, and which samples are generated."""

    every_steps: int = Field(default=100, ge=1)
    """Steps between measurements. The last step is always measured."""

    sequences: int = Field(default=64, ge=1, le=1_048_576)
    """Sequences in each measurement, always the same ones. Fewer if the validation split has fewer."""

    prompts: tuple[Prompt, ...] = Field(default=(), max_length=MAX_PROMPTS)
    """Up to 8 texts that the model continues at each validation, so that you can read what it has learned."""

    sample_tokens: int = Field(default=50, ge=1, le=MAX_SAMPLE_TOKENS)
    """The most tokens that the model adds to a prompt. It stops earlier at the end of a document."""

    temperature: float = Field(default=0.8, ge=0.0, le=5.0)
    """Sampling temperature; 0 always takes the most likely token."""


class RecomputeKind(StrEnum):
    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class MemorySpec(Strict):
    """What is recomputed or computed in chunks to save memory."""

    recompute: RecomputeKind = RecomputeKind.NONE
    """In the backward pass, `selective` recomputes everything but matmuls and attention, `full` entire blocks."""

    recompute_layers: str | None = Field(default=None, pattern=LAYERS_PATTERN)
    """Layers that `recompute` applies to, counted from 0, such as 0-3,12. Empty: all layers."""

    loss_chunk_tokens: int = Field(default=4_096, ge=128, le=1_048_576)
    """Tokens whose logits are in memory at once. The loss of a larger micro batch is computed in chunks."""

    @model_validator(mode="after")
    def _layers_are_recomputed(self) -> Self:
        if self.recompute_layers is not None and self.recompute is RecomputeKind.NONE:
            rule = "is given, but recompute is none: set recompute to full or selective"
            raise field_error("recompute_layers", self.recompute_layers, rule)
        if any(first > last for first, last in self.recomputed or ()):
            rule = "has a range that ends before it starts: write first-last, such as 0-3"
            raise field_error("recompute_layers", self.recompute_layers, rule)
        return self

    @property
    def recomputed(self) -> list[tuple[int, int]] | None:
        """First and last layer of each range that `recompute` applies to; None for all layers."""
        if self.recompute_layers is None:
            return None
        ends = [layers.split("-") for layers in self.recompute_layers.split(",")]
        return [(int(pair[0]), int(pair[-1])) for pair in ends]

    def recomputes(self, layer: int) -> bool:
        """Whether `recompute` applies to layer ``layer``, counted from 0."""
        return self.recomputed is None or any(first <= layer <= last for first, last in self.recomputed)


class CheckpointSpec(Strict):
    """How often checkpoints are saved. The last step is always saved."""

    every_steps: int = Field(default=200, ge=1)
    """Steps between checkpoints."""

    keep: int = Field(default=2, ge=2, le=1_000)
    """How many of the newest checkpoints to keep. Older ones are deleted when a newer one is committed."""

    export_dtype: Literal["auto", "fp32", "bf16"] = "auto"
    """Number format of the exported weights. `auto`: `fp32` for a run in `fp32`, otherwise `bf16`."""
