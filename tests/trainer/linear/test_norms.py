"""Norms return the dtype of their input, although autocast on a GPU makes torch's return float32."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainwright.contracts.model_spec import ModelSpec
from trainwright_trainer.linear.norms import LayerNorm, RMSNorm
from trainwright_trainer.model.init import initialize
from trainwright_trainer.model.residual_dtype import set_residual_dtype
from trainwright_trainer.model.transformer import Transformer

MODELS: dict[str, dict[str, Any]] = {
    "RMSNorm": {"post_norms": True},
    "LayerNorm": {"norm": "layer", "post_norms": True},
    "norms of heads": {"qk_norm": True},
    "localized filtering": {"attention": "localized_filtering"},
    "parallel block": {"block": "parallel"},
}


@pytest.fixture
def norms_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's norms compute in float32 under autocast, and return it, as they do on CUDA (torch 2.12)."""
    for name in ("rms_norm", "layer_norm"):
        monkeypatch.setattr(F, name, _in_float32(getattr(F, name)))


def _in_float32(norm: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def compute(x: Tensor, *given: Any, **named: Any) -> Tensor:
        if not torch.is_autocast_enabled("cpu"):
            return norm(x, *given, **named)
        with torch.autocast("cpu", enabled=False):
            return norm(x.float(), *given, **named)

    return compute


def dtypes_of(model: Transformer) -> set[torch.dtype]:
    """The dtypes that layers and blocks of a bfloat16 run read and return."""
    seen = set()

    def note(_: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> None:
        seen.update((given[0].dtype, out.dtype))

    set_residual_dtype(model, torch.bfloat16)
    for block in model.layers.values():
        for module in (block, *block.modules()):
            if isinstance(module, nn.Linear | RMSNorm | LayerNorm) or module is block:
                module.register_forward_hook(note)
    with torch.autocast("cpu", torch.bfloat16):
        model.features(torch.randint(64, (2, 16)))
    return seen


def build(options: dict[str, Any]) -> Transformer:
    spec = ModelSpec.model_validate({"layers": 2, "width": 32, "heads": 4} | options)
    model = Transformer(spec, 64, 16)
    initialize(model, spec, seed=0)
    return model


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_no_activation_of_a_bfloat16_run_becomes_float32(
    norms_as_on_a_gpu: None, options: dict[str, Any]
) -> None:
    assert dtypes_of(build(options)) == {torch.bfloat16}


def test_norms_that_return_float32_are_detected(
    norms_as_on_a_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RMSNorm, "forward", nn.RMSNorm.forward)
    assert torch.float32 in dtypes_of(build(MODELS["RMSNorm"]))
