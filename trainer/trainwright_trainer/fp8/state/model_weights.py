"""Replicas of weights whose masters are sharded over the ranks: E4M3, one byte per parameter (FP8-LM, section 3.3).

After an update each owner casts its masters to E4M3 and broadcasts the codes: half as many bytes as BF16
weights. Weights with one dim (norms) are few and stay in float32. A tensor's E4M3 scale follows from the amax
of its master, which all ranks know, so no scale is sent.

Rows are ordered by owner, each owner's in its own order: one broadcast per owner.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.fp8.compute.formats import E4M3, cast
from trainwright_trainer.fp8.state.optimizer import StateBuffer
from trainwright_trainer.fp8.state.row_layout import ROW, ParamSlot, RowLayout, view_of
from trainwright_trainer.runtime.compilation import fuse_on_gpu

_CHUNK_ROWS = 2**20


class FP8ModelWeights:
    """E4M3 rows of all weights, and float32 rows of those with one dim."""

    def __init__(self, layout: RowLayout, data: Axis) -> None:
        assert layout.sharded
        self._data = data
        slots = [layout.slots_of(rank) for rank in range(layout.ranks)]
        self._matrices = _Rows(
            [[item for item in own if len(item.shape) > 1] for own in slots], E4M3, data.device
        )
        self._vectors = _Rows(
            [[item for item in own if len(item.shape) < 2] for own in slots], torch.float32, data.device
        )
        first = layout.first_rows()
        self._row_slots = layout.local_segments(data.device).tensor_of_row
        self._matrix_rows = _local_rows(self._matrices.slots[data.rank], first, data.device)
        self._vector_rows = _local_rows(self._vectors.slots[data.rank], first, data.device)
        self._cast = fuse_on_gpu(_cast_rows, data.device)

    def codes_of(self, slot: ParamSlot) -> Tensor:
        """The weight's values, in its shape: E4M3 codes of a matrix, float32 of a vector."""
        kind = self._matrices if len(slot.shape) > 1 else self._vectors
        return kind.view(slot)

    def refresh(self, master: StateBuffer, cast_scale: Tensor) -> None:
        """Cast this rank's masters with ``cast_scale`` (P,) and receive the rows of all other ranks."""
        own = self._matrices.local(self._data.rank)
        for start in range(0, len(own), _CHUNK_ROWS):
            rows = self._matrix_rows[start : start + _CHUNK_ROWS]
            row_slots = self._row_slots[rows]
            self._cast(
                own[start : start + _CHUNK_ROWS],
                master.codes[rows],
                (master.scale[row_slots] / cast_scale[row_slots])[:, None],
            )
        rows = self._vector_rows
        self._vectors.local(self._data.rank).copy_(
            master.codes[rows].float() * master.scale[self._row_slots[rows]][:, None]
        )
        for kind in (self._matrices, self._vectors):
            kind.broadcast(self._data)


class _Rows:
    """Rows of all ranks, one range per rank."""

    def __init__(self, slots: list[list[ParamSlot]], dtype: torch.dtype, device: torch.device) -> None:
        self.slots = slots
        self._first: dict[str, int] = {}
        self._ranges: list[slice] = []
        row = 0
        for own in slots:
            begin = row
            for slot in own:
                self._first[slot.name] = row
                row += slot.rows
            self._ranges.append(slice(begin, row))
        self._codes = torch.zeros(row, ROW, dtype=dtype, device=device)

    def local(self, rank: int) -> Tensor:
        return self._codes[self._ranges[rank]]

    def view(self, slot: ParamSlot) -> Tensor:
        return view_of(self._codes, self._first[slot.name], slot)

    def broadcast(self, data: Axis) -> None:
        for rank, rows in enumerate(self._ranges):
            if rows.start < rows.stop:
                data.broadcast(self._codes[rows], rank)


def _local_rows(slots: list[ParamSlot], first: dict[str, int], device: torch.device) -> Tensor:
    """Indices of the rows of ``slots`` among this rank's rows."""
    rows = [torch.arange(first[slot.name], first[slot.name] + slot.rows) for slot in slots]
    return torch.cat([torch.empty(0, dtype=torch.int64), *rows]).to(device)


def _cast_rows(into: Tensor, codes: Tensor, factor: Tensor) -> None:
    into.copy_(cast(codes.float() * factor, E4M3))
