"""The loss of a sharded vocabulary equals that of a full one for any split,
and no rank computes full logits."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.selection import partly_slow
from tests.trainer.model.test_loss import watched
from tests.trainer.ranks import on_mesh
from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.model.loss import NO_OPTIONS, LossOptions, head_loss
from trainwright_trainer.parallel.tensor.vocab_parallel import (
    local_range,
    vocab_parallel_chunk_gradient,
    vocab_parallel_head_loss,
)
from trainwright_trainer.runtime.errors import BadJobError

B, T, D, V = 4, 16, 32, 257
CHUNK = 20  # 64 tokens: four chunks of 16


def _given(scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Features, head and targets; logits are about ``scale``."""
    torch.manual_seed(0)
    return torch.randn(B, T, D), scale * torch.randn(V, D) / D**0.5, torch.randint(V, (B, T))


def sharded_loss(
    mesh: Mesh, scale: float, chunk_tokens: int, matmuls: torch.dtype, options: LossOptions
) -> dict[str, Any]:
    """This rank's loss, gradients and largest tensor."""
    axis = mesh.tensor
    features, head, targets = _given(scale)
    first, number = local_range(V, axis)
    x = features.flatten(0, 1).chunk(axis.ranks)[axis.rank].view(B, -1, D).clone().requires_grad_()
    w = head[first : first + number].clone().requires_grad_()

    def loss_here() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=matmuls is torch.bfloat16):
            return vocab_parallel_head_loss(
                x,
                w,
                targets,
                chunk_tokens=chunk_tokens,
                vocabulary=V,
                axis=axis,
                gradient_of=vocab_parallel_chunk_gradient,
                options=options,
            )

    with watched() as shapes:
        loss = loss_here()
        (loss / 4).backward()
    with torch.no_grad():
        measured = loss_here()
    assert x.grad is not None and w.grad is not None
    return {
        "loss": loss.item(),
        "measured": measured.item(),
        "x": x.grad.flatten(0, 1),
        "w": w.grad,
        "largest": shapes.largest,
    }


@pytest.mark.parametrize("ranks", partly_slow([2, 4], [2]))
@pytest.mark.parametrize(
    ("scale", "chunk_tokens", "matmuls", "options"),
    [
        (1.0, CHUNK, torch.float32, NO_OPTIONS),
        (1.0, B * T, torch.float32, NO_OPTIONS),
        (100.0, CHUNK, torch.float32, NO_OPTIONS),  # exponentials that float32 cannot represent
        (1.0, CHUNK, torch.bfloat16, NO_OPTIONS),
        (1.0, CHUNK, torch.float32, LossOptions(2.0, 0.01)),
    ],
)
def test_the_loss_of_a_sharded_vocabulary_equals_that_of_a_full_one(
    ranks: int, scale: float, chunk_tokens: int, matmuls: torch.dtype, options: LossOptions
) -> None:
    results = on_mesh(Degrees(tensor=ranks), sharded_loss, scale, chunk_tokens, matmuls, options)
    features, head, targets = (item.double() if item.is_floating_point() else item for item in _given(scale))
    x, w = features.requires_grad_(), head.requires_grad_()
    exact = head_loss(x, w, targets, B * T, options=options)
    (exact / 4).backward()
    assert x.grad is not None and w.grad is not None
    # As in test_loss.py: a logit is a sum of D products, rounded to the dtype of matmuls, and the
    # probabilities change with these roundings. Sums over V terms are in float32, and each rank's sum is
    # rounded once more.
    unit = 2.0**-8 if matmuls is torch.bfloat16 else 2.0**-24
    magnitudes = (features.abs().flatten(0, 1) @ head.abs().T).max().item()
    largest = (features.flatten(0, 1) @ head.T).abs().max().item()
    logit_error = (D * 2.0**-24 + (3 * unit if unit > 2.0**-24 else 0)) * magnitudes + unit * largest
    bound = 2 * logit_error + (3 + ranks) * unit + V * 2.0**-24
    for entry in results:
        assert entry["loss"] == results[0]["loss"] and entry["measured"] == results[0]["measured"]
        assert abs(entry["loss"] - exact.item()) <= 2 * logit_error + V * 2.0**-24 * exact.item()
        assert abs(entry["measured"] - exact.item()) <= 2 * logit_error + V * 2.0**-24 * exact.item()
    assert _off(torch.cat([result["x"] for result in results]).view(B, T, D), x.grad) <= bound
    assert _off(torch.cat([result["w"] for result in results]), w.grad) <= bound
    if chunk_tokens == CHUNK:
        # The largest are the weight's shard and its gradient, not logits of all tokens or of the full
        # vocabulary.
        assert max(result["largest"] for result in results) <= max(-(-V // ranks) * D, B * T * D)


def _off(one: Tensor, exact: Tensor) -> float:
    return float((one.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize(("size", "ranks"), [(257, 2), (257, 4), (8, 8), (9, 4)])
def test_rows_of_the_vocabulary_are_split_evenly(size: int, ranks: int) -> None:
    rows = [
        local_range(size, Axis((tuple(range(ranks)),), rank, torch.device("cpu"))) for rank in range(ranks)
    ]
    assert [row for first, number in rows for row in range(first, first + number)] == list(range(size))
    numbers = [number for _, number in rows]
    assert max(numbers) - min(numbers) <= 1


def test_more_ranks_than_rows_are_refused() -> None:
    with pytest.raises(BadJobError, match=r"parallelism.tensor: 4 ranks cannot share 3 rows: use at most 3"):
        local_range(3, Axis(((0, 1, 2, 3),), 0, torch.device("cpu")))
