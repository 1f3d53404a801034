"""Data parallelism: each rank holds the whole model, sees its share of the batch, and gradients are added up.

Gradients live in a few flat buffers, filled from the model's end to its start as the backward pass goes. A buffer is
sent as soon as its last gradient is there, while earlier layers are still computing (Li et al. 2020). Buffers are sent
in a fixed order, so the sums, and with them the training, repeat bit for bit.

    owns   each rank holds whole weights of other sequences        moves   every gradient, once a step, over the data axis
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainwright_trainer.mesh import Axis

BUCKET_BYTES = 25 * 2**20


class GradientBuckets:
    """Gradients of ``parameters`` as views into flat buffers that are summed over the ranks.

    Weights ``apart`` have a buffer each. In which order ranks add a number up depends on where in a buffer it lies.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], data: Axis, apart: AbstractSet[nn.Parameter] = frozenset()
    ) -> None:
        self._data = data
        self._flat: list[Tensor] = []
        self._members: list[Sequence[nn.Parameter]] = []
        self._missing: list[set[nn.Parameter]] = []
        self._listening = False
        self._works: list[dist.Work] = []
        self._bucket_of: dict[nn.Parameter, int] = {}
        for bucket, members in enumerate(in_buckets(reversed(parameters), apart)):
            self._flat.append(_share_storage(members))
            self._members.append(members)
            for weight in members:
                self._bucket_of[weight] = bucket
                weight.register_post_accumulate_grad_hook(self._is_added_to)  # type: ignore[no-untyped-call]

    def clear(self) -> None:
        """Set all gradients to zero; they stay where they are."""
        for flat in self._flat:
            flat.zero_()
        self._missing = [set(members) for members in self._members]

    def end_round(self) -> None:
        """Autograd adds the next round's gradients to this one's."""

    def send_as_ready(self) -> None:
        """From now on a gradient is complete when it has been added to once more."""
        self._listening = True

    def complete(self, weights: Iterable[nn.Parameter]) -> None:
        """The gradients of ``weights`` are complete; buffers that now are, are sent."""
        for weight in weights:
            self._missing[self._bucket_of[weight]].discard(weight)
        while len(self._works) < len(self._flat) and not self._missing[len(self._works)]:
            self._works.append(self._data.start_sum(self._flat[len(self._works)]))

    def wait(self) -> None:
        """Return when all gradients are the sums over all ranks."""
        assert len(self._works) == len(self._flat), "a weight got no gradient"
        for work in self._works:
            self._data.finish(work)
        self._works, self._listening = [], False

    def _is_added_to(self, weight: Tensor) -> None:
        if self._listening:
            assert isinstance(weight, nn.Parameter)
            self.complete([weight])


def in_buckets(
    parameters: Iterable[nn.Parameter], apart: AbstractSet[nn.Parameter] = frozenset()
) -> Iterator[list[nn.Parameter]]:
    """Weights that follow each other, with at least ``BUCKET_BYTES`` together; at an end, with what remains.

    Args:
        apart: each of these is a bucket by itself.
    """
    members: list[nn.Parameter] = []
    for weight in parameters:
        if weight in apart and members:
            yield members
            members = []
        members.append(weight)
        if weight in apart or sum(map(_bytes, members)) >= BUCKET_BYTES:
            yield members
            members = []
    if members:
        yield members


def _bytes(weight: nn.Parameter) -> int:
    return weight.numel() * weight.element_size()


def _share_storage(members: Sequence[nn.Parameter]) -> Tensor:
    flat = torch.zeros(
        sum(weight.numel() for weight in members), dtype=members[0].dtype, device=members[0].device
    )
    pieces = torch.split(flat, [weight.numel() for weight in members])
    for weight, piece in zip(members, pieces, strict=True):
        weight.grad = piece.view_as(weight)
    return flat
