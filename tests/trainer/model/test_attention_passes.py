"""Options of attention under recomputation and compilation."""

import pytest
import torch

from tests.trainer.model.option_trainings import build, loss_and_gradients
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.training_spec import MemorySpec, RecomputeKind
from trainwright_trainer.model.recompute import recompute

END = 0
SPECS = {
    "sliding windows": ModelSpec(
        layers=3, width=32, heads=4, kv_heads=2, sliding_window=5, sliding_window_pattern=3
    ),
    "GPT": ModelSpec(layers=2, width=32, heads=4, activation="gelu", norm="layer", biases="all"),
    "localized filtering": ModelSpec(
        layers=2, width=32, heads=4, kv_heads=2, attention="localized_filtering", qk_norm=True
    ),
}


@pytest.mark.parametrize("end", [None, END], ids=["one document", "documents"])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("kind", [RecomputeKind.SELECTIVE, RecomputeKind.FULL])
def test_recomputation_changes_no_bit(kind: RecomputeKind, spec: ModelSpec, end: int | None) -> None:
    plain, again = build(spec, end), build(spec, end)
    recompute(again, MemorySpec(recompute=kind))
    results = zip(loss_and_gradients(plain), loss_and_gradients(again), strict=True)
    assert all(torch.equal(one, other) for one, other in results)


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("end", [None, END], ids=["one document", "documents"])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_block_is_one_graph(spec: ModelSpec, end: int | None) -> None:
    plain, traced = build(spec, end), build(spec, end)
    for block in traced.layers.values():
        block.compile(fullgraph=True, dynamic=False, backend="eager")
    results = zip(loss_and_gradients(plain), loss_and_gradients(traced), strict=True)
    assert all(torch.equal(one, other) for one, other in results)
