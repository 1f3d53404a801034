"""Ranks whose processors draw unlike initial weights start with equal ones."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from tests.selection import partly_slow
from tests.trainer.jobs import write_job
from tests.trainer.ranks import on_mesh
from trainwright.contracts.job_spec import output_folder
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.fp8.compute.weight import Weight
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.training.build import build

LAYOUTS: dict[str, tuple[int, dict[str, Any], dict[str, Any]]] = {
    "data": (2, {}, {}),
    "ZeRO 1": (2, {"zero_stage": 1}, {}),
    "ZeRO 2": (2, {"zero_stage": 2}, {}),
    "ZeRO 3 over 2, replicated": (4, {"zero_stage": 3, "shard": 2}, {}),
    "tensor": (2, {"tensor": 2}, {}),
    "pipeline": (2, {"pipeline": 2}, {}),
    "data, pipeline": (4, {"pipeline": 2}, {}),
    "FP8 O1": (2, {}, {"kind": "fp8", "fp8": {"level": "O1"}}),
    "FP8 O3": (2, {}, {"kind": "fp8", "fp8": {"level": "O3"}}),
}
"""Ranks, and the sections ``parallelism`` and ``precision``."""

_MAKERS = ("training.materialize", "parallel.data.fsdp")


def unlike(mesh: Mesh) -> Any:
    """Noise as this rank's processor draws it: each one rounds differently."""
    draw = torch.randn
    return patch.object(
        torch, "randn", lambda *shape, **options: draw(*shape, **options) * (1 + 1e-6 * mesh.rank)
    )


def initial(mesh: Mesh, job_file: Path, left_unequal: bool) -> Mapping[str, str]:
    """Digests of this rank's initial weights, each under its name and what the ranks that have the same differ in."""
    if left_unequal:
        for module in _MAKERS:
            patch(f"trainwright_trainer.{module}.make_replicas_equal", lambda *_: None).start()
    with unlike(mesh):
        training = build(read_job(job_file), job_file, mesh)
    model, here = training.engine.model, mesh.coordinates
    found = {}
    for name, weight in model.named_parameters():
        own = weight.to_local() if isinstance(weight, DTensor) else weight
        whole = {"norm.weight", "position_embedding.weight"}
        slice_of = [] if name in whole else [f"tensor {here.tensor}"]
        slice_of += [f"shard {here.shard}"] if isinstance(weight, DTensor) else []
        found[" ".join([name, *slice_of])] = _digest(own)
    for name, module in model.named_modules():
        if isinstance(module, Weight):
            found[f"{name} tensor {here.tensor}"] = _digest(module.codes) + _digest(module.scale)
    return found


def _digest(tensor: Tensor) -> str:
    return hashlib.sha256(
        tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    ).hexdigest()


def unequal(tmp_path: Path, data: Path, layout: str, left_unequal: bool) -> set[str]:
    """The weights that are not the same on all ranks that have them."""
    ranks, parallelism, precision = LAYOUTS[layout]
    job_file = write_job(
        tmp_path / "job",
        data,
        ranks,
        model={"positions": "learned"},
        parallelism=parallelism,
        precision={"kind": "fp32"} | precision,
    )
    output_folder(job_file).mkdir()
    digests: defaultdict[str, set[str]] = defaultdict(set)
    several: Counter[str] = Counter()
    for found in on_mesh(read_job(job_file).spec.degrees, initial, job_file, left_unequal):
        for name, digest in found.items():
            digests[name].add(digest)
            several[name] += 1
    assert max(several.values()) > 1
    return {name for name, seen in digests.items() if len(seen) > 1}


@pytest.mark.parametrize("layout", partly_slow(LAYOUTS, ["data"]))
def test_all_ranks_with_a_weight_have_the_same_initial_values(
    tmp_path: Path, data: Path, layout: str
) -> None:
    assert not unequal(tmp_path, data, layout, left_unequal=False)


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize(
    "layout", [name for name in LAYOUTS if name != "FP8 O3"]
)  # there, owners send their weights to the others
def test_weights_that_are_not_made_equal_are_detected(tmp_path: Path, data: Path, layout: str) -> None:
    assert unequal(tmp_path, data, layout, left_unequal=True)
