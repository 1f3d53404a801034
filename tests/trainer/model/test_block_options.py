"""Activations, norms and biases of blocks: they follow their formulas in every layout, and are counted and
exported."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from tests.trainer.fault_injection import inject_fault, own
from tests.trainer.model.option_trainings import FP8, FP32, build, learned
from trainwright.contracts.export_architecture import architecture_of
from trainwright.contracts.model_spec import ModelSpec
from trainwright.planner.flops import count_parameters, flops_per_token
from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.model import transformer
from trainwright_trainer.model.feed_forward import FeedForward
from trainwright_trainer.model.norm import build_norm

SPEC = ModelSpec(layers=1, width=32, heads=4, kv_heads=2)
GPT: dict[str, Any] = {"activation": "gelu", "norm": "layer", "biases": "all"}


def spec_of(**options: object) -> ModelSpec:
    return SPEC.model_copy(update=options)


def fill(module: torch.nn.Module) -> None:
    """Random weights, biases and norms too."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in module.parameters():
            weight.normal_(std=0.5, generator=generator)


def gelu(x: Tensor) -> Tensor:
    return x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def forwarded(given: FeedForward, kind: str, x: Tensor) -> Tensor:
    up = x @ given.up.weight.T + given.up_bias.weight
    if kind == "gelu":
        return gelu(up) @ given.down.weight.T
    assert given.gate is not None and given.gate_bias is not None
    gate = x @ given.gate.weight.T + given.gate_bias.weight
    return ((gate * gate.sigmoid() if kind == "swiglu" else gelu(gate)) * up) @ given.down.weight.T


@pytest.mark.parametrize("kind", ["swiglu", "geglu", "gelu"])
def test_a_feed_forward_network_computes_its_formula(kind: str) -> None:
    given = FeedForward(spec_of(activation=kind, biases="all"))
    fill(given)
    x = torch.randn(5, 32, generator=torch.Generator().manual_seed(1))
    # Two matmuls in sequence, of sums of at most 128 terms of order 1 in float32.
    with torch.no_grad():
        assert (given(x) - forwarded(given, kind, x)).abs().max() <= 2 * 128 * 2.0**-22
        other = forwarded(given, "geglu" if kind == "swiglu" else "swiglu", x) if kind != "gelu" else x
        assert (given(x) - other).abs().max() > 1e-2


@pytest.mark.parametrize("kind", ["rms", "layer", "layer_without_bias"])
def test_a_norm_computes_its_formula(kind: str) -> None:
    norm = build_norm(spec_of(norm=kind))
    fill(norm)
    x = 3 + torch.randn(5, 32, generator=torch.Generator().manual_seed(1))
    centred = x if kind == "rms" else x - x.mean(-1, keepdim=True)
    wanted = centred / (centred.square().mean(-1, keepdim=True) + SPEC.norm_epsilon).sqrt() * norm.weight
    if kind == "layer":
        wanted = wanted + norm.shift.weight
    with torch.no_grad():
        assert (norm(x) - wanted).abs().max() <= 32 * 2.0**-22


@pytest.mark.parametrize("block", ["serial", "parallel"])
def test_biases_are_added_to_the_outputs_of_their_layers(block: str) -> None:
    """A block whose matrices are zero adds the biases of its last layers, and nothing else."""
    model = build(spec_of(biases="all", block=block))
    for name, weight in model.layers["0"].named_parameters():
        torch.nn.init.zeros_(weight) if weight.ndim == 2 else torch.nn.init.normal_(weight)
        assert weight.ndim == 2 or "bias" in name or "norm" in name
    biases = [
        w for name, w in model.layers["0"].named_parameters() if name.count(".") == 1 and "bias" in name
    ]
    x = torch.randn(2, 16, 32)
    with torch.no_grad():
        added = model.layers["0"](x, model.tables(16, torch.float32)) - x
        assert (added - torch.stack(list(biases)).sum(0)).abs().max() <= 2.0**-20


