"""Gradients in FP8: one byte per element in memory and on the wire (FP8-LM, section 3.1).

Autograd leaves a gradient on each weight's handle. When the last one of a bucket is complete, the bucket is

    1  laid out in rows and scaled: one amax per tensor, the maximum over all ranks, gives all ranks the same scale
    2  rounded to E4M3, and its rows are split into one share per rank
    3  exchanged: each rank receives its share from all ranks, and sums them in float32
    4  rounded once more, with the scale of the sum's own amax
    5  all-gathered; in a sharded layout the owner keeps its share instead

while earlier layers still compute. A ring that sums in E4M3 at each hop would send as many bytes and lose
precision with every rank; here a value is rounded twice for any number of ranks.

    P weights   R rows of this rank
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

import torch
from torch import Tensor

from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.fp8.compute.formats import E4M3, LARGEST, cast, finite_or_inf, scale_for, widen
from trainwright_trainer.fp8.compute.weight import Weight
from trainwright_trainer.fp8.state.gradient_headroom import Headroom
from trainwright_trainer.fp8.state.row_layout import ROW, Bucket, RowLayout
from trainwright_trainer.fp8.state.segments import Segments
from trainwright_trainer.fp8.state.side_stream import SideStream
from trainwright_trainer.parallel.tensor.replicated_weights import sum_over_ranks
from trainwright_trainer.runtime.compilation import fuse_on_gpu

BucketUpdate = Callable[[Bucket, Segments, Tensor], None]
"""Takes a bucket, its tensors' segments and its (rows, 128) codes as soon as they are complete."""


