"""Named model sizes. A preset fills the model section, and each of its values can be changed."""

from __future__ import annotations

from trainwright.contracts.model_spec import ModelSpec

PRESETS: dict[str, ModelSpec] = {
    "nano": ModelSpec(layers=2, width=64, heads=4, kv_heads=2),
    "micro": ModelSpec(layers=6, width=192, heads=6, kv_heads=2),
    "mini": ModelSpec(layers=8, width=384, heads=6, kv_heads=2),
    "small": ModelSpec(layers=12, width=768, heads=12, kv_heads=4),
    "medium": ModelSpec(layers=24, width=1_024, heads=16, kv_heads=4),
}
"""From a model that trains in seconds on a laptop (`nano`) to a GPT-2-medium-sized one."""
