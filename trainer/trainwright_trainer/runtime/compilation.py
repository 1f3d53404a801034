"""torch.compile, block by block: one compilation serves all blocks, because they differ only in their weights.

Compiling the model as one graph would take minutes, growing with its layers, and gain little, because blocks
meet only in the residual stream. Shapes are compiled as constants. Training has one shape; validation, which
needs no gradients, adds one or two. A compiled block gains from fused passes over memory: norms, rotations,
gates and casts become a few kernels each, which low-precision matmuls need most.

Compilation comes after all other passes over the model: the compiler includes replaced layers and checkpoints in its
graph. ``trainwright.planner.compilation`` decides which runs are compiled.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch
import torch._functorch.config
from torch import Tensor, nn

from trainwright.contracts.precision_spec import CompileKind
from trainwright_trainer.runtime.errors import BadJobError

_MAX_GRAPHS = 64
"""The most graphs of a block's code. The compiler counts them for all blocks together, and a run has one for each kind of block (with
or without a window, rotary positions, FP8) and each shape (training, and full, partial and padding batches of validation). Its own limit
of 8 would end such a run."""

P = ParamSpec("P")
R = TypeVar("R")


def can_compile(kind: CompileKind, device: torch.device) -> bool:
    """Whether this machine can compile for ``device``; prints what is missing if it cannot.

    Raises:
        BadJobError: the spec says `on`, and the machine cannot.
    """
    missing = missing_toolchain(device)
    if missing is None:
        return True
    remedy = f"needs {missing}, which this node lacks: install it (Debian: build-essential, python3-dev)"
    if kind is CompileKind.ON:
        raise BadJobError(f"spec.precision.compile: on {remedy}, or use off")
    print(f"The model is not compiled and will be slower: compilation {remedy}.", flush=True)
    return False


def compile_blocks(blocks: Iterable[nn.Module], have_hooks: bool = False) -> None:
    """Compile each block at its first call. Parameter names do not change.

    Args:
        have_hooks: the blocks have hooks, which gather their weights or wait for them. They stay outside the graph.
    """
    # Tensor ranks give their FP8 layers gathered codes and remove them before the block ends. The compiler asks whether
    # a checkpoint's recomputation may skip these side effects. It may: the graph contains the codes.
    torch._dynamo.config.skip_fwd_side_effects_in_bwd_under_checkpoint = True
    torch._dynamo.config.recompile_limit = _MAX_GRAPHS
    for block in blocks:
        if have_hooks:
            block.forward = torch.compile(block.forward, fullgraph=True, dynamic=False)
        else:
            block.compile(fullgraph=True, dynamic=False)


def recompute_operands() -> None:
    """Let blocks that are compiled from now on cast operands of FP8 weight gradients again in the backward pass, from
    activations that it reads anyway, instead of saving them. The number of written bytes is the same, but they are
    written later. By default, the compiler saves values that are used far apart, and those that a kernel of ours reads.
    """
    torch._functorch.config.ban_recompute_used_far_apart = False
    torch._functorch.config.ban_recompute_materialized_backward = False


def compile_gradient(function: Callable[P, tuple[Tensor, Tensor]]) -> Callable[P, tuple[Tensor, Tensor]]:
    """``chunk_gradient`` or a function like it, in two passes over a chunk's logits and without float32
    copies of them.
    """
    compiled: Callable[P, tuple[Tensor, Tensor]] = torch.compile(function, fullgraph=True, dynamic=False)
    return compiled


def fuse_on_gpu(function: Callable[P, R], device: torch.device) -> Callable[P, R]:
    """``function`` as one or two kernels on a GPU; unchanged on a CPU, where callers pass chunks that fit the cache.

    Sizes are symbolic, so buckets and chunks of all lengths share one compilation.
    """
    return torch.compile(function, dynamic=True) if device.type == "cuda" else function


def missing_toolchain(device: torch.device) -> str | None:
    """The tool that the compiler lacks: C++ for CPUs, C for Triton's kernel launchers on GPUs, Python's headers for
    both.
    """
    if device.type == "cpu":
        if shutil.which(os.environ.get("CXX", "g++")) is None:
            return "a C++ compiler"
    elif not any(shutil.which(name) for name in (os.environ.get("CC", "gcc"), "clang")):
        return "a C compiler"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return "Python's header files"
    return None
