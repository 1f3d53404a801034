"""torch.compile, block by block: one compilation serves all blocks, since they differ in their weights only.

A whole model as one graph would take minutes that grow with its layers and gain little, for blocks meet in nothing but
the residual stream. Shapes are compiled in as constants. Training has one; validation, which needs no gradients, adds
one or two of its own. What a compiled block gains is fused passes over memory: norms, rotations, gates and casts become
a few kernels each, which is why products in low precision need it most.

It comes after every other pass over the model: the compiler takes replaced layers and checkpoints into its graph. Which runs
are compiled is said by ``trainwright.planner.compiling``.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from trainwright.contracts.precision_spec import CompileKind
from trainwright_trainer.ends import BadJobError
from trainwright_trainer.model.transformer import Transformer

P = ParamSpec("P")


def can_compile(kind: CompileKind, device: torch.device) -> bool:
    """Whether this machine has what compilation for ``device`` needs; says so where it has not.

    Raises:
        BadJobError: `on` is asked of a machine that cannot.
    """
    missing = _missing(device)
    if missing is None:
        return True
    remedy = f"needs {missing}, which this node lacks: install it (Debian: build-essential, python3-dev)"
    if kind is CompileKind.ON:
        raise BadJobError(f"spec.precision.compile: on {remedy}, or use off")
    print(f"The model is not compiled and will be slower: compilation {remedy}.", flush=True)
    return False


def compile_model(model: Transformer) -> None:
    """Let each block be compiled at its first call. Names of parameters stay."""
    # Tensor ranks leave their FP8 layers what was gathered and take it back before the block ends. The compiler asks
    # whether a checkpoint's recomputation may go without that: it may, for a graph has taken the codes in.
    torch._dynamo.config.skip_fwd_side_effects_in_bwd_under_checkpoint = True
    for block in model.layers.values():
        if isinstance(block, FSDPModule):  # its hooks, which gather its weights, stay outside of the graph
            block.forward = torch.compile(block.forward, fullgraph=True, dynamic=False)
        else:
            block.compile(fullgraph=True, dynamic=False)


def compile_gradient(of_chunk: Callable[P, tuple[Tensor, Tensor]]) -> Callable[P, tuple[Tensor, Tensor]]:
    """``chunk_gradient``, or its like, in two passes over a chunk's logits, with nothing in float32 of their size."""
    compiled: Callable[P, tuple[Tensor, Tensor]] = torch.compile(of_chunk, fullgraph=True, dynamic=False)
    return compiled


def _missing(device: torch.device) -> str | None:
    """What the compiler's back ends need: C++ for CPUs; C for Triton's launchers of GPU kernels; Python's headers."""
    if device.type == "cpu":
        if shutil.which(os.environ.get("CXX", "g++")) is None:
            return "a C++ compiler"
    elif not any(shutil.which(name) for name in (os.environ.get("CC", "gcc"), "clang")):
        return "a C compiler"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return "Python's header files"
    return None
