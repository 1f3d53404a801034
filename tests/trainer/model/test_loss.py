"""The chunked loss has the gradients of full logits without computing them.
Below one chunk it is cross-entropy."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainwright.contracts.model_spec import ModelSpec
from trainwright_trainer.model.init import initialize
from trainwright_trainer.model.loss import chunk_gradient, head_loss
from trainwright_trainer.model.transformer import Transformer

B, T, D, V = 4, 15, 32, 97
CHUNK = 16  # 60 tokens: four chunks of 15


class Shapes(TorchDispatchMode):
    """Records the shapes of everything that is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[torch.Size] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.seen += [leaf.shape for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        return result

    @property
    def largest(self) -> int:
        return max(shape.numel() for shape in self.seen)


@contextmanager
def watched() -> Iterator[Shapes]:
    with Shapes() as shapes:
        yield shapes


def _given(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Features, head and targets whose values ``dtype`` represents exactly, in float32."""
    torch.manual_seed(0)
    features = torch.randn(B, T, D).to(dtype).float()
    head = (torch.randn(V, D) / D**0.5).to(dtype).float()
    return features, head, torch.randint(V, (B, T))


def _exact(features: Tensor, head: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x, w = features.detach().double().requires_grad_(), head.detach().double().requires_grad_()
    loss = cross_entropy(linear(x, w).flatten(0, 1), targets.flatten())
    loss.backward()
    assert x.grad is not None and w.grad is not None
    return loss.detach(), x.grad, w.grad


@pytest.mark.parametrize(
    ("weights", "matmuls"),
    [
        (torch.float32, torch.float32),
        (torch.float32, torch.bfloat16),  # autocast
        (torch.bfloat16, torch.bfloat16),  # the head of an FP8 run
    ],
)
def test_chunks_have_the_loss_and_gradients_of_full_logits(
    weights: torch.dtype, matmuls: torch.dtype
) -> None:
    features, head, targets = _given(matmuls)
    x, w = features.to(weights).requires_grad_(), head.to(weights).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=matmuls != weights):
        loss = head_loss(x, w, targets, CHUNK)
    (loss / 4).backward()  # a scaled loss, as with four micro batches of accumulation
    exact, by_x, by_w = _exact(features, head, targets)
    # A logit is a sum of D products rounded once more to the dtype: its error is at most D·2⁻²⁴·(sum of
    # magnitudes) + u·|logit|, with u the unit of rounding. It shifts every probability by at most twice that,
    # relatively. The gradient and its product are each rounded to the dtype, and sums over at most V terms
    # are in float32.
    unit = 2.0**-9 if matmuls == torch.bfloat16 else 2.0**-24
    magnitudes = linear(features.abs(), head.abs()).max().item()
    logit_error = D * 2.0**-24 * magnitudes + unit * linear(features, head).abs().max().item()
    bound = 2 * logit_error + 3 * unit + V * 2.0**-24
    assert loss.dtype == torch.float32
    assert abs(loss.item() - exact.item()) <= 2 * logit_error + V * 2.0**-24 * exact.item()
    assert x.grad is not None and x.grad.dtype == weights
    assert w.grad is not None and w.grad.dtype == weights
    assert (4 * x.grad.double() - by_x).norm() <= bound * by_x.norm()
    assert (4 * w.grad.double() - by_w).norm() <= bound * by_w.norm()


def test_the_gradient_of_the_head_is_summed_in_float32() -> None:
    """One token dominates the first chunk;
    the 4,095 that follow are each below bfloat16's resolution of it."""
    tokens, chunk = 4_096, 128
    x = torch.full((1, tokens, 1), 2.0**-12, dtype=torch.bfloat16)
    x[0, 0] = 16.0
    w = torch.zeros(2, 1, dtype=torch.bfloat16).requires_grad_()
    seen: list[Tensor] = []

    def spied(logits: Tensor, targets: Tensor, count: int) -> tuple[Tensor, Tensor]:
        loss, gradient = chunk_gradient(logits, targets, count)
        seen.append(gradient)
        return loss, gradient

    head_loss(x.requires_grad_(), w, torch.zeros(1, tokens, dtype=torch.long), chunk, spied).backward()
    assert len(seen) == tokens // chunk
    # Every gradient of a logit is ∓0.5 / tokens and every product here is exact, so only the sum can lose
    # anything.
    exact = 0.5 / tokens * (16 + (tokens - 1) * 2.0**-12)
    assert w.grad is not None
    assert w.grad[1].item() == pytest.approx(exact, rel=2.0**-8)
    parts = [(part.T @ rows).double() for part, rows in zip(seen, x[0].split(chunk), strict=True)]
    in_16_bits = torch.zeros(2, 1, dtype=torch.bfloat16)
    for part in parts:
        in_16_bits += part.bfloat16()
    assert in_16_bits[1].item() != pytest.approx(exact, rel=2.0**-8)  # shows that the check above can fail


@pytest.mark.parametrize("tied", [True, False])
def test_a_model_learns_the_same_with_and_without_chunks(tied: bool) -> None:
    whole, chunked = _gradients(tied, chunk_tokens=B * T), _gradients(tied, chunk_tokens=CHUNK)
    assert ("head.weight" in whole) is not tied
    for name, gradient in whole.items():
        # Only the order of float32 sums differs: over at most V or B·T terms in the head. The layers below
        # propagate the differences, each with its own sums of at most 4·D terms; two layers have ten such
        # steps.
        assert (chunked[name] - gradient).norm() <= 10 * 4 * D * 2.0**-24 * gradient.norm(), name


def _gradients(tied: bool, chunk_tokens: int) -> dict[str, Tensor]:
    spec = ModelSpec(layers=2, width=D, heads=4, tied_embeddings=tied, feed_forward=4 * D)
    model = Transformer(spec, V, T)
    initialize(model, spec, seed=1)
    _, _, targets = _given(torch.float32)
    tokens = torch.randint(V, (B, T), generator=torch.Generator().manual_seed(5))
    head_loss(model.features(tokens), model.head.weight, targets, chunk_tokens).backward()
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def test_one_chunk_is_plain_cross_entropy_bit_for_bit() -> None:
    spec = ModelSpec(layers=2, width=D, heads=4)
    model = Transformer(spec, V, T)
    initialize(model, spec, seed=1)
    tokens, targets = torch.randint(V, (2, B, T), generator=torch.Generator().manual_seed(5))
    logits = model(tokens)
    plain = cross_entropy(logits.flatten(0, 1), targets.flatten())
    gradients = torch.autograd.grad(plain, list(model.parameters()))
    loss = head_loss(model.features(tokens), model.head.weight, targets, B * T)
    assert torch.equal(loss, plain)
    for one, other in zip(torch.autograd.grad(loss, list(model.parameters())), gradients, strict=True):
        assert torch.equal(one, other)


def test_gradients_of_one_chunk_can_be_computed_with_its_loss() -> None:
    features, head, targets = _given(torch.float32)
    loss, x_gradient, w_gradient = _exact(features, head, targets)
    x, w = features.requires_grad_(), head.requires_grad_()
    calls = []

    def counted(*given: Any) -> tuple[Tensor, Tensor]:
        calls.append(given)
        return chunk_gradient(*given)

    found = head_loss(x, w, targets, chunk_tokens=B * T, gradient_of=counted, always_at_once=True)
    found.backward()
    assert len(calls) == 1
    for ours, exact in ((found, loss), (x.grad, x_gradient), (w.grad, w_gradient)):
        torch.testing.assert_close(ours, exact.float())
    with torch.no_grad():
        head_loss(x, w, targets, chunk_tokens=B * T, gradient_of=counted, always_at_once=True)
    assert len(calls) == 1


@pytest.mark.parametrize("matmuls", [torch.float32, torch.bfloat16])
def test_full_logits_never_exist(matmuls: torch.dtype) -> None:
    features, head, targets = _given(matmuls)
    x, w = features.requires_grad_(), head.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=matmuls is torch.bfloat16), watched() as shapes:
        head_loss(x, w, targets, CHUNK).backward()
    assert shapes.largest == V * D  # the head itself and its gradient; a chunk's logits are 15 · 97
    assert shapes.largest < B * T * V
    with watched() as shapes:
        head_loss(x, w, targets, B * T).backward()
    assert shapes.largest == B * T * V  # the measurement detects full logits where they exist


def test_no_gradients_are_computed_if_none_are_required() -> None:
    features, head, targets = _given(torch.float32)
    x, w = features.requires_grad_(), head.requires_grad_()
    with torch.no_grad(), watched() as shapes:
        loss = head_loss(x, w, targets, CHUNK)
    assert torch.Size((V, D)) not in shapes.seen
    assert shapes.largest < B * T * V
    assert not loss.requires_grad
    # Both are means of the same float32 values, summed in another order.
    assert loss.item() == pytest.approx(head_loss(x, w, targets, CHUNK).item(), rel=B * T * 2.0**-24)


def test_a_second_backward_pass_is_refused() -> None:
    """The first pass scaled the saved gradients in place."""
    features, head, targets = _given(torch.float32)
    loss = head_loss(features.requires_grad_(), head.requires_grad_(), targets, CHUNK)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
