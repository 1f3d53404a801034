"""Autocast, which sets the number format of a forward pass."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from trainwright.contracts.precision_spec import PrecisionKind


def autocast(precision: PrecisionKind, device: torch.device) -> AbstractContextManager[object]:
    """The context of a forward pass in ``precision``."""
    if precision is not PrecisionKind.BF16:
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)
