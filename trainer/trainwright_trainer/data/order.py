"""The order of the data: a shuffle that is computed, never stored.

Epoch e visits the n sequences of the training split in the order of a keyed permutation, a Feistel network (Luby &
Rackoff 1988): the index is split into two halves, and each round xors one half with a hash of the other. That can be
undone for any hash, so no two indices collide. The network permutes 2^(2·bits) ≥ n numbers; a result of n or more is
permuted again until it falls below n (cycle walking), which permutes 0..n-1.

So the k-th sequence of any epoch costs a few operations, on any rank, and nothing is materialized: the tokens
of a step depend only on the seed, the shards and the batch size.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.uint64]
_ROUNDS = 6


class SequenceOrder:
    """The endless stream of sequence indices over all epochs."""

    def __init__(self, sequences: int, seed: int) -> None:
        if sequences < 1:
            raise ValueError(
                "the training split is shorter than one sequence: shorten batch.sequence_tokens or add data"
            )
        self.sequences = sequences
        self._seed = seed

    def at(self, positions: Indices) -> Indices:
        """The sequence at each global position (0 is the first of the first epoch)."""
        epochs, within = np.divmod(positions, np.uint64(self.sequences))
        found = np.empty_like(positions)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            found[here] = permute(within[here], self.sequences, self._seed, int(epoch))
        return found


def permute(indices: Indices, size: int, seed: int, epoch: int) -> Indices:
    """Images of ``indices`` under the permutation of 0..size-1 given by (seed, epoch)."""
    half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
    keys = _mix(_mix(np.arange(_ROUNDS, dtype=np.uint64) ^ np.uint64(seed)) ^ np.uint64(epoch))
    found = _feistel(indices, half_bits, keys)
    while (outside := found >= size).any():
        found[outside] = _feistel(found[outside], half_bits, keys)
    return found


def _feistel(indices: Indices, half_bits: int, keys: Indices) -> Indices:
    shift, mask = np.uint64(half_bits), np.uint64((1 << half_bits) - 1)
    left, right = indices >> shift, indices & mask
    for key in keys:
        left, right = right, left ^ (_mix(right ^ key) & mask)
    return (left << shift) | right


def _mix(x: Indices) -> Indices:
    """SplitMix64's finalizer (Steele et al. 2014): every input bit reaches every output bit."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
