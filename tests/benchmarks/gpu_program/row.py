"""Row `gpu-program`: what a step of the trainer would launch on an H200, determined without one and compared with the
first record.

Each shape and precision is traced in its own process (``process``). What was measured is recorded and shown in
``docs/benchmarks.md``; at toy size nothing is recorded, and figures are compared with themselves.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.gpu_program import record
from tests.benchmarks.gpu_program.h200 import compile_library
from tests.benchmarks.gpu_program.process import PRECISIONS
from tests.benchmarks.harness.triton_wheel import triton_folder
from tests.benchmarks.report import table
from tests.benchmarks.report.entries import Entry, at_least, at_most
from trainwright_trainer.runtime.errors import BadJobError

_ROOT = Path(__file__).resolve().parents[3]

_ELEMENTWISE_GOAL, _SAVED_GOAL, _RATIO_GOAL = 0.75, 105_000 / 128_904, 1.40
"""For FP8 at 7B: fractions of the first record, and the speed-up over bfloat16."""


def gpu_program(
    toy: bool, folder: Path, sizes: Sequence[str] = record.SIZES, precisions: Sequence[str] = (*PRECISIONS,)
) -> dict[str, Entry]:
    """Trace the shapes and precisions; at toy size only that.

    Raises:
        RefusedError: Triton or a C++ compiler is missing.
    """
    triton, library = triton_folder(create=not toy), compile_library(folder)
    if toy:
        sizes, precisions = ("toy",), [name for name in precisions if name != "fp8-block"]
    now: record.Figures = {
        size: {name: run_process(size, [name], library, triton)[name] for name in precisions}
        for size in sizes
    }
    kernels = kernel_resources(triton)
    for name, resources in kernels.items():
        print(f"  {name}: {resources}", flush=True)
    if not toy:
        record.append(now, kernels)
        table.PAGE.write_text(table.page())
    before = now if toy else record.records()[0]["figures"]
    entries: dict[str, Entry] = {}
    for size in sizes:
        entries |= _entries(size, now[size], before[size])
    return entries


def kernel_resources(triton: Path) -> dict[str, Any]:
    """``kernel_resources.resources``, from a process that has Triton."""
    path = os.pathsep.join((str(_ROOT), str(triton)))
    command = [sys.executable, "-m", "tests.benchmarks.gpu_program.kernel_resources"]
    done = subprocess.run(
        command, env=dict(os.environ, PYTHONPATH=path), cwd=_ROOT, capture_output=True, text=True
    )
    if done.returncode:
        raise BadJobError(f"compiling our kernels failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run_process(
    size: str, precisions: list[str], library: Path, triton: Path | None = None, plant: str = ""
) -> dict[str, dict[str, Any]]:
    """The figures of one shape by precision; without Triton, only those that need no kernels.

    Args:
        plant: Python code that the process runs first, which injects a fault.

    Raises:
        BadJobError: the process failed; the message ends with its output.
    """
    environment = dict(os.environ, LD_PRELOAD=str(library), OMP_NUM_THREADS="1")
    environment["PYTHONPATH"] = os.pathsep.join(str(one) for one in (_ROOT, triton) if one)
    start = f"from tests.benchmarks.gpu_program.process import main\n{plant}\nmain()"
    command = [sys.executable, "-c", start, size, *precisions]
    done = subprocess.run(command, env=environment, cwd=_ROOT, capture_output=True, text=True)
    if done.returncode:
        raise BadJobError(f"tracing {size} in {precisions} failed:\n{done.stderr[-6000:]}")
    found: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def _entries(
    size: str, now: dict[str, dict[str, Any]], before: dict[str, dict[str, Any]]
) -> dict[str, Entry]:
    found = {}
    for name, figures in now.items():
        old, fp8 = before[name], name != "bf16"
        found[f"gpu-program-{size}-{name}-elementwise"] = at_most(
            figures["block_elementwise_mb"],
            old["block_elementwise_mb"],
            "MB of element-wise kernels per block",
            1.0,
            _ELEMENTWISE_GOAL if fp8 else 1.0,
        )
        found[f"gpu-program-{size}-{name}-saved"] = at_most(
            figures["saved_bytes"],
            old["saved_bytes"],
            "bytes saved per token and layer",
            1.0,
            _SAVED_GOAL if fp8 else 1.0,
        )
        found[f"gpu-program-{size}-{name}-step"] = at_most(
            figures["step_ms"], old["step_ms"], "ms of a step, estimated", 1.0, 1.0
        )
    if {"bf16", "fp8-tensor"} <= set(now):
        found[f"gpu-program-{size}-ratio"] = at_least(
            record.ratio(now, "fp8-tensor"),
            1.0,
            "FP8 ÷ BF16, estimated",
            record.ratio(before, "fp8-tensor"),
            _RATIO_GOAL,
        )
    return found
