"""The variants of attention, by their name in a run's spec."""

from __future__ import annotations

from trainwright.contracts.model_spec import ModelSpec
from trainwright_trainer.model.attention import Attention
from trainwright_trainer.model.localized_filtering import LocalizedFilteringAttention

ATTENTION_MODULES: dict[str, type[Attention]] = {
    "full": Attention,
    "localized_filtering": LocalizedFilteringAttention,
}


def build_attention(spec: ModelSpec, layer: int) -> Attention:
    """The attention of a block of ``spec``."""
    return ATTENTION_MODULES[spec.attention](spec, layer)
