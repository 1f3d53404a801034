"""The number of parameters of each named model size."""

from __future__ import annotations

from trainwright.contracts.data_spec import TokenizerSpec
from trainwright.contracts.presets import PRESETS, PUBLISHED
from trainwright.contracts.training_spec import BatchSpec
from trainwright.planner.flops import count_parameters


def preset_parameters() -> dict[str, int]:
    """Parameters by name: of published models with their own vocabulary, of the others with the default one."""
    usual = TokenizerSpec().size, BatchSpec().sequence_tokens
    published = {name: (each.vocabulary, each.sequence_tokens) for name, each in PUBLISHED.items()}
    return {
        name: count_parameters(model, *published.get(name, usual)).total for name, model in PRESETS.items()
    }
