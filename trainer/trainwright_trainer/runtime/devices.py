"""Settings for GPUs that must be made before a process uses CUDA: their numbers and how memory is allocated.

A GPU's number is its position in PCI bus order among those that ``CUDA_VISIBLE_DEVICES`` leaves visible. CUDA's
default order is fastest first. On a machine with mixed GPUs its numbers would differ from those of ``nvidia-smi``
and could change with the environment. Here a slot means the same GPU to the self-test and to the rank.
"""

from __future__ import annotations

import os

_ALLOCATOR_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""torch reads either; the second is the older name."""


def order_gpus_by_pci_bus() -> None:
    """Set the order; call it before this process uses CUDA."""
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"


def use_expandable_segments() -> None:
    """Let torch's allocator grow its segments, which reduces fragmentation by blocks of many sizes.

    Call it before this process, or the one that it starts, uses CUDA. Settings of the node's owner are kept.
    """
    if not any(os.environ.get(name) for name in _ALLOCATOR_SETTINGS):
        os.environ[_ALLOCATOR_SETTINGS[0]] = "expandable_segments:True"
