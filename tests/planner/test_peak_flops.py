"""The peak is the vendor's dense figure for exactly this device, or None."""

import pytest

from trainwright.planner.peak_flops import vendor_peak


@pytest.mark.parametrize(
    ("device", "dtype", "tera"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16", 989),
        ("NVIDIA H100 80GB HBM3", "fp8", 1_979),
        ("NVIDIA H200", "fp8", 1_979),
        ("NVIDIA H100 PCIe", "fp8", 1_513),
        ("NVIDIA H100 NVL", "fp8", 1_671),
        ("NVIDIA H20", "fp8", 296),
        ("NVIDIA B200", "fp8", 4_500),
        ("NVIDIA GB200", "fp8", 5_000),
        ("NVIDIA L40S", "fp8", 733),
        ("NVIDIA L40", "fp8", 362),
        ("NVIDIA L4", "fp8", 242.5),
        ("NVIDIA A100-SXM4-80GB", "fp8", None),  # it has no FP8 matmuls
        ("NVIDIA H100 PCIe", "bf16", 756),
        ("NVIDIA H100 NVL", "bf16", 835),
        ("NVIDIA H200", "bf16", 989),
        ("NVIDIA H200 NVL", "bf16", 835),
        ("NVIDIA A100-SXM4-80GB", "bf16", 312),
        ("NVIDIA A100 80GB PCIe", "fp32", 19.5),
        ("NVIDIA A10", "bf16", 125),
        ("NVIDIA L4", "bf16", 121),
        ("NVIDIA L40S", "bf16", 362),
        ("Tesla V100-SXM2-32GB", "fp16", 125),
        ("Tesla V100-SXM2-32GB", "bf16", None),
        ("Tesla T4", "fp16", 65),
        ("NVIDIA A10G", "bf16", None),
        ("NVIDIA GeForce RTX 9999", "bf16", None),
        ("NVIDIA GeForce RTX 4090", "bf16", 165.2),
        ("NVIDIA GeForce RTX 3090", "bf16", 71),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "bf16", None),
        ("NVIDIA GeForce RTX 4090 D", "fp8", None),
        ("NVIDIA GeForce RTX 3090 Ti", "bf16", None),
        ("Tesla V100-PCIE-16GB", "fp16", 112),
        ("Tesla V100S-PCIE-32GB", "fp16", None),
        ("AMD EPYC", "bf16", None),
        ("NVIDIA H100 80GB HBM3", "int4", None),
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", "bf16", None),
    ],
)
def test_peaks_of_devices(device: str, dtype: str, tera: float | None) -> None:
    peak = vendor_peak(device, dtype)
    assert (peak.flops_per_second / 1e12 if peak else None) == tera


def test_a_peak_has_a_readable_name() -> None:
    peak = vendor_peak("NVIDIA H200", "bf16")
    assert peak is not None
    assert peak.name == "BF16 peak 989 TFLOP/s of NVIDIA H200"
