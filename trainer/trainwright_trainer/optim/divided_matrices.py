"""Functions of entire matrices whose parts are on several ranks: each matrix is computed by one of them.

Up to three axes have a matrix: ZeRO stage 3 divides its rows, tensor ranks divide one of its dims, and other data ranks
have copies of the parts. The ranks of all three divide the matrices among them by their costs. In a round, each rank
computes at most one, so it needs memory for one entire matrix. Costly matrices come first, so those of a round cost
about the same.

    gather    rows     parts of all matrices of the round     → this rank's slices of those of its tensor group
              tensor   slices of those of its tensor group    → this rank's matrix
    scatter   tensor, then rows: the same backwards
    copies    parts of the results                            → the ranks that have copies of them

A round has one all-to-all per axis to gather and one to scatter. Ranks with copies have different rounds, and send each
other all results after them, in flat buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import NamedTuple

import torch
from torch import Tensor

from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.shard_spec import Slice, assign_owners, row_shard

BUFFER_BYTES = 25 * 2**20


class _Worker(NamedTuple):
    """The rank that computes a matrix, by its rank on each axis."""

    copy: int
    row: int
    column: int


class _Round(NamedTuple):
    """Names of matrices that are computed at the same time, at most one by each rank."""

    by_row: list[list[str]]
    """All of them, by the worker's rank on the axis of rows."""

    by_column: list[list[str]]
    """Those of this rank's tensor group, by the worker's rank in it."""

    group: list[str]
    """Those of this rank's tensor group."""

    own: list[str]
    """That of this rank."""


class DividedMatrices:
    """Matrices, by name, whose parts are on the ranks of three axes; all of these ranks create it in the same way."""

    def __init__(self, slices: Mapping[str, Slice], copies: Axis, rows: Axis, tensor: Axis) -> None:
        """Assign each matrix to a rank.

        Args:
            slices: this rank's tensor-parallel slice of each matrix; other ranks of ``tensor`` have equally large ones.
            copies: ranks with the same parts.
            rows: ranks that divide the rows of the slices.
            tensor: ranks with the other slices.
        """
        self._slices = slices
        self._copies, self._rows, self._tensor = copies, rows, tensor
        costs = {name: _cost(*box.full_shape) for name, box in slices.items()}
        workers = assign_owners(costs, copies.ranks * rows.ranks * tensor.ranks)
        self._worker_of = {name: self._worker(number) for name, number in workers.items()}
        queues: dict[_Worker, list[str]] = {}
        for name, worker in self._worker_of.items():
            if worker.copy == copies.rank:
                queues.setdefault(worker, []).append(name)
        rounds = zip_longest(*(queues[worker] for worker in sorted(queues)))
        self._rounds = [self._round([name for name in names if name is not None]) for names in rounds]

    def replace(
        self, parts: Mapping[str, Tensor], compute: Callable[[Tensor], Tensor], dtype: torch.dtype
    ) -> None:
        """Replace this rank's part of each matrix by its part of ``compute(matrix)``; all ranks must call this.

        Args:
            parts: by name; those without rows may be left out.
            compute: takes and returns an entire matrix.
            dtype: of what ``compute`` takes and returns, and of what is sent.
        """
        for one in self._rounds:
            results = {name: compute(matrix) for name, matrix in self._gather(one, parts, dtype)}
            self._scatter(one, results, parts, dtype)
        if self._copies.ranks > 1:
            for source, members in self._buffers(dtype):
                self._broadcast(source, members, parts, dtype)

    def _worker(self, number: int) -> _Worker:
        copy, number = divmod(number, self._rows.ranks * self._tensor.ranks)
        return _Worker(copy, *divmod(number, self._tensor.ranks))

    def _round(self, names: Sequence[str]) -> _Round:
        rows, columns = range(self._rows.ranks), range(self._tensor.ranks)
        by_row = [[name for name in names if self._worker_of[name].row == row] for row in rows]
        group = by_row[self._rows.rank]
        by_column = [[name for name in group if self._worker_of[name].column == column] for column in columns]
        return _Round(by_row, by_column, group, by_column[self._tensor.rank])

    def _gather(
        self, one: _Round, parts: Mapping[str, Tensor], dtype: torch.dtype
    ) -> Iterator[tuple[str, Tensor]]:
        """The matrix of this rank, with its name; nothing if others compute the last ones."""
        own_parts = [[self._part(name, parts, dtype) for name in names] for names in one.by_row]
        shapes = [[self._shape(name, row) for name in one.group] for row in range(self._rows.ranks)]
        received = _exchange(self._rows, own_parts, shapes, dtype)
        slice_of = {name: _joined(pieces, 0) for name, *pieces in zip(one.group, *received, strict=True)}
        own_slices = [[slice_of[name] for name in names] for names in one.by_column]
        shapes = [[self._slices[name].shape for name in one.own]] * self._tensor.ranks
        received = _exchange(self._tensor, own_slices, shapes, dtype)
        for name, *pieces in zip(one.own, *received, strict=True):
            yield name, _joined(pieces, _split_dim(self._slices[name]))

    def _scatter(
        self, one: _Round, results: Mapping[str, Tensor], parts: Mapping[str, Tensor], dtype: torch.dtype
    ) -> None:
        """Send the parts of this rank's result to the ranks that have them, and take its own parts of all results."""
        pieces = [_pieces(results[name], self._slices[name], self._tensor.ranks) for name in one.own]
        by_column = [list(of_one) for of_one in zip(*pieces, strict=True)] or [[]] * self._tensor.ranks
        shapes = [[self._slices[name].shape for name in names] for names in one.by_column]
        slices = _exchange(self._tensor, by_column, shapes, dtype)
        slice_of = dict(zip(chain(*one.by_column), chain(*slices), strict=True))
        by_row = [
            [slice_of[name].split(self._lengths(name))[row] for name in one.group]
            for row in range(self._rows.ranks)
        ]
        shapes = [[self._shape(name, self._rows.rank) for name in names] for names in one.by_row]
        received = _exchange(self._rows, by_row, shapes, dtype)
        for name, part in zip(chain(*one.by_row), chain(*received), strict=True):
            if name in parts:
                parts[name].copy_(part)

    def _part(self, name: str, parts: Mapping[str, Tensor], dtype: torch.dtype) -> Tensor:
        """This rank's part of a matrix, in ``dtype``."""
        if name in parts:
            return parts[name].to(dtype)
        return torch.empty(self._shape(name, self._rows.rank), dtype=dtype, device=self._rows.device)

    def _shape(self, name: str, row: int) -> tuple[int, ...]:
        """Shape of the part of a rank of the axis of rows."""
        return row_shard(self._slices[name], row, self._rows.ranks).shape

    def _lengths(self, name: str) -> list[int]:
        """Number of rows of each rank."""
        return [self._shape(name, row)[0] for row in range(self._rows.ranks)]

    def _buffers(self, dtype: torch.dtype) -> Iterator[tuple[int, list[str]]]:
        """Matrices that one of the ranks with copies has computed and sends together."""
        for copy in range(self._copies.ranks):
            members: list[str] = []
            size = 0
            for name, worker in self._worker_of.items():
                if worker.copy != copy:
                    continue
                members.append(name)
                size += torch.Size(self._shape(name, self._rows.rank)).numel() * dtype.itemsize
                if size >= BUFFER_BYTES:
                    yield copy, members
                    members, size = [], 0
            if size:
                yield copy, members

    def _broadcast(
        self, source: int, names: Sequence[str], parts: Mapping[str, Tensor], dtype: torch.dtype
    ) -> None:
        here = [parts[name] for name in names if name in parts]
        if source == self._copies.rank:
            flat = torch.cat([part.to(dtype).flatten() for part in here])
        else:
            flat = torch.empty(sum(part.numel() for part in here), dtype=dtype, device=self._copies.device)
        self._copies.broadcast(flat, source)
        if source != self._copies.rank:
            for part, result in zip(here, flat.split([part.numel() for part in here]), strict=True):
                part.copy_(result.view_as(part))


