"""The residual stream of a bfloat16 run is bfloat16 from the first block to the last;
its weights are updated in float32."""

import pytest
import torch
from torch import Tensor, nn

from trainwright.contracts.model_spec import ModelSpec
from trainwright_trainer.model.init import initialize
from trainwright_trainer.model.loss import head_loss
from trainwright_trainer.model.residual_dtype import set_residual_dtype
from trainwright_trainer.model.transformer import Transformer


@pytest.mark.parametrize(("carried", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_the_residual_stream_has_the_configured_dtype(carried: bool, dtype: torch.dtype) -> None:
    spec = ModelSpec(layers=3, width=32, heads=4)
    model = Transformer(spec, 64, 16)
    initialize(model, spec, seed=0)
    if carried:
        set_residual_dtype(model, torch.bfloat16)
    seen: list[torch.dtype] = []

    def look(_: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> None:
        seen.extend((given[0].dtype, out.dtype))

    for block in model.layers.values():
        block.register_forward_hook(look)
    tokens, targets = torch.randint(64, (2, 2, 16))
    with torch.autocast("cpu", torch.bfloat16):
        loss = head_loss(model.features(tokens), model.head.weight, targets, 8)
    loss.backward()
    assert seen == [dtype] * 6
    assert loss.dtype == torch.float32
    assert {weight.grad.dtype for weight in model.parameters() if weight.grad is not None} == {torch.float32}
    assert [name for name, _ in model.named_parameters()] == [
        name for name, _ in Transformer(spec, 64, 16).named_parameters()
    ]
