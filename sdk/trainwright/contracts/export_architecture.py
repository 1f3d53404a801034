"""The code that loads the export of a model: a class of `transformers`, or the plain PyTorch file that comes with the
export.

It is known before a run starts, so the run's plan names it.
"""

from __future__ import annotations

from trainwright.contracts.block_parts import attention_of
from trainwright.contracts.hugging_face import HuggingFaceArchitecture
from trainwright.contracts.model_spec import ModelSpec

PLAIN = HuggingFaceArchitecture("TrainwrightForCausalLM", "trainwright")
"""No class of `transformers`: ``PLAIN_FILE`` reads the export."""

PLAIN_FILE = "model.py"
"""It needs torch and safetensors, and none of our packages."""


def architecture_of(model: ModelSpec) -> HuggingFaceArchitecture:
    """The class that reads exports of ``model``, or ``PLAIN``."""
    found = attention_of(model).hugging_face(model)
    return PLAIN if isinstance(found, str) else found


def loaded_by(model: ModelSpec) -> str:
    """A sentence for people who choose the model."""
    found = attention_of(model).hugging_face(model)
    if isinstance(found, str):
        return f"transformers cannot load the export ({found}); the file {PLAIN_FILE} that comes with it can."
    return f"transformers loads the export as {found.architecture}."
