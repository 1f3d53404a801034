"""Why this machine offers no GPU to torch, and what to do about it."""

from __future__ import annotations

import os
from pathlib import Path

import torch

_DEVICES = Path("/dev")
_DRIVER = Path("/proc/driver/nvidia/version")


def why_no_gpu(driver: Path = _DRIVER, devices: Path = _DEVICES) -> str | None:
    """The first thing that is missing, with its remedy; None if torch can use a GPU."""
    if torch.cuda.is_available():
        return None
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return "CUDA_VISIBLE_DEVICES is empty, which hides every GPU: unset it"
    if torch.version.cuda is None:
        return (
            f"torch {torch.__version__} is built without CUDA: "
            "`make clean`, then `make setup TORCH_INDEX=<address of the build for your CUDA version>`"
        )
    if not driver.exists():
        return "no NVIDIA driver is loaded: install it, or give the container its GPUs (`--gpus all`)"
    if not any(devices.glob("nvidia[0-9]*")):
        return "a driver is loaded, but there is no device /dev/nvidia0: give the container its GPUs (`--gpus all`)"
    return (
        f"torch {torch.__version__} for CUDA {torch.version.cuda} cannot use the driver{_error()}: "
        "update the driver, or install torch for an older CUDA (`make clean`, `make setup TORCH_INDEX=…`)"
    )


def _error() -> str:
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return f" ({str(error).splitlines()[0]})"
    return ""
