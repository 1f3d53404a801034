"""Which weights decay, with every updater."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.selection import partly_slow
from tests.trainer.jobs import write_job
from tests.trainer.ranks import on_mesh
from tests.trainer.zero_trainings import one_step, start, tensor_shards
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.process.job_file import read_job

MODEL = {"tied_embeddings": False, "positions": "learned"}
LAYOUTS: dict[str, dict[str, Any]] = {
    "adamw": {},
    "lamb": {"optimizer": {"kind": "lamb"}},
    "muon": {"optimizer": {"kind": "muon"}},
    "FP8": {"precision": {"kind": "fp8", "fp8": {"level": "O2", "scaling": "tensor"}}},
    "deepspeed": {"parallelism": {"engine": "deepspeed"}},
}


def stepped(mesh: Mesh, job_file: Path) -> dict[str, Tensor]:
    """The weights after one step."""
    training = start(mesh, job_file)
    one_step(training, 1)
    shards = tensor_shards(training)
    wanted = (name for name in shards if name.startswith("model.") and name.endswith(".weight"))
    return {name: shards[name].tensor for name in wanted}


def weights(folder: Path, data: Path, layout: str, decay: float, which: str) -> dict[str, Tensor]:
    given = LAYOUTS[layout]
    optimizer = {"weight_decay": decay, "weight_decay_of": which, "clip_norm": None}
    sections = given | {"model": MODEL, "optimizer": given.get("optimizer", {}) | optimizer}
    job_file = write_job(folder / f"{decay}-{which}", data, **sections)
    (result,) = on_mesh(read_job(job_file).spec.degrees, stepped, job_file)
    assert isinstance(result, dict)
    return result


def chosen(name: str, tensor: Tensor, which: str) -> bool:
    """The rule, written again."""
    if which == "all":
        return True
    return tensor.ndim == 2 and (which == "matrices" or "layers." in name)


@pytest.mark.parametrize("layout", partly_slow(LAYOUTS, ["adamw", "lamb", "muon"]))
def test_only_the_chosen_weights_decay(tmp_path: Path, data: Path, layout: str) -> None:
    plain = weights(tmp_path, data, layout, 0.0, "matrices")
    assert {"model.position_embedding.weight", "model.embedding.weight", "model.norm.weight"} <= set(plain)
    for which in ("matrices", "block_matrices", "all"):
        decayed = weights(tmp_path, data, layout, 5.0, which)
        moved = {name for name, tensor in decayed.items() if not torch.equal(tensor, plain[name])}
        assert moved == {name for name, tensor in plain.items() if chosen(name, tensor, which)}
