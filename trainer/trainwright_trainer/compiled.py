"""torch.compile, block by block: one compilation serves all blocks, since they differ in their weights only.

A whole model as one graph would take minutes that grow with its layers and gain little, for blocks meet in nothing but
the residual stream. Shapes are compiled in as constants. Training has one; validation, which needs no gradients, adds
one or two of its own. What a compiled block gains is fused passes over memory: norms, rotations, gates and casts become
a few kernels each, which is why products in low precision need it most.

It comes after every other pass over the model: the compiler takes replaced layers and checkpoints into its graph.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path

import torch

from trainwright.contracts.run_spec import CompileKind
from trainwright_trainer.ends import BadJobError
from trainwright_trainer.model.loss import ChunkGradient, chunk_gradient
from trainwright_trainer.model.transformer import Transformer


def compiles(kind: CompileKind, device: torch.device) -> bool:
    """Whether models are compiled on ``device``; `auto` does so on GPUs of machines that can.

    Raises:
        BadJobError: `on` is asked of a machine that cannot.
    """
    if kind is CompileKind.OFF or (kind is CompileKind.AUTO and device.type == "cpu"):
        return False
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
    for block in model.layers:
        block.compile(fullgraph=True, dynamic=False)


def compile_chunk_gradient() -> ChunkGradient:
    """``chunk_gradient`` in two passes over a chunk's logits, with nothing in float32 of their size."""
    return torch.compile(chunk_gradient, fullgraph=True, dynamic=False)


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
