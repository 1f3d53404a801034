"""A simulated H200: answers what torch and its compiler query from CUDA, in a separate process.

Tensors are fake: shapes, strides and dtypes on `cuda:0`, and no memory. On them the trainer takes its branches for GPUs,
torch's own meta functions check what its kernels accept, and Inductor writes the program for compute capability 9.0.
A torch built for CPUs lacks three things: device guards and streams (``h200.cpp``, loaded before torch), the functions
of ``torch.cuda``, and Triton's driver. Nothing runs on the device, because there is none.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.benchmarks.report.results import RefusedError

if TYPE_CHECKING:
    from torch import Tensor

_SOURCE = Path(__file__).with_name("h200.cpp")

MEMORY_BYTES = 141 * 10**9

_PROPERTIES = SimpleNamespace(
    name="NVIDIA H200",
    type="cuda",
    index=0,
    major=9,
    minor=0,
    cc=90,
    multi_processor_count=132,
    regs_per_multiprocessor=65_536,
    max_threads_per_multi_processor=2_048,
    max_threads_per_block=1_024,
    warp_size=32,
    total_memory=MEMORY_BYTES,
    shared_memory_per_block=49_152,
    shared_memory_per_block_optin=232_448,
    shared_memory_per_multiprocessor=233_472,
    L2_cache_size=50 * 2**20,
    gcnArchName="",
)


def compile_library(folder: Path) -> Path:
    """The library to load before torch (`LD_PRELOAD`); compiling it takes two seconds.

    Raises:
        RefusedError: there is no C++ compiler, or it fails.
    """
    found = find_spec("torch")
    assert found is not None and found.origin is not None
    torch, library = Path(found.origin).parent, folder / "libh200.so"
    command = ["g++", "-std=c++20", "-O0", "-shared", "-fPIC", f"-I{torch / 'include'}", str(_SOURCE)]
    command += [
        "-o",
        str(library),
        f"-L{torch / 'lib'}",
        "-lc10",
        "-ltorch_cpu",
        f"-Wl,-rpath,{torch / 'lib'}",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise RefusedError("it needs a C++ compiler (Debian: build-essential)") from error
    if done.returncode:
        raise RefusedError(f"a C++ compiler failed: {done.stderr[-500:]}")
    return library


def pretend() -> None:
    """Simulate the device in this process, permanently. The library must have been loaded before torch."""
    import torch
    from torch._dynamo.device_interface import CudaInterface
    from torch.utils import _triton

    functions: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "_exchange_device": lambda device: 0,
        "_maybe_exchange_device": lambda device: 0,
        "_lazy_init": lambda: None,
        "get_device_properties": lambda device=None: _PROPERTIES,
        "get_device_capability": lambda device=None: (9, 0),
        "is_bf16_supported": lambda including_emulation=True: True,
        "get_rng_state": lambda device=None: torch.zeros(1),
        "set_rng_state": lambda state, device=None: None,
    }
    for name, function in functions.items():
        setattr(torch.cuda, name, function)
    torch.accelerator.is_available = lambda: False  # its streams cannot be queried
    torch.version.cuda = "12.9"
    responses: dict[str, Any] = {
        "get_device_properties": lambda device=None: _PROPERTIES,
        "get_raw_stream": lambda device=None: 0,
        "synchronize": lambda device=None: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "is_available": lambda: True,
        "get_compute_capability": lambda device=None: 90,
        "is_triton_capable": lambda device=None: True,
        "raise_if_triton_unavailable": lambda device=None: None,
        "is_bf16_supported": lambda including_emulation=False: True,
    }
    for name, function in responses.items():
        setattr(CudaInterface, name, staticmethod(function))
        if hasattr(CudaInterface.Worker, name):
            setattr(CudaInterface.Worker, name, staticmethod(function))
    torch.nn.Module.to = _move
    torch._C._set_only_lift_cpu_tensors(True)  # `torch.tensor` makes its result fake before it moves it
    _create_on_cpu(torch.library.Library("aten", "IMPL"))
    if has_triton():
        _triton.has_triton = lambda: True
        _drive_triton()


def has_triton() -> bool:
    return find_spec("triton") is not None


def _move(module: Any, device: Any) -> Any:
    """``Module.to``, which would swap each parameter's contents; fake tensors refuse that."""
    import torch

    for inner in module.modules():
        for name, weight in list(inner._parameters.items()):
            if weight is not None and weight.device != torch.device(device):
                inner._parameters[name] = torch.nn.Parameter(weight.detach().to(device))
        for name, buffer in list(inner._buffers.items()):
            if buffer is not None:
                inner._buffers[name] = buffer.to(device)
    return module


_LIBRARIES: list[Any] = []
"""Registrations end with their library."""


def _create_on_cpu(library: Any) -> None:
    """The compiler folds constants by computing them; those are made on the CPU."""
    import torch

    def empty(size: Any, dtype: Any = None, *rest: Any, **options: Any) -> Tensor:
        return torch.empty(size, dtype=dtype)

    def empty_strided(size: Any, stride: Any, dtype: Any = None, *rest: Any, **options: Any) -> Tensor:
        return torch.empty_strided(size, stride, dtype=dtype)

    library.impl("empty.memory_format", empty, "CUDA")
    library.impl("empty_strided", empty_strided, "CUDA")
    _LIBRARIES.append(library)


def _drive_triton() -> None:
    """Make Triton compile for compute capability 9.0."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver

    limits = {"max_shared_mem": 232_448, "multiprocessor_count": 132, "warpSize": 32}
    driver.set_active(
        SimpleNamespace(
            get_current_target=lambda: GPUTarget("cuda", 90, 32),
            get_active_torch_device=lambda: sys.modules["torch"].device("cuda", 0),
            get_current_device=lambda: 0,
            get_device_capability=lambda device=0: (9, 0),
            get_current_stream=lambda device=0: 0,
            utils=SimpleNamespace(get_device_properties=lambda device: limits),
        )
    )
