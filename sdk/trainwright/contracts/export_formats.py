"""The code that loads the export of a model: a class of `transformers`, or the plain PyTorch file that comes with the
export.

It is known before a run starts, so the run's plan names it.
"""

from __future__ import annotations

from trainwright.contracts.block_parts import HuggingFace, attention_of
from trainwright.contracts.model_spec import ModelSpec

PLAIN = HuggingFace("TrainwrightForCausalLM", "trainwright")
"""No class of `transformers`: ``PLAIN_FILE`` reads the export."""

PLAIN_FILE = "model.py"
"""It needs torch and safetensors, and none of our packages."""

_UNKNOWN_TO_TRANSFORMERS: dict[str, dict[object, str]] = {
    "attention": {"localized_filtering": "no class has localized filtering attention"},
    "block": {"parallel": "no class has parallel blocks with RMSNorm and SwiGLU"},
}
"""Values of fields of ``ModelSpec`` with which no class of `transformers` computes the same, and why."""


def format_of(model: ModelSpec) -> HuggingFace:
    """The class that reads exports of ``model``, or ``PLAIN``."""
    found = attention_of(model).hugging_face(model) if _why_plain(model) is None else None
    return found or PLAIN


def loaded_by(model: ModelSpec) -> str:
    """A sentence for people who choose the model."""
    reason = _why_plain(model)
    if reason is None:
        return f"transformers loads the export as {format_of(model).architecture}."
    return f"transformers cannot load the export ({reason}); the file {PLAIN_FILE} that comes with it can."


def _why_plain(model: ModelSpec) -> str | None:
    if model.qk_norm and model.sliding_window is not None:
        return "no class has norms of queries and keys together with sliding windows like these"
    reasons = (whys.get(getattr(model, field)) for field, whys in _UNKNOWN_TO_TRANSFORMERS.items())
    return next((reason for reason in reasons if reason is not None), None)
