"""The memory that snapshots are copied to: one block, of the size of this rank's state, kept from one to the next.

Memory that is new costs more than the copying: the kernel makes each page when it is first written to. So the first
snapshot pays for the block and later ones do not; a training on a CPU occupies the size of its state once more from
its first checkpoint on. A GPU, besides, copies at full speed to pinned memory only. torch's own takes each tensor's
size up to the next power of two: 34 GB of state become 45 to 50. So the block is ordinary memory, pinned as a whole
where a device copies to it, and tensors stand in it side by side.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

_ALIGNMENT_BYTES = 64


class HostMemory:
    """Holds the copies of one snapshot; the next one overwrites them."""

    def __init__(self, pin: Callable[[Tensor], Callable[[], None]] | None = None) -> None:
        """``pin`` pins a tensor's memory, and returns what undoes that; CUDA's when not given."""
        self._pin = pin or _pin
        self._block = torch.empty(0, dtype=torch.uint8)
        self._unpin: Callable[[], object] = lambda: None

    def copies(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Copies of ``tensors``, contiguous and complete, until the next call: it writes over them."""
        from_device = any(tensor.device.type != "cpu" for tensor in tensors)
        places = self.places(tensors, pinned=from_device)
        for place, tensor in zip(places, tensors, strict=True):
            place.copy_(tensor.detach(), non_blocking=True)
        if from_device:
            torch.cuda.synchronize()
        return places

    def places(self, tensors: Sequence[Tensor], pinned: bool) -> list[Tensor]:
        """Room in the block for each of ``tensors``, of its shape and dtype; earlier places are given out again."""
        firsts = [0]
        for tensor in tensors:
            firsts.append(firsts[-1] + -(-tensor.nbytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES)
        if firsts[-1] > self._block.nbytes:
            self._take(firsts[-1], pinned)
        return [
            self._block[first : first + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            for first, tensor in zip(firsts[:-1], tensors, strict=True)
        ]

    def _take(self, size_bytes: int, pinned: bool) -> None:
        self._unpin()
        self._unpin = lambda: None
        self._block = torch.empty(0, dtype=torch.uint8)  # the old one goes before the new one comes
        self._block = torch.empty(size_bytes, dtype=torch.uint8)
        if not pinned:
            return
        # Memory must not be freed while it is pinned: what undoes it holds the block. When the process ends, all ends.
        self._unpin = unpin = weakref.finalize(self, _undo, self._pin(self._block), self._block)
        unpin.atexit = False


def _pin(block: Tensor) -> Callable[[], None]:
    cuda, address = torch.cuda.cudart(), block.data_ptr()  # type: ignore[no-untyped-call]
    _check(cuda.cudaHostRegister(address, block.nbytes, 0))
    return lambda: _check(cuda.cudaHostUnregister(address))


def _check(code: Any) -> None:
    if int(code) != 0:
        raise RuntimeError(f"host memory for checkpoints cannot be pinned: CUDA error {int(code)}")


def _undo(unpin: Callable[[], None], block: Tensor) -> None:
    unpin()
