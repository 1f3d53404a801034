"""Which number a GPU has: its place in the order of the PCI bus, among those that ``CUDA_VISIBLE_DEVICES`` leaves.

CUDA's own order is the fastest first, so that on a machine with mixed GPUs the numbers would not be those of
``nvidia-smi``, and might change with an environment. Here a slot means the same to whoever lists it and to the rank
that takes it.
"""

from __future__ import annotations

import os


def number_by_bus() -> None:
    """Fix the order, before this process has asked CUDA for anything."""
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
