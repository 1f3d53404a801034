"""Choosing which of torch's kernels computes attention on a GPU.

By default torch prefers flash attention. On Hopper GPUs cuDNN's kernel takes about two thirds of the time (Shah et al.
2024, arXiv 2407.08608, figures 5 and 6), so it comes first here if it accepts shape and dtype.
"""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from functools import cache

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

_NAMES = {
    SDPBackend.CUDNN_ATTENTION: "cuDNN's kernel",
    SDPBackend.FLASH_ATTENTION: "flash attention",
    SDPBackend.EFFICIENT_ATTENTION: "memory-efficient attention",
    SDPBackend.MATH: "plain matmuls",
}
"""The preferred one first."""


@cache
def prefer_attention_kernels() -> None:
    """Order the kernels until this process ends."""
    order = ExitStack()
    order.enter_context(sdpa_kernel(list(_NAMES), set_priority=True))
    atexit.register(order.close)  # keeps it, and ends it while torch is still there


def attention_kernel(heads: int, key_heads: int, positions: int, head_size: int, sample: Tensor) -> str:
    """What causal attention of this shape is computed by, for tensors like ``sample`` that need gradients."""
    q_BHTK = sample.new_empty(1, heads, positions, head_size).requires_grad_()
    k_BGTK = sample.new_empty(1, key_heads, positions, head_size).requires_grad_()
    choice = torch._fused_sdp_choice(q_BHTK, k_BGTK, k_BGTK, None, 0.0, True, enable_gqa=heads != key_heads)
    return next(name for kind, name in _NAMES.items() if kind.value == choice)
