"""Registers, spills and shared memory of the trainer's own Triton kernels, compiled for compute capability 9.0.

Prints JSON: `python -m tests.benchmarks.gpu_program.kernel_resources`, with Triton on the path.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any


def resources() -> dict[str, dict[str, Any]]:
    """The resources by kernel and its types."""
    from trainwright_trainer.fp8.compute import triton_kernels as kernels

    found = {}
    for source, codes in (("bf16", "fp8e5"), ("bf16", "fp8e4nv"), ("fp16", "fp8e4nv"), ("fp32", "fp8e4nv")):
        signature = {"x": f"*{source}", "factor": "*fp32", "codes": f"*{codes}", "transposed": f"*{codes}"}
        signature |= {"rows": "i32", "columns": "i32"}
        constants = {"LARGEST": 448.0, "TILE_R": kernels.TILE_ROWS, "TILE_C": kernels.TILE_COLUMNS}
        found[f"cast_and_transpose {source} to {codes}"] = _compiled(
            kernels.cast_and_transpose, signature, constants, kernels.WARPS
        )
    signature = {"codes": "*u8", "transposed": "*u8", "rows": "i32", "columns": "i32"}
    constants = {"TILE_R": kernels.TILE_ROWS, "TILE_C": kernels.TILE_COLUMNS}
    found["transpose"] = _compiled(kernels.transpose, signature, constants, kernels.WARPS)
    return found


def _compiled(
    kernel: Any, signature: dict[str, str], constants: dict[str, Any], warps: int
) -> dict[str, Any]:
    """Compile as a launch does: pointers and sizes are divisible by 16."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    aligned = {(index,): [["tt.divisibility", 16]] for index in range(len(signature))}
    kinds = signature | dict.fromkeys(constants, "constexpr")
    source = ASTSource(kernel, kinds, constants, aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
    return _assembled(compiled.asm["ptx"]) | {"shared_bytes": compiled.metadata.shared}


def _assembled(ptx: str) -> dict[str, Any]:
    """What ptxas reports about the kernel."""
    import triton

    ptxas = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.ptx"
        file.write_text(ptx)
        command = [str(ptxas), "-v", "--gpu-name=sm_90a", str(file), "-o", str(file.with_suffix(".cubin"))]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    numbers = {
        "registers": r"Used (\d+) registers",
        "spilled_bytes": r"(\d+) bytes spill stores",
    }
    found: dict[str, Any] = {name: int(re.findall(how, output)[0]) for name, how in numbers.items()}
    stores = re.findall(r"st\.global(?:\.v(\d))?\.b(\d+)", ptx)
    found["store_bytes"] = min(int(many or 1) * int(bits) // 8 for many, bits in stores)
    found["rounding"] = sorted(set(re.findall(r"cvt\.\S*e[45]m[23]x2\S*", ptx)))
    return found


if __name__ == "__main__":
    print(json.dumps(resources()))
