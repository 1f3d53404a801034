"""Soft caps of scores and logits, and z-loss: their formulas, in chunks, under masks and in every layout."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from tests.trainer.jobs import TINY
from tests.trainer.model.option_trainings import FP8, FP32, LENGTH, build, learned
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.run_spec import RunSpec
from trainwright.planner.memory import loss_bytes, score_bytes
from trainwright_trainer.model import attention, loss
from trainwright_trainer.model.documents import document_starts
from trainwright_trainer.model.flex_attention import FlexMasks
from trainwright_trainer.model.loss import LossOptions, head_loss
from trainwright_trainer.model.masks import DenseMasks, Visible, sees

CAP = 1.5


def queries_keys_values() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [2 * torch.randn(2, count, LENGTH, 8, generator=generator) for count in (4, 2, 2)]


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("masks", [DenseMasks(), FlexMasks()], ids=["dense", "flex"])
@pytest.mark.parametrize("documents", [False, True])
def test_scores_are_capped_before_the_mask(
    masks: DenseMasks | FlexMasks, window: int | None, documents: bool
) -> None:
    q, k, v = queries_keys_values()
    tokens = torch.ones(2, LENGTH, dtype=torch.long)
    tokens[0, 4], tokens[1, [7, 8]] = 0, 0
    starts = document_starts(tokens, 0) if documents else None
    places = torch.arange(LENGTH)
    visible = sees(places[:, None], places, window, None if starts is None else starts[:, None, :, None])
    k_of_heads, v_of_heads = (each.repeat_interleave(2, 1).double() for each in (k, v))
    scores = CAP * torch.tanh(q.double() @ k_of_heads.mT / 8**0.5 / CAP)
    wanted = scores.masked_fill(~visible, -torch.inf).softmax(-1) @ v_of_heads
    mask = masks.build(LENGTH, Visible(window, starts), torch.float32, torch.device("cpu"))
    with torch.no_grad():
        # A score is a sum of 8 products of order 4; tanh does not enlarge its error; 16 values are summed.
        assert (masks.attend(q, k, v, mask, CAP) - wanted).abs().max() <= 32 * 8 * 2.0**-23
        assert (masks.attend(q, k, v, mask) - wanted).abs().max() > 1e-2


def test_layers_without_a_window_are_capped_too() -> None:
    spec = ModelSpec(layers=1, width=32, heads=4, kv_heads=2)
    capped = spec.model_copy(update={"attn_logit_softcapping": 0.1})
    tokens = torch.randint(0, 64, (2, LENGTH), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        ours, plain = build(capped), build(spec)
        assert not torch.equal(ours(tokens), plain(tokens))
        # A cap far above all scores changes nothing but rounding.
        loose = build(spec.model_copy(update={"attn_logit_softcapping": 1e5}))
        assert (loose(tokens) - plain(tokens)).abs().max() <= 1e-3 * plain(tokens).abs().max()
        loose_head = build(spec.model_copy(update={"final_logit_softcapping": 2.0}))
        assert torch.allclose(loose_head(tokens), 2 * torch.tanh(plain(tokens) / 2), atol=1e-6)


B, T, D, V = 2, 16, 8, 40
OPTIONS = [LossOptions(1.5), LossOptions(z_loss=0.1), LossOptions(1.5, 0.1)]


def given() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(B, T, D, generator=generator, dtype=torch.float64)
    head = torch.randn(V, D, generator=generator, dtype=torch.float64)
    return x, head, torch.randint(V, (B, T), generator=generator)


def by_formula(options: LossOptions) -> tuple[Tensor, list[Tensor]]:
    """Cross-entropy, and the gradients of what training minimizes."""
    x, head, targets = given()
    x.requires_grad_(), head.requires_grad_()
    logits = (x @ head.T).flatten(0, 1)
    if options.softcap is not None:
        logits = options.softcap * torch.tanh(logits / options.softcap)
    entropy = cross_entropy(logits, targets.flatten())
    minimized = entropy + options.z_loss * logits.exp().sum(1).log().square().mean()
    return entropy.detach(), list(torch.autograd.grad(minimized, (x, head)))


@pytest.mark.parametrize("options", OPTIONS, ids=["cap", "z-loss", "both"])
@pytest.mark.parametrize("chunk_tokens", [B * T, 7])
def test_the_loss_has_the_gradients_of_its_formula(options: LossOptions, chunk_tokens: int) -> None:
    x, head, targets = given()
    found = head_loss(x.requires_grad_(), head.requires_grad_(), targets, chunk_tokens, options=options)
    found.backward()
    with torch.no_grad():
        measured = head_loss(x, head, targets, chunk_tokens, options=options)
    entropy, (by_x, by_head) = by_formula(options)
    assert x.grad is not None and head.grad is not None
    # Losses are float32. Logits of all tokens at once are too, and those of chunks stay in float64.
    bound = 1e-12 if chunk_tokens == 7 else V * 2.0**-23
    assert abs(found.item() - entropy.item()) <= 1e-5 and abs(measured.item() - entropy.item()) <= 1e-5
    for mine, other in ((x.grad, by_x), (head.grad, by_head)):
        assert (mine - other).norm() <= bound * other.norm()


def test_a_gradient_that_ignores_the_cap_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "through_softcap", lambda gradient_CV, capped_CV, softcap: gradient_CV)
    x, head, targets = given()
    head_loss(x.requires_grad_(), head, targets, 7, options=LossOptions(1.5)).backward()
    _, (by_x, _) = by_formula(LossOptions(1.5))
    assert x.grad is not None and (x.grad - by_x).norm() > 1e-2 * by_x.norm()


CAPS = {"attn_logit_softcapping": 0.5, "final_logit_softcapping": 1.0}
MODEL = {"layers": 2, "tied_embeddings": False, "initializer_std": 0.2} | CAPS


@pytest.mark.slow(target="layouts")
def test_tensor_ranks_learn_what_one_process_does(tmp_path: Path, data: Path) -> None:
    """Other layouts are cells of ``tests.parity``."""
    one = learned(tmp_path, data, MODEL, FP32)
    # About ten matmuls are computed in sequence in each of two layers, sums of at most 256 tokens in float32.
    bound = 20 * 256 * 2.0**-24
    assert learned(tmp_path, data, MODEL, FP32, tensor=2) == pytest.approx(one, rel=bound)
    apart = learned(tmp_path / "apart", data, MODEL, FP32, leave_out_caps, tensor=2)
    assert apart != pytest.approx(one, rel=bound), "scores without a cap must be detected"


def leave_out_caps() -> None:
    honest = attention.DenseMasks.attend
    attention.DenseMasks.attend = lambda self, q, k, v, mask, softcap=None: honest(self, q, k, v, mask)  # type: ignore[method-assign]


@pytest.mark.slow(target="layouts")
def test_stages_in_fp8_learn_what_one_process_does(tmp_path: Path, data: Path) -> None:
    """Bit for bit, except for the order in which squares are summed to a norm."""
    one = learned(tmp_path, data, MODEL, FP8)
    assert learned(tmp_path, data, MODEL, FP8, pipeline=2) == pytest.approx(one, rel=256 * 2.0**-24)


@pytest.mark.parametrize("kind", ["fp32", "bf16"])
def test_the_planner_counts_what_capped_attention_stores(kind: str) -> None:
    spec = RunSpec.model_validate(
        TINY
        | {"model": {"layers": 1, "width": 32, "heads": 4, "kv_heads": 2} | CAPS, "precision": {"kind": kind}}
        | {"batch": {"sequence_tokens": LENGTH, "micro_sequences": 2}, "resources": {"device": "cpu"}}
    )
    dtype = torch.float32 if kind == "fp32" else torch.bfloat16
    q, k, v = (torch.randn(2, count, LENGTH, 8, dtype=dtype, requires_grad=True) for count in (4, 2, 2))
    mask = DenseMasks().build(LENGTH, Visible(), dtype, torch.device("cpu"))

    def saved(softcap: float | None) -> int:
        """Bytes of tensors that autograd saves, the result among them."""
        found: dict[int, int] = {}

        def keep(tensor: Tensor) -> Tensor:
            found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            out = DenseMasks().attend(q, k, v, mask, softcap)
        assert out.dtype == dtype
        return sum(found.values())

    # SDPA saves queries, keys, values and its result, which the block counts in any case.
    usual = (2 * q.numel() + k.numel() + v.numel()) * dtype.itemsize
    assert saved(0.5) + q.numel() * dtype.itemsize == usual + score_bytes(spec)
    uncapped = spec.model_copy(update={"model": spec.model.model_copy(update=dict.fromkeys(CAPS))})
    assert score_bytes(uncapped) == 0 and loss_bytes(spec) > loss_bytes(uncapped)
