"""Passes over the model run in one order, for every layout, ZeRO stage and number format."""

import ast
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import trainwright_trainer
from tests.trainer.jobs import write_job
from trainwright.contracts.parallelism_spec import PipelineSchedule
from trainwright_trainer.parallel.pipeline.stages import Stages
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.training.model_passes import passes

ORDER = [
    "keep the layers of this rank's stages",
    "shard matrices over tensor ranks",
    "convert layers to FP8",
    "compute on this rank's tokens, heads and features",
    "defer weight gradients",
    "add weight gradients to their sums in the matmuls",
    "fuse projections of one input",
    "recompute activations",
    "shard weights over data ranks",
    "keep the residual stream in bfloat16",
    "prefer cuDNN's attention",
    "compile blocks",
]
BF16, FP8 = {"kind": "bf16", "compile": "on"}, {"kind": "fp8", "compile": "on"}

CASES: dict[str, tuple[int, dict[str, Any], list[int]]] = {
    "one rank": (1, {}, [7]),
    "zero 1": (2, {"parallelism": {"zero_stage": 1}, "precision": BF16}, [5, 7, 9, 11]),
    "zero 3": (2, {"parallelism": {"zero_stage": 3}, "precision": BF16}, [7, 8, 9, 11]),
    "zero 3 of one rank": (1, {"parallelism": {"zero_stage": 3}, "precision": BF16}, [5, 7, 9, 11]),
    "zero 3, tensor": (4, {"parallelism": {"zero_stage": 3, "tensor": 2}}, [1, 3, 7, 8]),
    "FP8, tensor": (
        2,
        {"parallelism": {"tensor": 2}, "precision": FP8, "model": {"width": 128, "heads": 4, "kv_heads": 2}},
        [1, 2, 3, 7, 11],
    ),
    "zbv, tensor": (
        4,
        {
            "parallelism": {"pipeline": 2, "schedule": "zbv", "tensor": 2, "stages": [1, 1, 1, 1]},
            "memory": {"recompute": "none"},
        },
        [0, 1, 3, 4],
    ),
    "GPU": (1, {"precision": BF16, "memory": {"recompute": "none"}}, [5, 6, 9, 10, 11]),
    "GPU, recomputed": (1, {"precision": BF16}, [5, 7, 9, 10, 11]),
    "GPU, not compiled": (
        1,
        {"precision": {"kind": "bf16", "compile": "off"}, "memory": {"recompute": "none"}},
        [5, 9, 10],
    ),
    "GPU, tensor": (
        2,
        {"precision": BF16, "memory": {"recompute": "none"}, "parallelism": {"tensor": 2}},
        [1, 3, 5, 9, 10, 11],
    ),
    "GPU, FP8": (1, {"precision": FP8, "memory": {"recompute": "none"}}, [2, 10, 11]),
}
"""Ranks, sections of the spec, and indices into ``ORDER``. Cases whose names begin with GPU are for a GPU."""


@pytest.mark.parametrize("case", CASES)
def test_the_order_is_always_the_same(tmp_path: Path, data: Path, case: str) -> None:
    ranks, sections, expected = CASES[case]
    model = {"layers": 4} if "stages" in str(sections) else {}
    given = {"memory": {"recompute": "full"}} | ({"model": model} if model else {})
    spec = read_job(write_job(tmp_path, data, ranks, **given | sections)).spec
    degrees = spec.degrees
    mesh: Any = SimpleNamespace(
        tensor=SimpleNamespace(ranks=degrees.tensor),
        shard=SimpleNamespace(ranks=ranks // degrees.tensor // degrees.pipeline),
        device=torch.device("cuda", 0) if case.startswith("GPU") else torch.device("cpu"),
    )
    stages = Stages(PipelineSchedule.ZBV, 2, (1, 1, 1, 1)) if degrees.pipeline > 1 else None
    assert [each.name for each in passes(spec, mesh, stages)] == [ORDER[index] for index in expected]


def _class_assignments(folder: Path) -> Iterator[str]:
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            targets = node.targets if isinstance(node, ast.Assign) else ()
            if any(isinstance(target, ast.Attribute) and target.attr == "__class__" for target in targets):
                yield f"{file}:{node.lineno}"


def test_modules_are_replaced_and_never_given_another_class(tmp_path: Path) -> None:
    """A module whose class is replaced keeps the attributes of the old class, without any sign of it."""
    (tmp_path / "planted.py").write_text("module.__class__ = Other\n")
    assert list(_class_assignments(tmp_path)) == [f"{tmp_path / 'planted.py'}:1"]
    assert list(_class_assignments(Path(trainwright_trainer.__file__).parent)) == []
