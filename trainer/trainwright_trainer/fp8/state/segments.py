"""Rows grouped into segments, one per tensor: per-row values from per-tensor values, and back.

R rows   T tensors
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class Segments:
    """Maps rows to tensors."""

    def __init__(self, rows: Sequence[int], device: torch.device) -> None:
        """``rows`` of each tensor, one tensor after the other; a tensor may have none here."""
        present = [tensor for tensor, count in enumerate(rows) if count]
        self._counts = [count for count in rows if count]
        self._tensors = len(rows)
        self._present = torch.tensor(present, device=device)
        self.tensor_of_row = torch.repeat_interleave(
            torch.arange(len(rows), dtype=torch.int32), torch.tensor(rows), output_size=sum(rows)
        ).to(device)
        """(R,) int32."""

    def spread(self, of_tensors_T: Tensor) -> Tensor:
        """(T,) → (R, 1)."""
        return of_tensors_T[self.tensor_of_row][:, None]

    def max(self, of_rows_R: Tensor) -> Tensor:
        """(R,) → (T,): the maximum of each tensor; 0 if it has no rows."""
        return self._reduced(torch._foreach_max, of_rows_R)

    def sum(self, of_rows_R: Tensor) -> Tensor:
        """(R,) → (T,): the sum of each tensor, over values that must not be negative."""
        return self._reduced(_foreach_sum, of_rows_R)

    def _reduced(self, reduction: Callable[[list[Tensor]], Sequence[Tensor]], of_rows_R: Tensor) -> Tensor:
        found = of_rows_R.new_zeros(self._tensors)
        if self._counts:
            # One call for all segments, which a GPU parallelizes well for segments of any length.
            segments = list(torch.split(of_rows_R, self._counts))
            found[self._present] = torch.stack(list(reduction(segments)))
        return found


def _foreach_sum(segments: list[Tensor]) -> Sequence[Tensor]:
    return torch._foreach_norm(segments, 1)
