"""Named model sizes. A preset fills the model section, and each of its values can be changed.

A published model is one entry of ``PUBLISHED``, with the parameters that its authors published. Only models that the
trainer computes exactly are here: every option that they need exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from trainwright.contracts.model_spec import ModelSpec

OWN_SIZES = "Small models"
"""The family of the sizes that are ours."""

_OWN: dict[str, ModelSpec] = {
    "nano": ModelSpec(layers=2, width=64, heads=4, kv_heads=2),
    "micro": ModelSpec(layers=6, width=192, heads=6, kv_heads=2),
    "mini": ModelSpec(layers=8, width=384, heads=6, kv_heads=2),
    "small": ModelSpec(layers=12, width=768, heads=12, kv_heads=4),
    "medium": ModelSpec(layers=24, width=1_024, heads=16, kv_heads=4),
}
"""From a model that trains in seconds on a laptop (`nano`) to a GPT-2-medium-sized one."""


@dataclass(frozen=True)
class Published:
    """A model of a paper, or a small one with the same options (without published parameters)."""

    family: str
    model: ModelSpec
    source: str
    vocabulary: int
    parameters: int | None = None
    """As published, with embeddings."""


_LLAMA = partial(ModelSpec, tied_embeddings=False)
_LLAMA_2 = partial(Published, "Llama 2", source="arXiv 2307.09288", vocabulary=32_000)
_LLAMA_3 = partial(Published, "Llama 3", source="arXiv 2407.21783", vocabulary=128_256)

PUBLISHED: dict[str, Published] = {
    "llama-2-tiny": _LLAMA_2(_LLAMA(layers=2, width=128, heads=4, feed_forward=352)),
    "tinyllama-1.1b": Published(
        "Llama 2",
        _LLAMA(layers=22, width=2_048, heads=32, kv_heads=4, feed_forward=5_632),
        source="arXiv 2401.02385",
        vocabulary=32_000,
        parameters=1_100_048_384,
    ),
    "llama-2-7b": _LLAMA_2(
        _LLAMA(layers=32, width=4_096, heads=32, feed_forward=11_008), parameters=6_738_415_616
    ),
    "llama-2-13b": _LLAMA_2(
        _LLAMA(layers=40, width=5_120, heads=40, feed_forward=13_824), parameters=13_015_864_320
    ),
    "llama-2-70b": _LLAMA_2(
        _LLAMA(layers=80, width=8_192, heads=64, kv_heads=8, feed_forward=28_672), parameters=68_976_648_192
    ),
    "llama-3-tiny": _LLAMA_3(
        _LLAMA(layers=2, width=128, heads=4, kv_heads=2, feed_forward=448, rope_theta=500_000.0)
    ),
    "llama-3-8b": _LLAMA_3(
        _LLAMA(layers=32, width=4_096, heads=32, kv_heads=8, feed_forward=14_336, rope_theta=500_000.0),
        parameters=8_030_261_248,
    ),
    "llama-3-70b": _LLAMA_3(
        _LLAMA(layers=80, width=8_192, heads=64, kv_heads=8, feed_forward=28_672, rope_theta=500_000.0),
        parameters=70_553_706_496,
    ),
}

PRESETS: dict[str, ModelSpec] = _OWN | {name: each.model for name, each in PUBLISHED.items()}

PRESET_FAMILIES: dict[str, str] = dict.fromkeys(_OWN, OWN_SIZES) | {
    name: each.family for name, each in PUBLISHED.items()
}
"""The family of each preset; pages group them by it, in this order."""
