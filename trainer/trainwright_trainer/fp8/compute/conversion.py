"""The pass that converts a built model to FP8 matmuls, without changes to the model's code.

Every module with a parameter is replaced by one with a ``Weight``, of ``linear`` or ``bf16_layers``. FP8 is used for the matrices
of blocks, except in the first and last blocks that the spec keeps in bfloat16. Embedding, norms and head are
always bfloat16 (FP8-LM, section 2).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import nn

from trainwright.contracts.block_parts import weight_in_block
from trainwright.contracts.block_weight import BlockWeight
from trainwright.contracts.precision_spec import AccumulationKind, FP8Spec
from trainwright_trainer.fp8.compute.bf16_layers import (
    BF16Bias,
    BF16Embedding,
    BF16LayerNorm,
    BF16Linear,
    BF16Norm,
    BF16PositionEmbedding,
)
from trainwright_trainer.fp8.compute.casting import gradient_format
from trainwright_trainer.fp8.compute.linear import FP8Linear, InputCast
from trainwright_trainer.fp8.compute.scaling import AmaxHistory, LayerScaling
from trainwright_trainer.fp8.compute.weight import Weight
from trainwright_trainer.linear.bias import Bias
from trainwright_trainer.linear.norms import LayerNorm
from trainwright_trainer.linear.position_embedding import PositionEmbedding

_GRADIENT_DTYPES = {AccumulationKind.BF16: torch.bfloat16, AccumulationKind.FP32: torch.float32}


class ConvertedModel(NamedTuple):
    """What the optimizer works with."""

    weights: dict[str, Weight]
    """Weights by canonical name, in the order of ``named_parameters``; the updater attaches their values."""

    amax_history: AmaxHistory


def convert(
    model: nn.Module,
    spec: FP8Spec,
    device: torch.device,
    order: Iterable[str] = (),
    one_input: bool = False,
) -> ConvertedModel:
    """Replace the modules of ``model`` in place. The values of its parameters are dropped, so it may be on the
    meta device.

    Args:
        device: of the new layers.
        order: names of all weights if ``model`` has only some: the entire model decides which layers are the
            last.
        one_input: whether both parts of a block read the same input.
    """
    parameters = dict(model.named_parameters())
    dtype = _GRADIENT_DTYPES[spec.accumulation]
    weights = {name: Weight(parameter.shape, dtype, device) for name, parameter in parameters.items()}
    stored = {id(parameters[name]): weight for name, weight in weights.items()}
    layers = _convert_modules(model, stored, fp8_weights(order or parameters, spec), spec, one_input)
    taps = {name: _layer_scaling(layer) for name, layer in layers.items()}
    return ConvertedModel(weights, AmaxHistory(taps, spec.amax, device, gradient_format(spec.scaling)))


def fp8_weights(names: Iterable[str], spec: FP8Spec) -> set[str]:
    """Weights with FP8 matmuls, by canonical name."""
    blocks = {name: int(name.split(".")[1]) for name in names if weight_in_block(name) is not None}
    end = max(blocks.values()) + 1 - spec.bf16_last_layers
    return {
        name
        for name, layer in blocks.items()
        if _in_block(name).is_linear and spec.bf16_first_layers <= layer < end
    }


def _convert_modules(
    model: nn.Module, stored: dict[int, Weight], chosen: set[str], spec: FP8Spec, one_input: bool
) -> dict[str, FP8Linear]:
    """Returns the FP8 layers by the name of their weight, in the order of the forward pass."""
    layers: dict[str, FP8Linear] = {}
    casts: dict[str, InputCast] = {}
    for path, module in list(model.named_modules()):
        own = [name for name, _ in module.named_parameters(recurse=False)]
        if not own:
            continue
        if own != ["weight"]:
            rule = "FP8 runs need a module for each weight, which calls it weight (see linear.bias)"
            raise TypeError(f"{path or 'the model'} itself has {', '.join(own)}: {rule}")
        weight = stored[id(module.weight)]
        parent, _, child = path.rpartition(".")
        if f"{path}.weight" in chosen:
            # The input of a block's part is the output of a norm, and cast and saved once for all that read it.
            shares = _in_block(f"{path}.weight").reads_input
            new = InputCast(spec.scaling, weight.handle.device, of_norm=shares)
            part_or_block = parent.rpartition(".")[0] if one_input else parent
            cast = casts.setdefault(part_or_block if shares else path, new)
            layers[f"{path}.weight"] = FP8Linear(weight, cast)
        setattr(
            model.get_submodule(parent), child, layers.get(f"{path}.weight") or _bf16_module(module, weight)
        )
    return layers


def _bf16_module(module: nn.Module, weight: Weight) -> nn.Module:
    if isinstance(module, PositionEmbedding):
        return BF16PositionEmbedding(weight)
    if isinstance(module, nn.Embedding):
        return BF16Embedding(weight)
    if isinstance(module, nn.RMSNorm):
        return BF16Norm(weight, module.eps)
    if isinstance(module, LayerNorm):
        return BF16LayerNorm(weight, module.eps, module.shift)
    if isinstance(module, Bias):
        return BF16Bias(weight)
    if isinstance(module, nn.Linear) and module.bias is None:
        return BF16Linear(weight)
    raise TypeError(
        f"a {type(module).__name__} has weights, and no layer for FP8 runs: write one, or exclude FP8"
    )


def _in_block(name: str) -> BlockWeight:
    weight = weight_in_block(name)
    assert weight is not None
    return weight


def _layer_scaling(layer: FP8Linear) -> LayerScaling:
    return LayerScaling(
        layer.input_cast.amax,
        layer.input_cast.delayed,
        layer.output_gradient_probe,
        layer.output_gradient_scale,
    )
