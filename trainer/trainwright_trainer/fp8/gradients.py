"""Gradients in FP8: one byte an element to keep and to send (FP8-LM, section 3.1).

Autograd leaves a gradient on each weight's handle. When the last one of a bucket is there, the bucket is

    1  laid out in rows and scaled: one amax a tensor, the largest over all ranks, gives all ranks the same scale
    2  rounded to E4M3, and its rows are cut into one share a rank
    3  exchanged: each rank gets its share from all of them, and adds them up in float32
    4  rounded once more, with the scale that the sum's own amax gives
    5  gathered, so that each rank has all shares; in a cut layout the owner keeps its share and this is left out

while earlier layers still compute. A ring that adds in E4M3 at each hop would send as many bytes and lose precision
with every rank; here a number is rounded twice, whatever their count.

    P weights   R rows held here
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from trainwright_trainer.fp8.formats import E4M3, LARGEST, cast, finite_or_inf, scale_for, widen
from trainwright_trainer.fp8.fused import fused
from trainwright_trainer.fp8.headroom import Headroom
from trainwright_trainer.fp8.lane import Lane
from trainwright_trainer.fp8.layout import ROW, Bucket, Layout
from trainwright_trainer.fp8.stretches import Stretches
from trainwright_trainer.fp8.weights import Weight
from trainwright_trainer.mesh import Mesh

Release = Callable[[Bucket, Stretches, Tensor], None]
"""Takes a bucket, its tensors' stretches and its (rows, 128) codes as soon as they are there."""


