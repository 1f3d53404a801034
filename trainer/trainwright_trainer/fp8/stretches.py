"""Rows cut into stretches, one a tensor: a number for each row from one for each tensor, and back.

R rows   T tensors
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class Stretches:
    """Says which tensor each row belongs to."""

    def __init__(self, rows: Sequence[int], device: torch.device) -> None:
        """``rows`` of each tensor, one tensor after the other; some may have none here."""
        present = [tensor for tensor, count in enumerate(rows) if count]
        self._counts = [count for count in rows if count]
        self._tensors = len(rows)
        self._present = torch.tensor(present, device=device)
        self.tensor_of_row = torch.repeat_interleave(
            torch.arange(len(rows), dtype=torch.int32), torch.tensor(rows)
        ).to(device)
        """(R,) int32."""

    def spread(self, of_tensors_T: Tensor) -> Tensor:
        """(T,) → (R, 1)."""
        return of_tensors_T[self.tensor_of_row][:, None]

    def max(self, of_rows_R: Tensor) -> Tensor:
        """(R,) → (T,): the largest number of each tensor; 0 where it has no rows."""
        return self._reduced(torch._foreach_max, of_rows_R)

    def sum(self, of_rows_R: Tensor) -> Tensor:
        """(R,) → (T,): the sum of each tensor's numbers, none of which may be negative."""
        return self._reduced(_foreach_sum, of_rows_R)

    def _reduced(self, reduction: Callable[[list[Tensor]], Sequence[Tensor]], of_rows_R: Tensor) -> Tensor:
        found = of_rows_R.new_zeros(self._tensors)
        if self._counts:
            # One call for all stretches, whose work a GPU spreads over all of itself however long they are.
            stretches = list(torch.split(of_rows_R, self._counts))
            found[self._present] = torch.stack(list(reduction(stretches)))
        return found


def _foreach_sum(stretches: list[Tensor]) -> Sequence[Tensor]:
    return torch._foreach_norm(stretches, 1)
