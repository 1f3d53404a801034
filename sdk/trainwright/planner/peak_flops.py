"""Peak FLOP/s of GPUs as stated by their vendors: dense, with float32 accumulation, without sparsity.

Only figures from data sheets are listed. For other devices or dtypes the result is None and no MFU is shown, since a number
relative to an unknown peak would be misleading. The peak of CPUs is measured by the trainer's self-test.
"""

from __future__ import annotations

import re

from trainwright.contracts.job_spec import Peak

_TERA = 1e12
_PEAKS: tuple[tuple[str, dict[str, float]], ...] = (
    # The first pattern that matches the driver's name decides, so variants come before the main product.
    (r"\bMIG\b", {}),  # a part of a GPU: no data sheet states its peak
    (r"\bGB200\b", {"fp8": 5_000, "bf16": 2_500, "fp16": 2_500}),
    (r"\bB200\b", {"fp8": 4_500, "bf16": 2_250, "fp16": 2_250}),
    (r"\bH200 NVL\b", {"fp8": 1_671, "bf16": 835, "fp16": 835, "fp32": 60}),
    (r"\b(H200|GH200)\b", {"fp8": 1_979, "bf16": 989, "fp16": 989, "fp32": 67}),
    (r"\bH100 NVL\b", {"fp8": 1_671, "bf16": 835, "fp16": 835, "fp32": 60}),
    (r"\bH100 PCIe\b", {"fp8": 1_513, "bf16": 756, "fp16": 756, "fp32": 51}),
    (r"\bH[18]00\b", {"fp8": 1_979, "bf16": 989, "fp16": 989, "fp32": 67}),
    (r"\bH20\b", {"fp8": 296, "bf16": 148, "fp16": 148, "fp32": 44}),
    (r"\bA[18]00\b", {"bf16": 312, "fp16": 312, "fp32": 19.5}),
    (r"\bA40\b", {"bf16": 149.7, "fp16": 149.7, "fp32": 37.4}),
    (r"\bA30\b", {"bf16": 165, "fp16": 165, "fp32": 10.3}),
    (r"\bA10\b", {"bf16": 125, "fp16": 125, "fp32": 31.2}),
    (r"\bL40S\b", {"fp8": 733, "bf16": 362, "fp16": 362, "fp32": 91.6}),
    (r"\bL40\b", {"fp8": 362, "bf16": 181, "fp16": 181, "fp32": 90.5}),
    (r"\bL4\b", {"fp8": 242.5, "bf16": 121, "fp16": 121, "fp32": 30.3}),
    # Of the GeForce cards the figures with float32 accumulation, from the white papers of their generations. Ti, D and
    # laptop variants have others.
    (r"\bRTX 4090$", {"fp8": 330.3, "bf16": 165.2, "fp16": 165.2, "fp32": 82.6}),
    (r"\bRTX 3090$", {"bf16": 71, "fp16": 71, "fp32": 35.6}),
    (r"\bV100-PCIE\b", {"fp16": 112, "fp32": 14}),
    (r"\bV100-SXM2\b", {"fp16": 125, "fp32": 15.7}),
    (r"\bT4\b", {"fp16": 65, "fp32": 8.1}),
)


def vendor_peak(device: str, dtype: str) -> Peak | None:
    """The stated peak of ``device`` (its name in the driver) for matmuls in ``dtype``; None if unknown."""
    for pattern, peaks in _PEAKS:
        if re.search(pattern, device, re.IGNORECASE):
            rate = peaks.get(dtype)
            return (
                None
                if rate is None
                else Peak(flops_per_second=rate * _TERA, dtype=dtype, device=device, measured=False)
            )
    return None
