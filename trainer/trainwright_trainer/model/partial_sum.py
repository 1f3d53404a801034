"""A sum inside a part of a block whose terms tensor ranks may share."""

from __future__ import annotations

from torch import Tensor, nn


class PartialSum(nn.Module):
    """(…) → (…): the identity where one rank computes the entire sum. Tensor parallelism replaces it by the sum of the ranks'
    terms (``parallel.tensor.parallelize``).

    A variant of attention has one after each matmul whose columns tensor ranks split, except its last, whose result the
    ranks sum together with the residual stream's tokens.
    """

    def forward(self, terms: Tensor) -> Tensor:
        return terms
