"""The pass that turns a built model into one with FP8 products; no module of the model knows of it.

Every module that holds a parameter is replaced by one of ``modules`` that holds a ``Weight``. Which products are FP8 is
data: those of the matrices of blocks, but for the first and last blocks that the spec keeps high. Embedding, norms and
head are high always (FP8-LM, section 2).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import nn

from trainwright.contracts.precision_spec import AccumulationKind, FP8Spec
from trainwright_trainer.fp8.modules import FP8Linear, HighEmbedding, HighLinear, HighNorm, InputCast
from trainwright_trainer.fp8.scaling import AmaxRecords, Tap
from trainwright_trainer.fp8.weights import Weight

_OF_BLOCK = re.compile(r"layers\.(\d+)\.(.+)\.weight")

_SAME_INPUT = {"query": "query", "key": "query", "value": "query", "gate": "gate", "up": "gate"}
"""Modules of one parent that read the same tensor, by the first of them: it is cast and kept once for all."""

_GRADIENT_DTYPES = {AccumulationKind.BF16: torch.bfloat16, AccumulationKind.FP32: torch.float32}


class Converted(NamedTuple):
    """What the optimizer works with."""

    weights: dict[str, Weight]
    """By canonical name, in the order of ``named_parameters``; numbers are attached by who holds them."""

    records: AmaxRecords


def convert(model: nn.Module, spec: FP8Spec, order: Iterable[str] = ()) -> Converted:
    """Replace the modules of ``model`` in place, on the device where it lies. Its parameters' numbers are let go.

    Args:
        order: names of all weights, where ``model`` has a part of them: which layers are the last is a matter of all.
    """
    parameters = dict(model.named_parameters())
    dtype = _GRADIENT_DTYPES[spec.accumulation]
    weights = {name: Weight(one.shape, dtype, one.device) for name, one in parameters.items()}
    held = {id(parameters[name]): weight for name, weight in weights.items()}
    layers = _convert_modules(model, held, products(order or parameters, spec), spec)
    taps = {name: _tap(layer) for name, layer in layers.items()}
    return Converted(weights, AmaxRecords(taps, spec.amax, next(iter(parameters.values())).device))


def products(names: Iterable[str], spec: FP8Spec) -> set[str]:
    """Weights whose products are computed in FP8, by canonical name."""
    blocks = {name: int(found[1]) for name in names if (found := _OF_BLOCK.fullmatch(name))}
    matrices = {name for name in blocks if not name.endswith("norm.weight")}
    end = max(blocks.values()) + 1 - spec.high_last_layers
    return {name for name in matrices if spec.high_first_layers <= blocks[name] < end}


def _convert_modules(
    model: nn.Module, held: dict[int, Weight], chosen: set[str], spec: FP8Spec
) -> dict[str, FP8Linear]:
    """Returns the FP8 layers by the name of their weight, in the order of the forward pass."""
    layers: dict[str, FP8Linear] = {}
    casts: dict[str, InputCast] = {}
    for path, module in list(model.named_modules()):
        if not any(True for _ in module.parameters(recurse=False)):
            continue
        weight = held[id(module.weight)]
        parent, _, child = path.rpartition(".")
        if f"{path}.weight" in chosen:
            shared = f"{parent}.{_SAME_INPUT.get(child, child)}"
            cast = casts.setdefault(shared, InputCast(spec.scaling, weight.handle.device))
            layers[f"{path}.weight"] = FP8Linear(weight, cast)
        setattr(model.get_submodule(parent), child, layers.get(f"{path}.weight") or _high(module, weight))
    return layers


def _high(module: nn.Module, weight: Weight) -> nn.Module:
    if isinstance(module, nn.Embedding):
        return HighEmbedding(weight)
    if isinstance(module, nn.RMSNorm):
        return HighNorm(weight, module.eps)
    assert isinstance(module, nn.Linear) and module.bias is None, "the model has no other kind of module"
    return HighLinear(weight)


def _tap(layer: FP8Linear) -> Tap:
    return Tap(
        layer.input_cast.amax,
        layer.input_cast.delayed,
        layer.output_gradient_probe,
        layer.output_gradient_scale,
    )
