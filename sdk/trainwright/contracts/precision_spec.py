"""Number formats of the training arithmetic, and FP8 training as in FP8-LM."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from trainwright.contracts.base import Strict, field_error


class PrecisionKind(StrEnum):
    AUTO = "auto"
    FP32 = "fp32"
    BF16 = "bf16"
    FP8 = "fp8"


FP8_CAPABILITY = (8, 9)
"""The oldest compute capability with FP8 matmuls."""
FP8_CAPABILITY_OF_BLOCKS = 9
"""Major number of the only one whose matmuls scale blocks of 128."""


class FP8Level(StrEnum):
    O1 = "O1"
    O2 = "O2"
    O3 = "O3"


class ScalingKind(StrEnum):
    TENSOR = "tensor"
    ROW = "row"
    BLOCK = "block"


class AmaxKind(StrEnum):
    CURRENT = "current"
    DELAYED = "delayed"


class MomentsKind(StrEnum):
    PAPER = "paper"
    BLOCK = "block"


class StateFormat(StrEnum):
    """How an FP8 run stores the values of a weight or of an optimizer's state."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    """With a scale per tensor."""

    E4M3 = "e4m3"
    """With a scale per tensor."""

    E4M3_BLOCK = "e4m3_block"
    """With a float32 scale per 128 values."""

    @property
    def bytes_per_value(self) -> float:
        """Bytes of a value, and of its part of a scale that is not per tensor."""
        return {"float32": 4, "float16": 2, "e4m3": 1, "e4m3_block": 1 + 4 / 128}[self.value]


class AccumulationKind(StrEnum):
    BF16 = "bf16"
    FP32 = "fp32"


class FP8Spec(Strict):
    """FP8 training as in FP8-LM: what is stored and sent in 8 bits, and how it is scaled."""

    level: FP8Level = FP8Level.O2
    """`O1`: FP8 gradients. `O2`: an FP8 optimizer too. `O3`: both sharded over the ranks, with E4M3 weights in matmuls."""

    scaling: ScalingKind = ScalingKind.TENSOR
    """What shares one scale in matmuls: the whole `tensor`, a `row`, or a `block` of 128 (weights: 128 × 128)."""

    amax: AmaxKind = AmaxKind.CURRENT
    """Inputs and output gradients are scaled by their `current` amax, or by the largest of the last 16 steps (`delayed`)."""

    bf16_first_layers: int = Field(default=0, ge=0)
    """Blocks at the start whose matmuls stay in bfloat16, as those of the head always do. At O3 their weights are still E4M3."""

    bf16_last_layers: int = Field(default=0, ge=0)
    """Blocks at the end whose matmuls stay in bfloat16. At O3 their weights are still E4M3."""

    accumulation: AccumulationKind = AccumulationKind.BF16
    """Format in which gradients of several micro batches are accumulated before they are stored in E4M3."""

    moments: MomentsKind = MomentsKind.PAPER
    """Adam's moments at O2 and O3: `paper` is E4M3 and FP16 with a scale per tensor, `block` is E4M3 with a scale per 128."""

    optimizer_in_backward: bool = False
    """Update each weight during the backward pass as soon as its gradient is ready, and store no gradients."""

    skip_limit: int = Field(default=3, ge=0, le=1_000)
    """Consecutive steps that may be skipped because a gradient is not finite. One more ends the attempt as diverged; the run then resumes
    from its newest checkpoint and skips that data."""

    observe_every_steps: int = Field(default=10, ge=1)
    """Steps between measurements of scales, saturation, underflow, and updates lost to rounding."""

    @model_validator(mode="after")
    def _choices_go_together(self) -> Self:
        if self.scaling is not ScalingKind.TENSOR and self.amax is AmaxKind.DELAYED:
            rule = f"needs an amax history, which only scaling tensor has: use current with scaling {self.scaling}"
            raise field_error("amax", self.amax, rule)
        if self.scaling is not ScalingKind.TENSOR and self.level is FP8Level.O3:
            rule = "does not work with O3, which stores weights with one scale per tensor: use tensor, or level O2"
            raise field_error("scaling", self.scaling, rule)
        if self.level is FP8Level.O1 and self.moments is MomentsKind.BLOCK:
            raise field_error(
                "moments",
                self.moments,
                "does not work with O1, which has float32 moments: use level O2 or O3",
            )
        if self.optimizer_in_backward and self.level is FP8Level.O1:
            rule = "does not work with O1, which stores gradients: use level O2, or false"
            raise field_error("optimizer_in_backward", "true", rule)
        return self

    @property
    def master_format(self) -> StateFormat:
        """How the weights that the optimizer updates are stored."""
        return StateFormat.FLOAT32 if self.level is FP8Level.O1 else StateFormat.FLOAT16


class CompileKind(StrEnum):
    AUTO = "auto"
    ON = "on"
    OFF = "off"


class PrecisionSpec(Strict):
    """Number formats of the training arithmetic."""

    kind: PrecisionKind = PrecisionKind.AUTO
    """`bf16`: matmuls in bfloat16 with float32 weights. `fp32`: everything in float32. `fp8`: as set in `precision.fp8`. `auto`: `bf16` on GPUs; on CPUs the faster of `bf16` and `fp32` by the nodes' measured peaks."""

    fp8: FP8Spec | None = None
    """FP8 settings, for kind `fp8` only. Empty: their defaults."""

    compile: CompileKind = CompileKind.AUTO
    """Compile the model with torch.compile. `auto` compiles on GPUs; on CPUs only `bf16` runs of over 10¹⁴ FLOPs per rank that are long enough to benefit."""

    @model_validator(mode="before")
    @classmethod
    def _default_fp8(cls, given: object) -> object:
        if isinstance(given, dict) and given.get("kind") == PrecisionKind.FP8 and given.get("fp8") is None:
            return given | {"fp8": {}}
        return given

    @property
    def hardware(self) -> str:
        """The GPUs that have its matmuls, for users; empty for all."""
        if self.fp8 is None:
            return ""
        if self.fp8.scaling is ScalingKind.BLOCK:
            return "GPUs of compute capability 9.0 (scaling block)"
        return f"GPUs of compute capability {FP8_CAPABILITY[0]}.{FP8_CAPABILITY[1]} or newer"

    def suits(self, capability: tuple[int, int]) -> bool:
        """Whether GPUs of this compute capability have its matmuls."""
        if self.fp8 is None:
            return True
        if self.fp8.scaling is ScalingKind.BLOCK:
            return capability[0] == FP8_CAPABILITY_OF_BLOCKS
        return capability >= FP8_CAPABILITY

    @model_validator(mode="after")
    def _fp8_fits_kind(self) -> Self:
        if self.fp8 is not None and self.kind is not PrecisionKind.FP8:
            rule = f"are for kind fp8, but precision.kind is {self.kind}: set it to fp8, or leave precision.fp8 out"
            raise field_error("fp8", "FP8 settings", rule)
        return self
