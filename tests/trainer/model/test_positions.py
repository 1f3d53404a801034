"""Positions: rotary ones of all features or some, scaled or not, in all layers or some; learned ones; none."""

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from transformers import GPTNeoXConfig, LlamaConfig
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXRotaryEmbedding
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from tests.trainer.jobs import TINY
from tests.trainer.model.option_trainings import FP8, FP32, LENGTH, build, learned
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.rope_scaling import RopeScalingSpec
from trainwright.contracts.run_spec import RunSpec
from trainwright.planner.flops import count_parameters
from trainwright.planner.memory import rank_memory
from trainwright_trainer.model.rotary import rotary_table, rotate
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.parallel.tensor import parallelize

SPEC = ModelSpec(layers=2, width=32, heads=4, kv_heads=2)
END = 0


def spec_of(**options: object) -> ModelSpec:
    return ModelSpec.model_validate(SPEC.model_dump() | options)


def tokens_of(*seeds: int) -> Tensor:
    return torch.stack(
        [torch.randint(1, 64, (LENGTH,), generator=torch.Generator().manual_seed(seed)) for seed in seeds]
    )


def test_learned_positions_are_added_to_embedded_tokens_and_restart_with_documents() -> None:
    spec, tokens = spec_of(positions="learned", embedding_multiplier=3.0), tokens_of(0, 1)
    tokens[0, 4], tokens[1, [2, 3]] = END, END
    model = build(spec, END)
    rows, table = model.embedding.weight, model.get_parameter("position_embedding.weight")
    places = [[*range(5), *range(11)], [*range(3), 0, *range(12)]]
    with torch.no_grad():
        wanted = 3 * rows[tokens] + table[torch.tensor(places)]
        assert torch.equal(model.embed(tokens, model.starts(tokens)), wanted)
        assert torch.equal(build(spec).embed(tokens), 3 * rows[tokens] + table[:LENGTH])


def attended(model: Transformer, layer: str, x: Tensor) -> Tensor:
    """What the last token gets from the attention of a layer."""
    with torch.no_grad():
        out: Tensor = model.layers[layer].attention(x, model.tables(LENGTH, torch.float32))
    return out[0, -1]


@pytest.mark.parametrize(
    ("options", "sees_order"),
    [
        ({}, [True, True]),
        ({"no_rope_layer_interval": 2}, [True, False]),
        ({"positions": "none"}, [False, False]),
        ({"positions": "learned"}, [False, False]),
    ],
)
def test_attention_without_rotary_positions_sees_a_set_of_tokens(
    options: dict[str, Any], sees_order: list[bool]
) -> None:
    model = build(spec_of(**options))
    x = torch.randn(1, LENGTH, 32, generator=torch.Generator().manual_seed(0))
    swapped = x[:, [1, 0, *range(2, LENGTH)]]
    # A weighted mean of 16 tokens in float32, in another order.
    moved = [
        float((attended(model, layer, x) - attended(model, layer, swapped)).abs().max()) for layer in "01"
    ]
    assert [distance > 1e-4 for distance in moved] == sees_order
    assert all(distance <= 2.0**-16 for distance, sees in zip(moved, sees_order, strict=True) if not sees)


@pytest.mark.parametrize("factor", [0.25, 0.75, 1.0])
def test_the_first_features_of_a_head_are_rotated_as_complex_numbers(factor: float) -> None:
    spec = spec_of(head_size=16, partial_rotary_factor=factor)
    rotated = int(16 * factor)
    x = torch.randn(2, 4, LENGTH, 16, generator=torch.Generator().manual_seed(0))
    half = rotated // 2
    places = torch.arange(LENGTH, dtype=torch.float64)[:, None]
    angles = places * spec.rope_theta ** (-2 * torch.arange(half, dtype=torch.float64) / rotated)
    pairs = torch.complex(x[..., :half].double(), x[..., half:rotated].double())
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    wanted = torch.cat((turned.real, turned.imag, x[..., rotated:].double()), -1)
    got = rotate(x, *rotary_table(LENGTH, spec.rotary_features, spec.rope_theta))
    # Angles of at most 16 in float32, and a sum of two products of order 4.
    assert (got - wanted).abs().max() <= 16 * 4 * 2.0**-23
    assert torch.equal(got[..., rotated:], x[..., rotated:])


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
SCALINGS: dict[str, dict[str, Any]] = {
    "llama3": {},
    "llama3 with own bounds": {
        "factor": 3.0,
        "original_max_position_embeddings": 300,
        "low_freq_factor": 2.0,
    },
    "yarn": YARN,
    "yarn with own bounds": YARN | {"beta_fast": 8.0, "beta_slow": 2.0, "attention_factor": 1.5},
    "yarn of short sequences": YARN | {"original_max_position_embeddings": 4, "factor": 100.0},
}