class FP8Gradients:
    """The gradients of all weights in E4M3."""

    def __init__(
        self,
        weights: dict[str, Weight],
        layout: RowLayout,
        mesh: Mesh,
        update_bucket: BucketUpdate | None = None,
        not_primary: Collection[str] = (),
        partial_gradients: Collection[str] = (),
    ) -> None:
        """Register the hooks.

        Args:
            not_primary: weights that another rank of the model axis counts in the norm.
            partial_gradients: weights whose gradients the tensor ranks sum.
        """
        device, slots = mesh.device, len(layout.slots)
        self._data, self._model, self._tensor = mesh.data, mesh.model, mesh.tensor
        # With model parallelism, the passes use their axes while the side stream reduces.
        self._scale_axis = mesh.stage_beside_passes
        """Ranks that share each tensor's scale: those with other sequences, and those with other slices of it."""
        self._layout = layout
        self._update_bucket = update_bucket
        self._side_stream = SideStream(mesh.stage)
        self.codes = torch.zeros(0 if update_bucket else layout.local_rows, ROW, dtype=E4M3, device=device)
        """(R, 128); empty with the optimizer in the backward pass."""
        self.base_scale = torch.ones(slots, device=device)
        """(P,): powers of two, the scales without headroom of the last step that ended."""
        self._new_base_scale = torch.ones(slots, device=device)
        """(P,): those of the step that is being computed."""
        self.headroom = Headroom([slot.elements for slot in layout.slots], mesh.data, mesh.tensor)
        self._scale = torch.ones(slots, device=device)
        self._amax = torch.zeros(slots, device=device)
        self._factor = torch.ones((), device=device)
        self._squares = torch.zeros((), device=device)
        self.underflowed = torch.zeros((), device=device)
        """Values of this rank that became zero; counted in observed steps."""
        self._observe = False
        primary = [float(slot.name not in not_primary) for slot in layout.slots]
        self._primary = torch.tensor(primary, device=device) if not_primary else None
        self._segments = [bucket.segments(slice(0, mesh.data.ranks), device) for bucket in layout.buckets]
        mine = slice(mesh.data.rank, mesh.data.rank + 1)
        self._own = (
            [bucket.segments(mine, device) for bucket in layout.buckets] if mesh.data.ranks > 1 else []
        )
        self._row_amax = fuse_on_gpu(_row_amax, device)
        self._quantize = fuse_on_gpu(quantize_rows, device)
        self._dequantized_sum = fuse_on_gpu(_dequantized_sum, device)
        self._handles = [[weights[slot.name].handle for slot in bucket.slots] for bucket in layout.buckets]
        self._partial = [
            [index for index, slot in enumerate(bucket.slots) if slot.name in partial_gradients]
            for bucket in layout.buckets
        ]
        """Of each bucket."""
        self._bucket_of = {
            slot.name: number for number, bucket in enumerate(layout.buckets) for slot in bucket.slots
        }
        self._missing: list[set[str]] = []
        self._hooks_enabled = False
        self._sent = 0
        for name in self._bucket_of:
            hook = partial(self._on_grad_accumulated, name)
            weights[name].handle.register_post_accumulate_grad_hook(hook)

    @property
    def scale(self) -> Tensor:
        """(P,): what codes are multiplied with, clipping included."""
        return self._scale * self._factor

    @property
    def amax(self) -> Tensor:
        """(P,): of the clipped sums over all ranks; infinite if any rank had a value that is not finite."""
        return self._amax * self._factor

    @property
    def updates_in_backward(self) -> bool:
        """Whether buckets are passed to the optimizer in the backward pass and not kept."""
        return self._update_bucket is not None

    def begin(self, observe: bool) -> None:
        """Clear the gradients of the previous step."""
        for handles in self._handles:
            for handle in handles:
                handle.grad = None
        self._missing = [{slot.name for slot in bucket.slots} for bucket in self._layout.buckets]
        self._sent, self._hooks_enabled, self._observe = 0, False, observe
        self.underflowed.zero_()
        self._squares.zero_()
        self._factor.fill_(1.0)

    def reduce_when_ready(self) -> None:
        """From now on a gradient is complete when autograd adds to it once more."""
        self._hooks_enabled = True

    def mark_ready(self, names: Iterable[str]) -> None:
        """The gradients of these weights are complete; buckets that are now complete are sent."""
        for name in names:
            self._missing[self._bucket_of[name]].discard(name)
        while self._sent < len(self._handles) and not self._missing[self._sent]:
            self._send(self._sent)
            self._sent += 1

    def wait(self) -> None:
        """Return when all buckets have been reduced."""
        assert self._sent == len(self._handles), "a weight got no gradient"
        self._side_stream.wait()
        self._hooks_enabled = False

    def end_step(self) -> None:
        """The step ends, with an update or without: the next one starts from its scales."""
        self.base_scale.copy_(self._new_base_scale)
        self.headroom.adapt()

    def norm(self, finite: Tensor | None = None) -> Tensor:
        """Global L2 norm of the stored gradients; not finite if any rank had a value that is not.

        Args:
            finite: () bool, whether everything else known to this rank's stage is finite.
        """
        squares = self._data.all_reduce(self._squares.clone())
        known = torch.isfinite(self._amax).all()
        known = known if finite is None else known & finite
        # Infinity survives the sum, so one collective sends the other stages both.
        return self._model.all_reduce(torch.where(known, squares, torch.inf)).sqrt()

    def clip(self, norm: Tensor, limit: float | None) -> None:
        """Reduce the global norm to ``limit``: the scales take the factor, codes stay."""
        if limit is not None:
            self._factor.copy_((limit / (norm + 1e-6)).clamp(max=1.0))

    def _on_grad_accumulated(self, name: str, _: Tensor) -> None:
        if self._hooks_enabled:
            self.mark_ready([name])

    def _send(self, number: int) -> None:
        """Take the bucket's gradients off their handles, sum the partial ones over the tensor ranks, and submit the
        reduction of all.
        """
        taken = []
        for handle in self._handles[number]:
            assert handle.grad is not None
            taken.append(handle.grad)
            handle.grad = None
        sum_over_ranks([taken[index] for index in self._partial[number]], self._tensor)
        self._side_stream.submit(partial(self._reduce, number, taken), taken)

    @torch.no_grad()
    def _reduce(self, number: int, gradients: list[Tensor]) -> None:
        bucket, segments = self._layout.buckets[number], self._segments[number]
        rows = _in_rows(bucket, gradients)
        amax = self._scale_axis.all_reduce_max(segments.max(self._row_amax(rows)))
        scale = self._rescale(amax, bucket.slot_indices, self.base_scale)
        kept = self._output_codes(bucket)
        alone = self._data.ranks == 1
        codes = kept if alone else torch.empty(bucket.rows, ROW, dtype=E4M3, device=rows.device)
        large, squares, underflowed = self._quantize(rows, segments.spread(scale), codes, self._observe)
        self.headroom.too_large[bucket.slot_indices] = segments.sum(large)
        self.underflowed += underflowed
        if not alone:
            scale, amax, squares = self._sum_over_ranks(number, codes, scale, amax, kept)
        self._scale[bucket.slot_indices], self._amax[bucket.slot_indices] = scale, amax
        if self._primary is not None:
            of_squares = segments if alone else self._own[number]
            squares = squares * of_squares.spread(self._primary[bucket.slot_indices])[:, 0]
        self._squares += squares.sum()
        if self._update_bucket is not None:
            self._update_bucket(bucket, segments, kept)

    def _output_codes(self, bucket: Bucket) -> Tensor:
        """Where the codes of ``bucket`` that this rank keeps are written."""
        if self._update_bucket is None:
            return self.codes[bucket.local_range]
        return torch.empty(bucket.rows, ROW, dtype=E4M3, device=self.codes.device)

    def _rescale(self, amax: Tensor, slot_indices: slice, previous: Tensor) -> Tensor:
        """Scales with headroom; where ``amax`` is unusable, the power of two is the one in ``previous`` (P,)."""
        self._new_base_scale[slot_indices] = scale_for(amax, E4M3, previous[slot_indices])
        return self._new_base_scale[slot_indices] / self.headroom.factor[slot_indices]

    def _sum_over_ranks(
        self, number: int, codes: Tensor, scale: Tensor, amax: Tensor, kept: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Fill ``kept``; returns scales and amaxes of the sums, and the squares of this rank's share by row."""
        bucket, own = self._layout.buckets[number], self._own[number]
        ranks, rank = self._data.ranks, self._data.rank
        mine, before = bucket.rank_rows[rank], sum(bucket.rank_rows[:rank])
        received = self._data.all_to_all(codes, bucket.rank_rows, [mine] * ranks)
        total = self._dequantized_sum(received.view(ranks, mine, ROW), own.spread(scale))
        summed = self._scale_axis.all_reduce_max(own.max(self._row_amax(total)))
        new_scale = self._rescale(summed, bucket.slot_indices, self._new_base_scale)
        share = kept if self._layout.sharded else kept[before : before + mine]
        _, squares, _ = self._quantize(total, own.spread(new_scale), share, False)
        if not self._layout.sharded:
            self._data.all_gather_into(kept)
        return new_scale, torch.where(torch.isfinite(amax), summed, torch.inf), squares


def _in_rows(bucket: Bucket, gradients: Sequence[Tensor]) -> Tensor:
    """(rows, 128): the gradients one after the other, in their dtype, padded with zeros."""
    if len(gradients) == 1 and gradients[0].numel() == bucket.rows * ROW and gradients[0].is_contiguous():
        return gradients[0].view(-1, ROW)
    padded = sum(slot.elements for slot in bucket.slots) < bucket.rows * ROW
    flat = (gradients[0].new_zeros if padded else gradients[0].new_empty)(bucket.rows * ROW)
    views, first = [], 0
    for slot in bucket.slots:
        views.append(flat[first : first + slot.elements].view(slot.shape))
        first += slot.rows * ROW
    torch._foreach_copy_(views, list(gradients))
    return flat.view(-1, ROW)


def _row_amax(rows: Tensor) -> Tensor:
    """(rows,): largest absolute value of each row."""
    return finite_or_inf(rows.abs().amax(1).float())


def quantize_rows(rows: Tensor, scale: Tensor, codes: Tensor, observe: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Fill ``codes`` with (rows, 128) values divided by their (rows, 1) scales.

    Returns:
        (rows,) values that were too large; (rows,) sums of the squares of the stored values; () how many
        values became zero, if observed. All float32.
    """
    scaled = rows.float() / scale
    rounded = cast(scaled, E4M3)
    codes.copy_(rounded)
    large = (scaled.abs() > LARGEST[E4M3]).sum(1).float()
    stored = widen(rounded, torch.float32)
    squares = (stored * stored).sum(1) * (scale * scale).squeeze(1)
    underflowed = ((rows != 0) & (stored == 0)).sum().float() if observe else squares.new_zeros(())
    return large, squares, underflowed


def _dequantized_sum(codes: Tensor, scale: Tensor) -> Tensor:
    """Sum of (ranks, rows, 128) codes in float32, one rank after the other."""
    return widen(codes, torch.float32).sum(0) * scale
