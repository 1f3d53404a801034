"""The code that loads the export of a model: a class of `transformers`, or the plain PyTorch file that comes with the
export.

It is known before a run starts, so the run's plan names it.
"""

from __future__ import annotations

from collections.abc import Callable

from trainwright.contracts.block_parts import attention_of
from trainwright.contracts.hugging_face import HuggingFaceArchitecture, has_multipliers
from trainwright.contracts.model_spec import ModelSpec

PLAIN = HuggingFaceArchitecture("TrainwrightForCausalLM", "trainwright")
"""No class of `transformers`: ``PLAIN_FILE`` reads the export."""

PLAIN_FILE = "model.py"
"""It needs torch and safetensors, and none of our packages."""

_UNKNOWN_TO_TRANSFORMERS: tuple[tuple[Callable[[ModelSpec], bool], str], ...] = (
    (lambda m: m.block == "parallel", "no class has parallel blocks like these"),
    (lambda m: m.norm != "rms", "no class has LayerNorm with rotary positions and these biases"),
    (lambda m: not m.is_gated, "no class has RMSNorm with GELU without a gate"),
    (
        lambda m: m.qk_norm and (m.sliding_window is not None or m.biases != "none"),
        "no class has norms of queries and keys together with biases, or sliding windows like these",
    ),
    (
        lambda m: has_multipliers(m) and (m.qk_norm or m.sliding_window is not None),
        "no class has multipliers together with norms of queries and keys, or sliding windows",
    ),
    (
        lambda m: has_multipliers(m) and m.biases == "query_key_value",
        "no class has multipliers together with biases of queries, keys and values only",
    ),
    (
        lambda m: m.biases != "none" and m.sliding_window is not None,
        "no class has biases together with sliding windows like these",
    ),
)
"""Models that no class of `transformers` computes, whatever their attention, and why."""


def architecture_of(model: ModelSpec) -> HuggingFaceArchitecture:
    """The class that reads exports of ``model``, or ``PLAIN``."""
    found = _class_or_reason(model)
    return PLAIN if isinstance(found, str) else found


def loaded_by(model: ModelSpec) -> str:
    """A sentence for people who choose the model."""
    found = _class_or_reason(model)
    if isinstance(found, str):
        return f"transformers cannot load the export ({found}); the file {PLAIN_FILE} that comes with it can."
    return f"transformers loads the export as {found.architecture}."


def _class_or_reason(model: ModelSpec) -> HuggingFaceArchitecture | str:
    found = attention_of(model).hugging_face(model)
    if isinstance(found, str):
        return found
    return next((reason for is_unknown, reason in _UNKNOWN_TO_TRANSFORMERS if is_unknown(model)), found)