@pytest.mark.parametrize("which", SCALINGS)
@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_scaled_tables_are_those_of_transformers_bit_for_bit(which: str, factor: float) -> None:
    scaling = RopeScalingSpec.model_validate(SCALINGS[which])
    parameters = scaling.parameters | {"rope_theta": 10_000.0, "partial_rotary_factor": factor}
    config = {"hidden_size": 64, "num_attention_heads": 1, "rope_parameters": parameters}
    theirs = (
        LlamaRotaryEmbedding(LlamaConfig(**config))
        if factor == 1
        else GPTNeoXRotaryEmbedding(GPTNeoXConfig(**config))
    )
    ours = rotary_table(2_048, int(64 * factor), 10_000.0, scaling)
    expected = theirs(torch.zeros(1), torch.arange(2_048)[None])
    assert all(torch.equal(mine, other[0]) for mine, other in zip(ours, expected, strict=True))
    plain = rotary_table(2_048, int(64 * factor), 10_000.0)
    assert not torch.equal(ours[0], plain[0])


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"positions": "learned", "partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"positions": "none", "rope_scaling": {}}, "rope_scaling"),
        ({"positions": "none", "no_rope_layer_interval": 2}, "no_rope_layer_interval"),
        ({"no_rope_layer_interval": 3}, "no_rope_layer_interval"),
        ({"partial_rotary_factor": 0.4}, "partial_rotary_factor"),
        ({"partial_rotary_factor": 0.1}, "partial_rotary_factor"),
        ({"rope_scaling": {"beta_fast": 3.0}}, "beta_fast"),
        ({"rope_scaling": {"low_freq_factor": 5.0}}, "high_freq_factor"),
    ],
)
def test_settings_that_do_not_apply_are_refused(options: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as error:
        spec_of(**options)
    assert error.value.errors()[0]["ctx"]["field"] == field


MODEL = {"layers": 2, "tied_embeddings": False, "initializer_std": 0.2, "positions": "learned"}
MASKED = {"document_mask": True, "sequence_tokens": 64}


@pytest.mark.slow(target="layouts")
def test_tensor_ranks_learn_what_one_process_does(tmp_path: Path, data: Path) -> None:
    """Other layouts are cells of ``tests.parity``."""
    one = learned(tmp_path, data, MODEL, FP32, batch=MASKED)
    # About ten matmuls are computed in sequence in each of two layers, sums of at most 512 tokens in float32.
    bound = 20 * 512 * 2.0**-24
    assert learned(tmp_path, data, MODEL, FP32, batch=MASKED, tensor=2) == pytest.approx(one, rel=bound)
    apart = learned(tmp_path / "apart", data, MODEL, FP32, first_part, batch=MASKED, tensor=2)
    assert apart != pytest.approx(one, rel=bound), "positions of another rank's tokens must be detected"


def first_part() -> None:
    parallelize.own_part = lambda full_BT, axis: full_BT.flatten().chunk(axis.ranks)[0].view(len(full_BT), -1)


@pytest.mark.slow(target="layouts")
def test_stages_in_fp8_learn_what_one_process_does(tmp_path: Path, data: Path) -> None:
    """Bit for bit, except for the order in which squares are summed to a norm."""
    one = learned(tmp_path, data, MODEL, FP8, batch=MASKED)
    stages = learned(tmp_path, data, MODEL, FP8, batch=MASKED, pipeline=2)
    assert stages == pytest.approx(one, rel=256 * 2.0**-24)


def test_the_planner_counts_the_table_on_the_first_stage() -> None:
    spec = spec_of(positions="learned")
    with torch.device("meta"):
        built = Transformer(spec, 257, 64)
    counted = count_parameters(spec, 257, 64)
    assert counted.total == sum(weight.numel() for weight in built.parameters())
    assert counted.embedding == (257 + 64) * 32
    rotary, with_table = (
        RunSpec.model_validate(
            TINY
            | {"model": model.model_dump(), "parallelism": {"pipeline": 2}}
            | {"resources": {"device": "cpu", "slots_per_node": 2}}
            | {"batch": {"sequence_tokens": 64, "micro_sequences": 1, "global_sequences": 4}}
        )
        for model in (SPEC, spec)
    )
    more = [
        rank_memory(with_table, (1, 1), rank).weights - rank_memory(rotary, (1, 1), rank).weights
        for rank in (0, 1)
    ]
    assert more == [4 * 64 * 32, 0]
