"""The variants of attention, by their name in a run's spec."""

from __future__ import annotations

from trainwright.contracts.model_spec import ModelSpec
from trainwright_trainer.model.attention import Attention

ATTENTION_MODULES: dict[str, type[Attention]] = {"full": Attention}


def build_attention(spec: ModelSpec, layer: int) -> Attention:
    """The attention of a block of ``spec``."""
    return ATTENTION_MODULES[spec.attention](spec, layer)
