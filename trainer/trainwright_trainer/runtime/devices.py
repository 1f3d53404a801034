"""GPU numbers: a GPU's position in PCI bus order among those that ``CUDA_VISIBLE_DEVICES`` leaves visible.

CUDA's default order is fastest first. On a machine with mixed GPUs its numbers would differ from those of
``nvidia-smi`` and could change with the environment. Here a slot means the same GPU to the self-test and to
the rank.
"""

from __future__ import annotations

import os


def order_gpus_by_pci_bus() -> None:
    """Set the order; call it before this process uses CUDA."""
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
