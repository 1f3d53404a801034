"""Norms of queries and keys follow their formula in every layout."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.trainer.fault_injection import inject_fault, own
from tests.trainer.model.option_trainings import FP8, FP32, LENGTH, build, learned
from trainwright.contracts.model_spec import ModelSpec
from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.model.attention import Attention

SPEC = ModelSpec(layers=1, width=32, heads=4, kv_heads=2, qk_norm=True)


def normalized(x_K: Tensor, weight_K: Tensor) -> Tensor:
    return x_K / (x_K.square().mean() + SPEC.norm_epsilon).sqrt() * weight_K


def rotated(x_K: Tensor, position: int) -> Tensor:
    half = len(x_K) // 2
    angles = position * 10_000.0 ** (-torch.arange(half) / half)
    first, second = x_K[:half], x_K[half:]
    return torch.cat(
        (first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin())
    )


def by_formula(attention: Attention, x_TD: Tensor) -> Tensor:
    """Head by head and position by position."""
    size, found = attention.head_size, []
    rows = [
        layer(x_TD).view(len(x_TD), -1, size) for layer in (attention.query, attention.key, attention.value)
    ]
    q_THK, k_TGK, v_TGK = rows
    for t in range(len(x_TD)):
        heads = []
        for head in range(4):
            query = rotated(normalized(q_THK[t, head], attention.query_norm.weight), t)
            keys = [
                rotated(normalized(k_TGK[s, head // 2], attention.key_norm.weight), s) for s in range(t + 1)
            ]
            scores = torch.stack([query @ key for key in keys]) / math.sqrt(size)
            heads.append(scores.softmax(0) @ v_TGK[: t + 1, head // 2])
        found.append(attention.output(torch.cat(heads)))
    return torch.stack(found)


def apart_from_formula() -> float:
    model = build(SPEC)
    attention = model.layers["0"].attention
    x_TD = torch.randn(LENGTH, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        attention.query_norm.weight.normal_(generator=torch.Generator().manual_seed(2))
        got = attention(x_TD[None], model.tables(LENGTH, torch.float32))[0]
        return float((got - by_formula(attention, x_TD)).abs().max())


def test_each_head_is_normalized_before_it_is_rotated() -> None:
    # Four matmuls in sequence, of sums of at most 32 terms of order 1 in float32.
    assert apart_from_formula() <= 4 * 32 * 2.0**-22


def test_a_norm_after_the_rotation_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight that differs between features does not commute with a rotation."""

    def mix(self: Attention, q: Tensor, k: Tensor, v: Tensor, tables: object) -> Tensor:
        first, second = self.query_norm, self.key_norm
        self.query_norm = self.key_norm = torch.nn.Identity()
        monkeypatch.setattr(self, "attend", lambda q, k, v, t: honest(self, first(q), second(k), v, t))
        try:
            return plain(self, q, k, v, tables)
        finally:
            self.query_norm, self.key_norm = first, second

    plain, honest = Attention.mix, Attention.attend
    monkeypatch.setattr(Attention, "mix", mix)
    assert apart_from_formula() > 1e-2


MODEL = {"layers": 2, "qk_norm": True, "tied_embeddings": False, "initializer_std": 0.2}


def leave_out_sums() -> None:
    inject_fault(Axis, "all_reduce", own, "sum_over_ranks").__enter__()  # the process ends with the training


@pytest.mark.slow(target="layouts")
def test_tensor_ranks_learn_what_one_process_does(tmp_path: Path, data: Path) -> None:
    """Other layouts are cells of ``tests.parity``."""
    one = learned(tmp_path, data, MODEL, FP32)
    # About ten matmuls are computed in sequence in each of two layers, sums of at most 256 tokens in float32.
    bound = 20 * 256 * 2.0**-24
    assert learned(tmp_path, data, MODEL, FP32, tensor=2) == pytest.approx(one, rel=bound)
    apart = learned(tmp_path / "apart", data, MODEL, FP32, leave_out_sums, tensor=2)
    assert apart != pytest.approx(one, rel=bound), "a gradient that is not summed must be detected"


@pytest.mark.slow(target="layouts")
def test_stages_in_fp8_learn_what_one_process_does(tmp_path: Path, data: Path) -> None:
    """Bit for bit, except for the order in which squares are summed to a norm."""
    one = learned(tmp_path, data, MODEL, FP8)
    assert learned(tmp_path, data, MODEL, FP8, pipeline=2) == pytest.approx(one, rel=256 * 2.0**-24)
