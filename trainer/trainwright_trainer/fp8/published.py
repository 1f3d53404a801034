"""Weights as all ranks hold them when masters are cut over the ranks: E4M3, one byte a parameter (FP8-LM, section 3.3).

After an update each owner casts its masters to E4M3, and gives the codes to everybody: half of what BF16 weights would
send. Weights with one dim (norms) are few and stay in float32. A tensor's E4M3 scale follows from the amax of its
master, which all ranks know, so that no scale travels with the codes.

Rows stand owner after owner, each owner's in the order in which it holds them: one broadcast an owner.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainwright_trainer.fp8.formats import E4M3, cast
from trainwright_trainer.fp8.fused import fused
from trainwright_trainer.fp8.layout import ROW, Layout, Tenant, view_of
from trainwright_trainer.fp8.optimizer import Numbers
from trainwright_trainer.mesh import Axis

_CHUNK_ROWS = 2**20


class Published:
    """E4M3 rows of all weights, and float32 rows of those with one dim."""

    def __init__(self, layout: Layout, data: Axis) -> None:
        assert layout.cut
        self._data = data
        held = [layout.held_by(rank) for rank in range(layout.ranks)]
        self._matrices = _Rows(
            [[one for one in own if len(one.shape) > 1] for own in held], E4M3, data.device
        )
        self._vectors = _Rows(
            [[one for one in own if len(one.shape) < 2] for own in held], torch.float32, data.device
        )
        first = layout.first_rows()
        self._row_places = layout.held_stretches(data.device).tensor_of_row
        self._matrix_rows = _held_rows(self._matrices.tenants[data.rank], first, data.device)
        self._vector_rows = _held_rows(self._vectors.tenants[data.rank], first, data.device)
        self._cast = fused(_cast_rows, data.device)

    def codes_of(self, tenant: Tenant) -> Tensor:
        """The weight's numbers, of its shape: E4M3 codes of a matrix, float32 of a vector."""
        kind = self._matrices if len(tenant.shape) > 1 else self._vectors
        return kind.of(tenant)

    def publish(self, master: Numbers, cast_scale: Tensor) -> None:
        """Cast this rank's masters with ``cast_scale`` (P,) and fetch the rows of all other ranks."""
        own = self._matrices.own(self._data.rank)
        for start in range(0, len(own), _CHUNK_ROWS):
            rows = self._matrix_rows[start : start + _CHUNK_ROWS]
            places = self._row_places[rows]
            self._cast(
                own[start : start + _CHUNK_ROWS],
                master.codes[rows],
                (master.scale[places] / cast_scale[places])[:, None],
            )
        rows = self._vector_rows
        self._vectors.own(self._data.rank).copy_(
            master.codes[rows].float() * master.scale[self._row_places[rows]][:, None]
        )
        for kind in (self._matrices, self._vectors):
            kind.share(self._data)


class _Rows:
    """Rows of all ranks, one stretch a rank."""

    def __init__(self, tenants: list[list[Tenant]], dtype: torch.dtype, device: torch.device) -> None:
        self.tenants = tenants
        self._first: dict[str, int] = {}
        self._stretches: list[slice] = []
        row = 0
        for own in tenants:
            begin = row
            for tenant in own:
                self._first[tenant.name] = row
                row += tenant.rows
            self._stretches.append(slice(begin, row))
        self._codes = torch.zeros(row, ROW, dtype=dtype, device=device)

    def own(self, rank: int) -> Tensor:
        return self._codes[self._stretches[rank]]

    def of(self, tenant: Tenant) -> Tensor:
        return view_of(self._codes, self._first[tenant.name], tenant)

    def share(self, data: Axis) -> None:
        for rank, stretch in enumerate(self._stretches):
            if stretch.start < stretch.stop:
                data.broadcast(self._codes[stretch], rank)


def _held_rows(tenants: list[Tenant], first: dict[str, int], device: torch.device) -> Tensor:
    """Numbers of the rows of ``tenants`` among those this rank holds."""
    rows = [torch.arange(first[one.name], first[one.name] + one.rows) for one in tenants]
    return torch.cat([torch.empty(0, dtype=torch.int64), *rows]).to(device)


def _cast_rows(into: Tensor, codes: Tensor, factor: Tensor) -> None:
    into.copy_(cast(codes.float() * factor, E4M3))
