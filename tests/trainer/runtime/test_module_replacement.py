"""A pass replaces modules of the classes it knows, preserves names and ties, and refuses what it would lose."""

import pytest
import torch
from torch import nn

from trainwright_trainer.runtime.module_replacement import replace_modules


class Doubled(nn.Linear):
    def __init__(self, layer: nn.Linear) -> None:
        super().__init__(layer.in_features, layer.out_features, bias=False, device="meta")
        self.weight = layer.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


def _model() -> nn.ModuleDict:
    inner = nn.Sequential(nn.Linear(4, 4, bias=False), nn.RMSNorm(4))
    model = nn.ModuleDict({"inner": inner, "last": nn.Linear(4, 4, bias=False)})
    model["last"].weight = inner[0].weight
    return model


def test_parameters_keep_their_names_and_stay_tied() -> None:
    model = _model()
    before = dict(model.named_parameters())
    replace_modules(model, {nn.Linear: Doubled})
    assert type(model["inner"][0]) is type(model["last"]) is Doubled
    assert type(model["inner"][1]) is nn.RMSNorm
    after = dict(model.named_parameters())
    assert after.keys() == before.keys() and all(after[name] is before[name] for name in after)
    assert model["last"].weight is model["inner"][0].weight


def test_only_the_chosen_paths_are_replaced() -> None:
    model = _model()
    replace_modules(model, {nn.Linear: Doubled}, lambda path: path == "inner.0")
    assert (type(model["inner"][0]), type(model["last"])) == (Doubled, nn.Linear)


def test_a_subclass_that_the_pass_does_not_know_is_refused_by_its_path() -> None:
    model = _model()
    replace_modules(model, {nn.Linear: Doubled})
    with pytest.raises(TypeError, match=r"inner\.0 is a Doubled, which this pass does not know.*Linear"):
        replace_modules(model, {nn.Linear: Doubled})
