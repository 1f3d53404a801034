"""The number formats of the training arithmetic, and the FP8-LM recipe."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from trainwright.contracts.base import Strict, refused


class PrecisionKind(StrEnum):
    FP32 = "fp32"
    BF16 = "bf16"
    FP8 = "fp8"


class FP8Level(StrEnum):
    O1 = "O1"
    O2 = "O2"
    O3 = "O3"


class ScalingKind(StrEnum):
    TENSOR = "tensor"
    ROW = "row"
    BLOCK = "block"


class AmaxKind(StrEnum):
    PRESENT = "present"
    DELAYED = "delayed"


class MomentsKind(StrEnum):
    PAPER = "paper"
    BLOCK = "block"


class AccumulationKind(StrEnum):
    BF16 = "bf16"
    FP32 = "fp32"


class FP8Spec(Strict):
    """The FP8-LM recipe: what is kept and sent in 8 bits, and how it is scaled."""

    level: FP8Level = FP8Level.O2
    """`O1`: gradients in FP8; `O2`: the optimizer too; `O3`: cut over the ranks, and products read E4M3 weights."""

    scaling: ScalingKind = ScalingKind.TENSOR
    """What shares one scale in the products: the whole `tensor`, a `row`, or a `block` of 128 (weights: 128 × 128)."""

    amax: AmaxKind = AmaxKind.PRESENT
    """Inputs and output gradients are scaled by their `present` maximum, or by that of the last 16 steps (`delayed`)."""

    high_first_layers: int = Field(default=0, ge=0)
    """Blocks at the start whose products stay in bfloat16, as the head's always do; at O3 their weights are E4M3."""

    high_last_layers: int = Field(default=0, ge=0)
    """Blocks at the end whose products stay in bfloat16; at O3 the weights in them are E4M3 copies all the same."""

    accumulation: AccumulationKind = AccumulationKind.BF16
    """Format in which the gradients of several micro batches are added up, before they are stored in E4M3 once."""

    moments: MomentsKind = MomentsKind.PAPER
    """Adam's moments at O2 and O3: `paper` has E4M3 and FP16, one scale a tensor; `block` has both in E4M3, by 128."""

    release_gradients: bool = False
    """Update each weight in the backward pass as soon as its gradient is there, and keep no gradients at all."""

    skip_limit: int = Field(default=3, ge=0, le=1_000)
    """Steps in a row that are skipped because a gradient is not finite, before the run ends as diverged."""

    observe_every_steps: int = Field(default=10, ge=1)
    """Steps between two measurements of scales, clamped tensors, flushed values, and updates lost to rounding."""

    @model_validator(mode="after")
    def _choices_go_together(self) -> Self:
        if self.scaling is not ScalingKind.TENSOR and self.amax is AmaxKind.DELAYED:
            rule = f"needs a history, which whole tensors have only: use present with scaling {self.scaling}"
            raise refused("amax", self.amax, rule)
        if self.scaling is not ScalingKind.TENSOR and self.level is FP8Level.O3:
            rule = "does not go with O3, which holds weights with one scale a tensor: use tensor, or level O2"
            raise refused("scaling", self.scaling, rule)
        if self.level is FP8Level.O1 and self.moments is MomentsKind.BLOCK:
            raise refused(
                "moments",
                self.moments,
                "does not go with O1, which keeps float32 moments: use level O2 or O3",
            )
        if self.release_gradients and self.level is FP8Level.O1:
            rule = "does not go with O1, which is about stored gradients: use level O2, or false"
            raise refused("release_gradients", "true", rule)
        return self


class CompileKind(StrEnum):
    AUTO = "auto"
    ON = "on"
    OFF = "off"


class PrecisionSpec(Strict):
    """The number formats of the training arithmetic."""

    kind: PrecisionKind = PrecisionKind.BF16
    """`bf16` computes products in bfloat16 with float32 weights, `fp32` all in float32, `fp8` by the recipe below."""

    fp8: FP8Spec | None = None
    """The FP8 recipe; only for kind `fp8`, where leaving it empty takes its defaults."""

    compile: CompileKind = CompileKind.AUTO
    """Compile the model with torch.compile; `auto` does so on GPUs, and on CPUs in `bf16` runs over 10¹⁴ FLOPs a rank."""

    @model_validator(mode="before")
    @classmethod
    def _default_recipe(cls, given: object) -> object:
        if isinstance(given, dict) and given.get("kind") == PrecisionKind.FP8 and given.get("fp8") is None:
            return given | {"fp8": {}}
        return given

    @model_validator(mode="after")
    def _recipe_fits_kind(self) -> Self:
        if self.fp8 is not None and self.kind is not PrecisionKind.FP8:
            rule = f"is for kind fp8, and the kind here is {self.kind}: set precision.kind to fp8 too, or leave it out"
            raise refused("fp8", "a recipe", rule)
        return self