def _exchange(
    axis: Axis,
    sent: Sequence[Sequence[Tensor]],
    shapes: Sequence[Sequence[Sequence[int]]],
    dtype: torch.dtype,
) -> Sequence[Sequence[Tensor]]:
    """Send each rank of ``axis`` its tensors, and return those from each rank, which have ``shapes``."""
    if axis.ranks == 1:
        return sent
    nothing = torch.empty(0, dtype=dtype, device=axis.device)
    flat = torch.cat([nothing, *(tensor.flatten() for tensors in sent for tensor in tensors)])
    sizes = [[torch.Size(shape).numel() for shape in of_rank] for of_rank in shapes]
    received = axis.all_to_all(
        flat[:, None], [sum(tensor.numel() for tensor in tensors) for tensors in sent], [*map(sum, sizes)]
    )
    pieces = iter(received.flatten().split([*chain(*sizes)]))
    return [[next(pieces).view(*shape) for shape in of_rank] for of_rank in shapes]


def _split_dim(box: Slice) -> int | None:
    """The dim that tensor ranks divide; None if each has the entire matrix."""
    lengths = zip(box.shape, box.full_shape, strict=True)
    return next((dim for dim, (own, full) in enumerate(lengths) if own != full), None)


def _joined(pieces: list[Tensor], dim: int | None) -> Tensor:
    """The pieces along ``dim``, or the first one if all are the same."""
    return pieces[0] if dim is None or len(pieces) == 1 else torch.cat(pieces, dim)


def _pieces(matrix: Tensor, box: Slice, ranks: int) -> Sequence[Tensor]:
    """``matrix`` split into the slices of all tensor ranks. This rank's is ``box``."""
    dim = _split_dim(box)
    return [matrix] * ranks if dim is None else matrix.chunk(ranks, dim)


def _cost(rows: int, columns: int) -> int:
    """What orthogonalizing a matrix costs, but for a factor."""
    return rows * columns * min(rows, columns)
