"""Scalings of rotary positions, with the names and the arithmetic of `transformers`."""

from __future__ import annotations

import math
from typing import Literal, Self

from pydantic import Field, model_validator

from trainwright.contracts.base import Strict, field_error


class RopeScalingSpec(Strict):
    """Lower frequencies of rotary positions, so that a model reads sequences longer than those of its first training."""

    rope_type: Literal["llama3", "yarn"] = "llama3"
    """Which frequencies are lowered: `llama3` (Llama 3.1) those of long wavelengths, with a smooth transition; `yarn` (Peng et
    al. 2023) those of few rotations within the original length, and cosines and sines are multiplied by `attention_factor`."""

    factor: float = Field(default=8.0, ge=1.0, le=10_000.0)
    """By how much frequencies are divided: the new length divided by the original one."""

    original_max_position_embeddings: int = Field(default=8_192, ge=1, le=1_048_576)
    """Tokens of a sequence in the first training."""

    low_freq_factor: float | None = Field(default=None, gt=0.0)
    """`llama3` divides frequencies whose wavelength is longer than the original length ÷ this value. Empty: 1."""

    high_freq_factor: float | None = Field(default=None, gt=0.0)
    """`llama3` does not change frequencies whose wavelength is shorter than the original length ÷ this value. Empty: 4."""

    beta_fast: float | None = Field(default=None, gt=0.0)
    """`yarn` does not change frequencies with more rotations than this within the original length. Empty: 32."""

    beta_slow: float | None = Field(default=None, gt=0.0)
    """`yarn` divides frequencies with fewer rotations than this within the original length. Empty: 1."""

    attention_factor: float | None = Field(default=None, gt=0.0, le=100.0)
    """Factor of `yarn` for cosines and sines. Empty: 0.1 · ln(factor) + 1."""

    @model_validator(mode="after")
    def _settings_are_used(self) -> Self:
        for kind, defaults in _SETTINGS.items():
            for name in defaults:
                value = getattr(self, name)
                if value is not None and kind != self.rope_type:
                    rule = f"applies to rope_type {kind} only: leave it empty for {self.rope_type}"
                    raise field_error(name, value, rule)
        lower, higher = ("low_freq_factor", "high_freq_factor")
        if self.rope_type == "yarn":
            lower, higher = ("beta_slow", "beta_fast")
        if self.resolved(lower) >= self.resolved(higher):
            rule = f"must be above {lower} {self.resolved(lower):g}: raise it, or lower {lower}"
            raise field_error(higher, self.resolved(higher), rule)
        return self

    def resolved(self, setting: str) -> float:
        """A setting of this ``rope_type``, also if it is empty."""
        given: float | None = getattr(self, setting)
        default = _SETTINGS[self.rope_type][setting]
        if given is not None:
            return given
        return 0.1 * math.log(self.factor) + 1.0 if default is None else default

    @property
    def parameters(self) -> dict[str, str | float]:
        """All settings of this ``rope_type`` with their values, by their names in `transformers`."""
        return {
            "rope_type": self.rope_type,
            "factor": self.factor,
            "original_max_position_embeddings": self.original_max_position_embeddings,
            **{name: self.resolved(name) for name in _SETTINGS[self.rope_type]},
        }


_SETTINGS: dict[str, dict[str, float | None]] = {
    "llama3": {"low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "yarn": {"beta_fast": 32.0, "beta_slow": 1.0, "attention_factor": None},
}
"""The settings that only some kinds have, and what an empty one means; None: it depends on the factor."""
