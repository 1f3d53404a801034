"""Common GPUs, for planning runs on hardware that no node has: the memory that drivers report, the compute capability, and
the peaks from `trainwright.planner.peak_flops`.
"""

from __future__ import annotations

from trainwright.contracts.agent_protocol import Gpu
from trainwright.contracts.api.plans import GpuModel
from trainwright.planner.peak_flops import vendor_peak

_MIB = 2**20
_PRECISIONS = ("fp32", "bf16", "fp8")

_MODELS: tuple[tuple[str, int, str], ...] = (
    # The driver's name, its memory in MiB as `nvidia-smi` shows it, compute capability.
    ("NVIDIA B200", 183_359, "10.0"),
    ("NVIDIA H200", 143_771, "9.0"),
    ("NVIDIA H100 80GB HBM3", 81_559, "9.0"),
    ("NVIDIA A100-SXM4-80GB", 81_920, "8.0"),
    ("NVIDIA A100-SXM4-40GB", 40_960, "8.0"),
    ("NVIDIA L40S", 46_068, "8.9"),
    ("NVIDIA A10", 23_028, "8.6"),
    ("NVIDIA L4", 23_034, "8.9"),
    ("NVIDIA GeForce RTX 4090", 24_564, "8.9"),
    ("NVIDIA GeForce RTX 3090", 24_576, "8.6"),
)


def gpu_models() -> list[GpuModel]:
    """The known GPUs: data center GPUs first, then GeForce cards."""
    return [
        GpuModel(name=name, memory_bytes=mib * _MIB, capability=capability, peaks=_peaks(name))
        for name, mib, capability in _MODELS
    ]


def as_gpu(model: GpuModel) -> Gpu:
    """The model as a node would report it."""
    return Gpu(index=0, name=model.name, memory_bytes=model.memory_bytes, capability=model.capability)


def _peaks(name: str) -> dict[str, float]:
    found = {dtype: vendor_peak(name, dtype) for dtype in _PRECISIONS}
    return {dtype: peak.flops_per_second for dtype, peak in found.items() if peak is not None}
