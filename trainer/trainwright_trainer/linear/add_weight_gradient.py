"""Adding a weight gradient to the sum of a step's micro batches inside the matmul that computes it.

Autograd gets dW in bfloat16, casts it to float32 and adds it to the float32 sum: 18 bytes read and written per weight
and micro batch. cuBLAS adds to float32 in the matmul itself, at the end of each tile, and nothing is rounded to
bfloat16 in between (``torch.addmm`` with ``out_dtype``: CUDA only, with a float32 sum since torch 2.10). The compiler
would split that into a matmul and an addition again, so it gets one opaque operator. On other devices dW is rounded as
by autograd and added by one kernel, which gives autograd's bits.

The operator does not increase the version counter of the sum. No backward pass reads a sum, so it may change while
another micro batch that will add to it waits for its backward pass.

    M tokens   K features in   N features out
"""

from __future__ import annotations

import torch
from torch import Tensor

_library = torch.library.Library("trainwright", "FRAGMENT")
_library.define("add_weight_gradient(Tensor(a!) total_NK, Tensor dy_MN, Tensor x_MK) -> ()")


def add_weight_gradient(total_NK: Tensor, dy_MN: Tensor, x_MK: Tensor) -> None:
    """``total_NK`` += dyᵀ · x. On a GPU 16-bit matmuls are not rounded before they are added to float32."""
    if torch.compiler.is_compiling():
        torch.ops.trainwright.add_weight_gradient(total_NK, dy_MN, x_MK)
    else:
        _add(total_NK, dy_MN, x_MK)


def _add(total_NK: Tensor, dy_MN: Tensor, x_MK: Tensor) -> None:
    if total_NK.device.type == "cuda" and dy_MN.dtype != total_NK.dtype:
        torch.addmm(total_NK, dy_MN.t(), x_MK, out_dtype=total_NK.dtype, out=total_NK)
    else:
        total_NK.add_(torch.mm(dy_MN.t(), x_MK))


def _add_unversioned(total_NK: Tensor, dy_MN: Tensor, x_MK: Tensor) -> None:
    with torch._C._AutoDispatchBelowADInplaceOrView():
        _add(total_NK, dy_MN, x_MK)


for _device in ("CPU", "CUDA"):
    _library.impl("add_weight_gradient", _add_unversioned, _device)
_library.impl("add_weight_gradient", lambda total_NK, dy_MN, x_MK: None, "Meta")
