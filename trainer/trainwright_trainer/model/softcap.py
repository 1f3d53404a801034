"""Soft caps: c · tanh(x / c) is nearly x for small x, and never more than c (Gemma 2, arXiv 2408.00118)."""

from __future__ import annotations

from torch import Tensor


def softcapped(x: Tensor, cap: float | None) -> Tensor:
    """``x`` limited smoothly to (-cap, cap); ``x`` itself if ``cap`` is None."""
    return x if cap is None else (x / cap).tanh() * cap
