"""Our Triton kernels: run by Triton's interpreter on a CPU, and compiled down to machine code for a GPU.

The interpreter's own rounding to FP8 (3.7.1) is wrong for ties, subnormal numbers and NaN; torch's replaces it, which rounds like the instruction `cvt.rn.satfinite`. The test asserts that the compiled kernel has this
instruction.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.gpu_program.row import kernel_resources
from tests.benchmarks.harness.triton_wheel import triton_folder

_ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.slow(target="bench-dry")

INTERPRETED = """
import numpy, torch
import triton.runtime.interpreter as interpreter
import triton.language as tl

NAMES = {"fp8e4nv": torch.float8_e4m3fn, "fp8e5": torch.float8_e5m2, "fp32": torch.float32, "bf16": torch.bfloat16}
NAMES |= {"fp16": torch.float16}
BITS = {8: torch.uint8, 16: torch.uint16, 32: torch.uint32}

def convert(values, given, wanted, rounding_mode):
    bits = torch.from_numpy(numpy.ascontiguousarray(values)).view(BITS[given.primitive_bitwidth])
    return bits.view(NAMES[given.name]).to(NAMES[wanted.name]).view(BITS[wanted.primitive_bitwidth]).numpy()

interpreter._convert_float = convert

from trainwright_trainer.fp8.compute.cast_transpose import in_torch
from trainwright_trainer.fp8.compute.formats import E4M3, E5M2, LARGEST
from trainwright_trainer.fp8.compute.triton_kernels import launch_cast_and_transpose, launch_transpose

every = torch.arange(2**16, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16).view(256, 256)
matrices = [every, every[:, :200].contiguous(), every[:130].contiguous(), torch.randn(64, 96), torch.randn(300, 16).half()]
for dtype in (E4M3, E5M2):
    for matrix in matrices:
        for factor in (1.0, 2.0**-9, 2.0**40, float("nan")):
            codes = torch.zeros(matrix.shape, dtype=dtype)
            transposed = torch.zeros(matrix.shape[::-1], dtype=dtype)
            launch_cast_and_transpose(matrix, torch.tensor(factor), LARGEST[dtype], codes, transposed)
            for found, plain in zip((codes, transposed), in_torch(matrix, torch.tensor(factor), dtype)):
                assert torch.equal(found.float().nan_to_num(1e9), plain.float().nan_to_num(1e9)), (dtype, factor)
        alone = torch.zeros_like(transposed)
        launch_transpose(codes, alone)
        assert torch.equal(alone.view(torch.uint8), codes.view(torch.uint8).t())
print("equal")
"""


def run(*command: str, **environment: str) -> str:
    path = os.pathsep.join((str(_ROOT), str(triton_folder(create=False))))
    done = subprocess.run(
        [sys.executable, *command],
        env=dict(os.environ, PYTHONPATH=path, **environment),
        cwd=_ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


def test_interpreted_kernels_compute_what_plain_operators_do(tmp_path: Path) -> None:
    script = tmp_path / "interpreted.py"  # Triton reads the source of what it runs
    script.write_text(INTERPRETED)
    assert run(str(script), TRITON_INTERPRET="1") == "equal"


def test_compiled_kernels_spill_no_registers_and_store_vectors() -> None:
    for name, found in kernel_resources(triton_folder(create=False)).items():
        assert found["spilled_bytes"] == 0 and found["registers"] <= 128, name
        assert found["store_bytes"] == 16, name
        assert all(".rn.satfinite." in one for one in found["rounding"]), name
        assert bool(found["rounding"]) is (name != "transpose"), name
