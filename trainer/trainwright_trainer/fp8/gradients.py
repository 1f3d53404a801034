"""Gradients in FP8: one byte an element to keep and to send (FP8-LM, section 3.1).

Autograd leaves a gradient on each weight's handle. When the last one of a bucket is there, the bucket is

    1  laid out in rows and scaled: one amax a tensor, the largest over all ranks, gives all ranks the same scale
    2  rounded to E4M3, and its rows are cut into one share a rank
    3  exchanged: each rank gets its share from all of them, and adds them up in float32
    4  rounded once more, with the scale that the sum's own amax gives
    5  gathered, so that each rank has all shares; in a cut layout the owner keeps its share and this is left out

while earlier layers still compute. A ring that adds in E4M3 at each hop would send as many bytes and lose precision
with every rank; here a number is rounded twice, whatever their count.

Headroom μ ≤ 1 keeps a gradient away from the largest code: it is halved when more than 0.001 % of a tensor's values
were too large for its scale (seen before the clamp, on any rank), and grows back by a factor of two in 1,000 steps. With
a present amax that happens only where the amax was not finite, so μ is 1 in a healthy run.

    P weights   R rows held here
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from trainwright_trainer.fp8.formats import E4M3, LARGEST, cast, finite_or_inf, scale_for, widen
from trainwright_trainer.fp8.fused import fused
from trainwright_trainer.fp8.layout import ROW, Bucket, Layout, segment_max, segment_sum
from trainwright_trainer.fp8.weights import Weight
from trainwright_trainer.mesh import Mesh
from trainwright_trainer.parallel.lane import Lane

_OVERFLOW_FRACTION = 1e-5
_GROWTH = 2.0 ** (1 / 1_000)
_SMALLEST_HEADROOM = 2.0**-10

Release = Callable[[Bucket, Tensor], None]
"""Takes a bucket and its (rows, 128) codes as soon as they are there."""


class Gradients:
    """The gradients of all weights in E4M3."""

    def __init__(
        self, weights: dict[str, Weight], layout: Layout, mesh: Mesh, release: Release | None = None
    ) -> None:
        device, places = mesh.device, len(layout.tenants)
        self._mesh = mesh
        self._layout = layout
        self._release = release
        self._lane = Lane(mesh)
        self.codes = torch.zeros(
            0 if release else layout.held_rows, ROW, dtype=torch.float8_e4m3fn, device=device
        )
        """(R, 128); empty when gradients are released."""
        self.base = torch.ones(places, device=device)
        """(P,): powers of two, the scales without headroom."""
        self._scale = torch.ones(places, device=device)
        self._amax = torch.zeros(places, device=device)
        self._factor = torch.ones((), device=device)
        self.headroom = torch.ones(places, device=device)
        """(P,): μ."""
        self._overflow = torch.zeros(places, device=device)
        """(P,): fraction of a tensor's values that were too large for its scale, the largest of all ranks."""
        self.counts = torch.zeros(2, dtype=torch.int64, device=device)
        """Values that were clamped, and values that became zero, on this rank; counted when observed."""
        self.observe = False
        self._squares = torch.zeros((), device=device)
        self._offsets = [bucket.offsets().to(device) for bucket in layout.buckets]
        self._row_amax = fused(_row_amax, device)
        self._rounded = fused(_rounded, device)
        self._added = fused(_added, device)
        self._handles = [[weights[one.name].handle for one in bucket.tenants] for bucket in layout.buckets]
        self._missing: list[int] = []
        self._sent = 0
        for number, handles in enumerate(self._handles):
            for handle in handles:
                handle.register_post_accumulate_grad_hook(partial(self._is_there, number))  # type: ignore[no-untyped-call]

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
        self._missing, self._sent, self.observe = [], 0, observe
        self.counts.zero_()
        self._squares.zero_()
        self._factor.fill_(1.0)

    def send_as_ready(self) -> None:
        """From now on a bucket is sent when each of its gradients has been added to once more."""
        self._missing = [len(handles) for handles in self._handles]

    def wait(self) -> None:
        """Return when all buckets have been reduced."""
        assert self._sent == len(self._handles), "a weight got no gradient"
        self._lane.wait()
        self._missing = []
        self._adapt_headroom()

    def norm(self) -> Tensor:
        """Global L2 norm of the stored gradients; not finite if any rank met a number that is not."""
        squares = self._mesh.sum(self._squares.clone()) if self._layout.cut else self._squares
        return torch.where(torch.isfinite(self._amax).all(), squares.sqrt(), torch.inf)

    def clip(self, norm: Tensor, limit: float | None) -> None:
        """Bring the global norm down to ``limit``: the scales take the factor, codes stay."""
        if limit is not None:
            self._factor.copy_((limit / (norm + 1e-6)).clamp(max=1.0))

    def not_finite(self) -> str | None:
        """The first tensor of the backward pass whose gradient was not finite."""
        bad = torch.nonzero(~torch.isfinite(self._amax)).flatten().tolist()
        return self._layout.tenants[bad[0]].name if bad else None

    def _is_there(self, number: int, handle: Tensor) -> None:
        if not self._missing:
            return
        self._missing[number] -= 1
        while self._sent < len(self._handles) and self._missing[self._sent] == 0:
            self._send(self._sent)
            self._sent += 1

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
        bucket, offsets = self._layout.buckets[number], self._offsets[number]
        places = bucket.places
        rows = _in_rows(bucket, gradients)
        amax = self._mesh.max(segment_max(self._row_amax(rows), offsets))
        scale = self._rescale(amax, places)
        codes = self._round(rows, scale, bucket, offsets)
        if self._mesh.ranks > 1:
            codes, scale, summed = self._sum_over_ranks(bucket, offsets, codes, scale)
            amax = torch.where(torch.isfinite(amax), summed, torch.inf)
        self._scale[places], self._amax[places] = scale, amax
        row_norms = torch.linalg.vector_norm(widen(codes, torch.float32), dim=1)
        self._squares += torch.dot(
            segment_sum(row_norms**2, self._own_offsets(bucket, offsets)), scale * scale
        )
        if self._release is not None:
            self._release(bucket, codes)
        else:
            self.codes[bucket.held] = codes

    def _rescale(self, amax: Tensor, places: slice) -> Tensor:
        """Scales with headroom; where ``amax`` is of no use, the power of two before stays in force."""
        self.base[places] = scale_for(amax, E4M3, self.base[places])
        return self.base[places] / self.headroom[places]

    def _round(self, rows: Tensor, scale: Tensor, bucket: Bucket, offsets: Tensor) -> Tensor:
        """Codes of (rows, 128) gradients; remembers what share of each tensor was too large on any rank."""
        codes, large, lost = self._rounded(rows, _by_row(scale, offsets, bucket.rows), self.observe)
        if self.observe:
            self.counts += torch.stack((large.sum(), lost))
        elements = (offsets.diff() * ROW).clamp(min=1)
        self._overflow[bucket.places] = self._mesh.max(segment_sum(large.float(), offsets) / elements)
        return codes

    def _sum_over_ranks(
        self, bucket: Bucket, offsets: Tensor, codes: Tensor, scale: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Codes that this rank keeps, their scales and the amax of the sums."""
        ranks, rank = self._mesh.ranks, self._mesh.rank
        mine, before = bucket.shares[rank], sum(bucket.shares[:rank])
        received = self._mesh.exchange(codes, bucket.shares, [mine] * ranks)
        own_offsets = offsets.clamp(before, before + mine) - before
        total = self._added(received.view(ranks, mine, ROW), _by_row(scale, own_offsets, mine))
        amax = self._mesh.max(segment_max(self._row_amax(total), own_offsets))
        new_scale = self._rescale(amax, bucket.places)
        own, _, _ = self._rounded(total, _by_row(new_scale, own_offsets, mine), False)
        if self._layout.cut:
            return own, new_scale, amax
        shares = torch.empty_like(codes)
        shares[before : before + mine] = own
        self._mesh.gather(shares)
        return shares, new_scale, amax

    def _own_offsets(self, bucket: Bucket, offsets: Tensor) -> Tensor:
        """Offsets of the tensors within the bucket's rows that this rank keeps."""
        if not self._layout.cut:
            return offsets
        before = sum(bucket.shares[: self._mesh.rank])
        return offsets.clamp(before, before + bucket.shares[self._mesh.rank]) - before

    def _adapt_headroom(self) -> None:
        halved = self.headroom / 2
        grown = self.headroom * _GROWTH
        self.headroom = torch.where(self._overflow > _OVERFLOW_FRACTION, halved, grown).clamp(
            _SMALLEST_HEADROOM, 1.0
        )


def _in_rows(bucket: Bucket, gradients: Sequence[Tensor]) -> Tensor:
    """(rows, 128): the gradients one after the other, in the dtype they came in, what is left over zero."""
    flat = gradients[0].new_zeros(bucket.rows * ROW)
    pieces, first = [], 0
    for tenant in bucket.tenants:
        pieces.append(flat[first : first + tenant.elements].view(tenant.shape))
        first += tenant.rows * ROW
    torch._foreach_copy_(pieces, list(gradients))
    return flat.view(-1, ROW)


def _by_row(of_tensors: Tensor, offsets: Tensor, rows: int) -> Tensor:
    """(rows, 1): each row's share of a vector over tensors."""
    return torch.repeat_interleave(of_tensors, offsets.diff(), output_size=rows)[:, None]


def _row_amax(rows: Tensor) -> Tensor:
    """(rows,): largest absolute value of each row."""
    return finite_or_inf(rows.abs().amax(1).float())


def _rounded(rows: Tensor, scale: Tensor, observe: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Codes, how many of each row's values were too large for them, and how many of all became zero if observed."""
    scaled = rows.float() / scale
    codes = cast(scaled, E4M3)
    large = (scaled.abs() > LARGEST[E4M3]).sum(1)
    lost = ((rows != 0) & (codes.view(torch.uint8) & 0x7F == 0)).sum() if observe else large.new_zeros(())
    return codes, large, lost


def _added(codes: Tensor, scale: Tensor) -> Tensor:
    """Sum of (ranks, rows, 128) codes in float32, one rank after the other."""
    return widen(codes, torch.float32).sum(0) * scale