class Gradients:
    """The gradients of all weights in E4M3."""

    def __init__(
        self,
        weights: dict[str, Weight],
        layout: Layout,
        mesh: Mesh,
        release: Release | None = None,
        uncounted: Collection[str] = (),
    ) -> None:
        """``uncounted`` are weights that another rank of the model axis speaks for, too, where norms are added up."""
        device, places = mesh.device, len(layout.tenants)
        self._data, self._model = mesh.data, mesh.model
        # Passes of a model that is cut speak on its axes while the lane reduces.
        self._sharing = replace(mesh.stage, apart=True) if mesh.model.ranks > 1 else mesh.stage
        """Ranks that share each tensor's scale: those with other sequences, and those with other parts of it."""
        for axis in (self._data, self._sharing):
            _ = axis.group  # made now: two threads must not make groups at a time
        self._layout = layout
        self._release = release
        self._lane = Lane(mesh.stage)
        self.codes = torch.zeros(0 if release else layout.held_rows, ROW, dtype=E4M3, device=device)
        """(R, 128); empty when gradients are released."""
        self.base = torch.ones(places, device=device)
        """(P,): powers of two, the scales without headroom."""
        self.headroom = Headroom([tenant.elements for tenant in layout.tenants], mesh.data, mesh.tensor)
        self._scale = torch.ones(places, device=device)
        self._amax = torch.zeros(places, device=device)
        self._factor = torch.ones((), device=device)
        self._squares = torch.zeros((), device=device)
        self.flushed = torch.zeros((), device=device)
        """Values of this rank that became zero; counted in steps that are observed."""
        self._observe = False
        counted = [float(tenant.name not in uncounted) for tenant in layout.tenants]
        self._counted = torch.tensor(counted, device=device) if uncounted else None
        self._stretches = [bucket.stretches(slice(0, mesh.data.ranks), device) for bucket in layout.buckets]
        mine = slice(mesh.data.rank, mesh.data.rank + 1)
        self._own = (
            [bucket.stretches(mine, device) for bucket in layout.buckets] if mesh.data.ranks > 1 else []
        )
        self._row_amax = fused(_row_amax, device)
        self._rounded = fused(_rounded, device)
        self._added = fused(_added, device)
        self._handles = [[weights[one.name].handle for one in bucket.tenants] for bucket in layout.buckets]
        self._bucket_of = {
            tenant.name: number for number, bucket in enumerate(layout.buckets) for tenant in bucket.tenants
        }
        self._missing: list[set[str]] = []
        self._listening = False
        self._sent = 0
        for name in self._bucket_of:
            told = partial(self._is_added_to, name)
            weights[name].handle.register_post_accumulate_grad_hook(told)  # type: ignore[no-untyped-call]

    @property
    def scale(self) -> Tensor:
        """(P,): what codes are multiplied with, clipping included."""
        return self._scale * self._factor

    @property
    def amax(self) -> Tensor:
        """(P,): of the clipped sums over all ranks; infinite where any rank met a number that is not finite."""
        return self._amax * self._factor

    @property
    def released(self) -> bool:
        """Whether gradients are given away and not kept."""
        return self._release is not None

    def begin(self, observe: bool) -> None:
        """Forget the gradients of the step before."""
        for handles in self._handles:
            for handle in handles:
                handle.grad = None
        self._missing = [{tenant.name for tenant in bucket.tenants} for bucket in self._layout.buckets]
        self._sent, self._listening, self._observe = 0, False, observe
        self.flushed.zero_()
        self._squares.zero_()
        self._factor.fill_(1.0)

    def send_as_ready(self) -> None:
        """From now on a gradient is complete when it has been added to once more."""
        self._listening = True

    def complete(self, names: Iterable[str]) -> None:
        """The gradients of these weights are complete; buckets that now are, are sent."""
        for name in names:
            self._missing[self._bucket_of[name]].discard(name)
        while self._sent < len(self._handles) and not self._missing[self._sent]:
            self._send(self._sent)
            self._sent += 1

    def wait(self) -> None:
        """Return when all buckets have been reduced."""
        assert self._sent == len(self._handles), "a weight got no gradient"
        self._lane.wait()
        self._listening = False
        self.headroom.adapt()

    def norm(self, finite: Tensor | None = None) -> Tensor:
        """Global L2 norm of the stored gradients; not finite if any rank met a number that is not.

        Args:
            finite: () bool, whether all else is finite that this rank's stage knows of.
        """
        squares = self._data.sum(self._squares.clone())
        known = torch.isfinite(self._amax).all()
        known = known if finite is None else known & finite
        # Infinity stays what it is in a sum: one collective tells the other stages both.
        return self._model.sum(torch.where(known, squares, torch.inf)).sqrt()

    def clip(self, norm: Tensor, limit: float | None) -> None:
        """Bring the global norm down to ``limit``: the scales take the factor, codes stay."""
        if limit is not None:
            self._factor.copy_((limit / (norm + 1e-6)).clamp(max=1.0))

    def _is_added_to(self, name: str, _: Tensor) -> None:
        if self._listening:
            self.complete([name])

    def _send(self, number: int) -> None:
        """Take the bucket's gradients off their handles and have them reduced."""
        taken = []
        for handle in self._handles[number]:
            assert handle.grad is not None
            taken.append(handle.grad)
            handle.grad = None
        self._lane.give(partial(self._reduce, number, taken), taken)

    @torch.no_grad()
    def _reduce(self, number: int, gradients: list[Tensor]) -> None:
        bucket, stretches = self._layout.buckets[number], self._stretches[number]
        rows = _in_rows(bucket, gradients)
        amax = self._sharing.max(stretches.max(self._row_amax(rows)))
        scale = self._rescale(amax, bucket.places)
        kept = self._room_for(bucket)
        alone = self._data.ranks == 1
        codes = kept if alone else torch.empty(bucket.rows, ROW, dtype=E4M3, device=rows.device)
        large, squares, flushed = self._rounded(rows, stretches.spread(scale), codes, self._observe)
        self.headroom.too_large[bucket.places] = stretches.sum(large)
        self.flushed += flushed
        if not alone:
            scale, amax, squares = self._sum_over_ranks(number, codes, scale, amax, kept)
        self._scale[bucket.places], self._amax[bucket.places] = scale, amax
        if self._counted is not None:
            of_squares = stretches if alone else self._own[number]
            squares = squares * of_squares.spread(self._counted[bucket.places])[:, 0]
        self._squares += squares.sum()
        if self._release is not None:
            self._release(bucket, stretches, kept)

    def _room_for(self, bucket: Bucket) -> Tensor:
        """Rows for the codes that this rank keeps of ``bucket``."""
        if self._release is None:
            return self.codes[bucket.held]
        return torch.empty(bucket.rows, ROW, dtype=E4M3, device=self.codes.device)

    def _rescale(self, amax: Tensor, places: slice) -> Tensor:
        """Scales with headroom; where ``amax`` is of no use, the power of two before stays in force."""
        self.base[places] = scale_for(amax, E4M3, self.base[places])
        return self.base[places] / self.headroom.factor[places]

    def _sum_over_ranks(
        self, number: int, codes: Tensor, scale: Tensor, amax: Tensor, kept: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Fill ``kept``; returns scales and amaxes of the sums, and the squares of this rank's share of them by row."""
        bucket, own = self._layout.buckets[number], self._own[number]
        ranks, rank = self._data.ranks, self._data.rank
        mine, before = bucket.shares[rank], sum(bucket.shares[:rank])
        received = self._data.exchange(codes, bucket.shares, [mine] * ranks)
        total = self._added(received.view(ranks, mine, ROW), own.spread(scale))
        summed = self._sharing.max(own.max(self._row_amax(total)))
        new_scale = self._rescale(summed, bucket.places)
        share = kept if self._layout.cut else kept[before : before + mine]
        _, squares, _ = self._rounded(total, own.spread(new_scale), share, False)
        if not self._layout.cut:
            self._data.gather(kept)
        return new_scale, torch.where(torch.isfinite(amax), summed, torch.inf), squares


def _in_rows(bucket: Bucket, gradients: Sequence[Tensor]) -> Tensor:
    """(rows, 128): the gradients one after the other, in the dtype they came in, what is left over zero."""
    if len(gradients) == 1 and gradients[0].numel() == bucket.rows * ROW and gradients[0].is_contiguous():
        return gradients[0].view(-1, ROW)
    flat = gradients[0].new_zeros(bucket.rows * ROW)
    pieces, first = [], 0
    for tenant in bucket.tenants:
        pieces.append(flat[first : first + tenant.elements].view(tenant.shape))
        first += tenant.rows * ROW
    torch._foreach_copy_(pieces, list(gradients))
    return flat.view(-1, ROW)


def _row_amax(rows: Tensor) -> Tensor:
    """(rows,): largest absolute value of each row."""
    return finite_or_inf(rows.abs().amax(1).float())


def _rounded(rows: Tensor, scale: Tensor, codes: Tensor, observe: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Fill ``codes`` with (rows, 128) numbers divided by their (rows, 1) scales.

    Returns:
        (rows,) values that were too large; (rows,) sums of the squares of what is stored; () how many values of all
        became zero, if it is to be observed. All float32.
    """
    scaled = rows.float() / scale
    rounded = cast(scaled, E4M3)
    codes.copy_(rounded)
    large = (scaled.abs() > LARGEST[E4M3]).sum(1).float()
    stored = widen(rounded, torch.float32)
    squares = (stored * stored).sum(1) * (scale * scale).squeeze(1)
    flushed = ((rows != 0) & (stored == 0)).sum().float() if observe else squares.new_zeros(())
    return large, squares, flushed


def _added(codes: Tensor, scale: Tensor) -> Tensor:
    """Sum of (ranks, rows, 128) codes in float32, one rank after the other."""
    return widen(codes, torch.float32).sum(0) * scale
