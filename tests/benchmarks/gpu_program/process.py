"""One shape in one or more precisions: `python -m tests.benchmarks.gpu_program.process SHAPE PRECISION…`.

The last line that it prints is JSON: the figures by precision. ``row`` starts it with what it needs loaded (see ``h200``).
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from tests.benchmarks.gpu_program import h200
from tests.benchmarks.trainer.shapes import SHAPES, TOY
from tests.benchmarks.trainer.timed_training import Shape
from trainwright.contracts.run_spec import RunSpec

if TYPE_CHECKING:
    from tests.benchmarks.gpu_program.traced_step import TracedStep

PRECISIONS: dict[str, dict[str, Any]] = {
    "bf16": {"kind": "bf16"},
    "fp8-tensor": {"kind": "fp8", "fp8": {"level": "O2", "scaling": "tensor"}},
    "fp8-row": {"kind": "fp8", "fp8": {"level": "O2", "scaling": "row"}},
    "fp8-block": {"kind": "fp8", "fp8": {"level": "O2", "scaling": "block"}},
}

MICRO_BATCHES = 8
"""Micro batches of one sequence each, in a step."""


def run_spec(shape: Shape, precision: str) -> RunSpec:
    """The spec of a run on one H200."""
    batch = shape.with_batch(1, MICRO_BATCHES).batch
    return RunSpec.model_validate(
        {
            "name": "gpu-program",
            "data": {"dataset": "random", "tokenizer": {"vocabulary": shape.vocabulary}},
            "model": shape.model.model_dump(),
            "batch": batch.model_dump(),
            "schedule": {"steps": 10, "warmup_steps": 1},
            "resources": {"device": "cuda"},
            "precision": PRECISIONS[precision],
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", choices=[*SHAPES, "toy"])
    parser.add_argument("precisions", nargs="+", choices=PRECISIONS)
    parser.add_argument("--kernels", action="store_true", help="print the kernels of a block and their bytes")
    given = parser.parse_args()
    h200.pretend()
    # These import torch's compiler, which queries the device.
    from tests.benchmarks.gpu_program.figures import figures
    from tests.benchmarks.gpu_program.traced_step import trace_step

    shape = TOY if given.shape == "toy" else SHAPES[given.shape]
    found = {}
    for precision in given.precisions:
        spec = run_spec(shape, precision)
        step = trace_step(spec)
        if given.kernels:
            _list_kernels(step)
        found[precision] = figures(step, spec, shape.parameters)
    print(json.dumps(found))


def _list_kernels(step: TracedStep) -> None:
    for graph in step.graphs:
        print(f"{graph.function}{', backward' * graph.backward}: {graph.runs} runs")
        for kernel in graph.kernels:
            scattered = f", {kernel.scattered_bytes / 1e6:.1f} MB scattered" if kernel.scattered_bytes else ""
            print(f"  {kernel.bytes / 1e6:9.1f} MB  {'library ' * kernel.library}{kernel.name}{scattered}")
    for name, one in sorted(step.eager.items(), key=lambda item: -item[1].bytes)[:20]:
        print(f"  {one.bytes / 1e9:9.2f} GB  eager {name}, {one.calls} calls")


if __name__ == "__main__":
    main()