@pytest.mark.parametrize("biases", ["query_key_value", "all"])
def test_biases_of_queries_keys_and_values_are_those_of_linear_layers(biases: str) -> None:
    attention = build(spec_of(biases=biases)).layers["0"].attention
    fill(attention)
    x = torch.randn(2, 16, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        tables = build(SPEC).tables(16, torch.float32)
        matmuls = [attention.query(x), attention.key(x), attention.value(x)]
        own = [attention.query_bias.weight, attention.key_bias.weight, attention.value_bias.weight]
        biased = [matmul + bias for matmul, bias in zip(matmuls, own, strict=True)]
        got = attention.mix(tables, *matmuls)
        for bias in own:
            bias.zero_()
        assert torch.equal(got, attention.mix(tables, *biased))
        assert not torch.equal(got, attention.mix(tables, *matmuls))


@pytest.mark.parametrize("block", ["serial", "parallel"])
def test_multipliers_scale_the_embedding_and_the_residual_branches(block: str) -> None:
    options = {"block": block, "embedding_multiplier": 4.0, "residual_multiplier": 0.5}
    plain, scaled = build(spec_of(block=block)), build(spec_of(**options))
    tokens = torch.randint(0, 64, (2, 16), generator=torch.Generator().manual_seed(0))
    x = torch.randn(2, 16, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert torch.equal(scaled.embed(tokens), 4 * plain.embed(tokens))
        tables = plain.tables(16, torch.float32)
        first, second = plain.layers["0"], scaled.layers["0"]
        if block == "parallel":
            wanted = x + (first(x, tables) - x) / 2
        else:
            middle = x + first.attention(first.attention_norm(x), tables) / 2
            wanted = middle + first.feed_forward(first.feed_forward_norm(middle)) / 2
        assert (second(x, tables) - wanted).abs().max() <= 32 * 2.0**-20
        assert (second(x, tables) - first(x, tables)).abs().max() > 1e-2


def test_results_of_both_parts_are_normed_before_they_are_added() -> None:
    options = {"post_norms": True, "residual_multiplier": 0.5, "biases": "all"}
    block = build(spec_of(**options)).layers["0"]
    fill(block)
    x = torch.randn(2, 16, 32, generator=torch.Generator().manual_seed(1))

    def normed(part: Tensor, weight: Tensor) -> Tensor:
        return part / (part.square().mean(-1, keepdim=True) + SPEC.norm_epsilon).sqrt() * weight

    with torch.no_grad():
        tables = build(SPEC).tables(16, torch.float32)
        attended = block.attention(block.attention_norm(x), tables) + block.attention_bias.weight
        middle = x + normed(attended, block.attention_post_norm.weight) / 2
        forwarded = block.feed_forward(block.feed_forward_norm(middle)) + block.feed_forward_bias.weight
        wanted = middle + normed(forwarded, block.feed_forward_post_norm.weight) / 2
        assert (block(x, tables) - wanted).abs().max() <= 32 * 2.0**-20
        assert (block(x, tables) - middle).abs().max() > 1e-1


def test_norms_after_the_parts_need_separate_parts() -> None:
    with pytest.raises(ValidationError) as error:
        ModelSpec.model_validate({"post_norms": True, "block": "parallel"})
    assert error.value.errors()[0]["ctx"]["field"] == "post_norms"


def test_only_biases_start_at_zero() -> None:
    for name, weight in build(spec_of(**GPT)).named_parameters():
        if weight.ndim == 1:
            is_bias = "bias" in name or "shift" in name
            assert bool((weight == (0 if is_bias else 1)).all()), name


SCALED = {"embedding_multiplier": 4.0, "residual_multiplier": 0.5}
MODEL = {"layers": 2, "tied_embeddings": False, "initializer_std": 0.2} | GPT | SCALED
POST_NORMS = {"serial": {"post_norms": True}, "parallel": {}}


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("block", ["serial", "parallel"])
def test_tensor_ranks_learn_what_one_process_does(tmp_path: Path, data: Path, block: str) -> None:
    """Other layouts are cells of ``tests.parity``."""
    model = MODEL | {"block": block} | POST_NORMS[block]
    one = learned(tmp_path, data, model, FP32)
    # About ten matmuls are computed in sequence in each of two layers, sums of at most 256 tokens in float32.
    bound = 20 * 256 * 2.0**-24
    assert learned(tmp_path, data, model, FP32, tensor=2) == pytest.approx(one, rel=bound)
    if block == "parallel":
        chunked = learned(tmp_path / "chunked", data, model, FP32, tensor=2, tensor_chunks=2)
        assert chunked == pytest.approx(one, rel=bound)
        return
    apart = learned(tmp_path / "apart", data, model, FP32, leave_out_sums, tensor=2)
    assert apart != pytest.approx(one, rel=bound), "a gradient that is not summed must be detected"


def leave_out_sums() -> None:
    inject_fault(Axis, "all_reduce", own, "sum_over_ranks").__enter__()  # the process ends with the training


@pytest.mark.slow(target="layouts")
def test_stages_in_fp8_learn_what_one_process_does(tmp_path: Path, data: Path) -> None:
    """Bit for bit, except for the order in which squares are summed to a norm."""
    one = learned(tmp_path, data, MODEL, FP8)
    assert learned(tmp_path, data, MODEL, FP8, pipeline=2) == pytest.approx(one, rel=256 * 2.0**-24)


def test_the_planner_counts_what_options_add() -> None:
    """GPT's block has 12·D² weights in matrices, 9·D in biases and 4·D in norms."""
    model = ModelSpec(layers=3, width=64, heads=4, **GPT)
    counted = count_parameters(model, 100, 16)
    assert counted.total == 100 * 64 + 3 * (12 * 64**2 + 13 * 64) + 2 * 64
    assert flops_per_token(model, 100, 16) == 6 * (3 * 12 * 64**2 + 100 * 64) + 3 * 12 * 64 * 16
    with torch.device("meta"):
        built = transformer.Transformer(model, 100, 16)
    assert counted.total == sum(weight.numel() for weight in built.parameters())


@pytest.mark.parametrize(
    ("options", "architecture"),
    [
        ({"biases": "query_key_value"}, "Qwen2ForCausalLM"),
        ({"biases": "all"}, "LlamaForCausalLM"),
        ({"activation": "geglu"}, "LlamaForCausalLM"),
        ({"embedding_multiplier": 32**0.5, "activation": "geglu"}, "GemmaForCausalLM"),
        ({"embedding_multiplier": 32**0.5}, "GraniteForCausalLM"),
        ({"residual_multiplier": 0.5, "qk_norm": True}, "TrainwrightForCausalLM"),
        ({"activation": "gelu"}, "TrainwrightForCausalLM"),
        ({"norm": "layer_without_bias"}, "TrainwrightForCausalLM"),
        ({"biases": "all", "qk_norm": True}, "TrainwrightForCausalLM"),
        ({"biases": "query_key_value", "sliding_window": 4}, "Qwen2ForCausalLM"),
        ({"biases": "all", "sliding_window": 4}, "SmolLM3ForCausalLM"),
        (GPT, "Starcoder2ForCausalLM"),
        (GPT | {"positions": "learned"}, "TrainwrightForCausalLM"),
        (GPT | {"positions": "learned", "kv_heads": 4}, "GPT2LMHeadModel"),
    ],
)
def test_a_transformers_class_is_named_only_if_it_computes_the_same(
    options: dict[str, Any], architecture: str
) -> None:
    assert architecture_of(spec_of(**options)).architecture == architecture
