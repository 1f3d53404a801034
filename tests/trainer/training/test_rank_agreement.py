"""All ranks agree on the decisions that they must share, and a missing collective is detected."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from tests.trainer.fault_injection import inject_fault, own
from tests.trainer.jobs import train_here, write_job
from tests.trainer.parallel.pipeline.test_auto_stages import spec_of
from tests.trainer.ranks import on_mesh
from trainwright.contracts.checkpoint import CheckpointManifest
from trainwright.contracts.job_spec import output_folder
from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer.checkpoint.load import verifying
from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.observe.rank_timings import EVERY_STEPS, rank_seconds
from trainwright_trainer.observe.step_timer import Timing
from trainwright_trainer.optim.non_finite import first_non_finite
from trainwright_trainer.parallel.pipeline.auto_stages import choose_stages
from trainwright_trainer.runtime.errors import CheckpointInvalidError


def non_finite_tensor(mesh: Mesh, _: Path) -> str | None:
    """Only the second rank found a non-finite tensor."""
    weights = {name: nn.Parameter(torch.zeros(2)) for name in ("first", "second")}
    if mesh.rank == 1:
        weights["second"].data[0] = torch.nan
    return first_non_finite(weights, {name: place for place, name in enumerate(weights)}, mesh.world)


def damaged(mesh: Mesh, checkpoint: Path) -> bool:
    """Whether a checkpoint is refused if its only file is assigned to the first rank for checking."""
    manifest = CheckpointManifest.model_validate_json((checkpoint / "manifest.json").read_bytes())
    assert len(manifest.files) == 1
    try:
        with verifying(checkpoint, manifest, mesh):
            pass
    except CheckpointInvalidError:
        return True
    return False


def seconds(mesh: Mesh, _: Path) -> dict[str, float]:
    return rank_seconds(mesh.world, EVERY_STEPS, dict.fromkeys(Timing, 1.0 + mesh.rank))


def stages(mesh: Mesh, _: Path) -> tuple[int, ...]:
    """The first rank is the slow one."""
    return choose_stages(spec_of(2, 2), mesh, lambda *_: [30.0, 90.0][mesh.rank]).layers


class Question(NamedTuple):
    ask: Callable[[Mesh, Path], Any]
    answer: Any
    alone: Callable[[], AbstractContextManager[object]]
    """The collective is left out."""


def _nothing(*_: Any) -> None:
    pass


QUESTIONS: dict[str, Question] = {
    "the first tensor that is not finite": Question(
        non_finite_tensor, "second:weight", lambda: inject_fault(Axis, "all_reduce_max", own)
    ),
    "whether a checkpoint is damaged": Question(damaged, True, lambda: inject_fault(Axis, "all_reduce", own)),
    "each rank's seconds": Question(
        seconds,
        {f"rank_seconds/{rank}:{phase}": 1.0 + rank for rank in range(2) for phase in Timing},
        lambda: inject_fault(Axis, "all_gather_into", _nothing),
    ),
    "how many layers a stage gets": Question(
        stages, (2, 6), lambda: inject_fault(Axis, "all_reduce_max", own)
    ),
}


def _answers(mesh: Mesh, checkpoint: Path) -> dict[str, tuple[Any, Any]]:
    """This rank's answers, with the others and alone."""
    found = {}
    for name, question in QUESTIONS.items():
        together = question.ask(mesh, checkpoint)
        with question.alone():
            try:
                found[name] = together, question.ask(mesh, checkpoint)
            except ZeroDivisionError as error:  # from speeds that were never shared
                found[name] = together, str(error)
    return found


@pytest.fixture(scope="module")
def answers(data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, tuple[Any, Any]]]:
    job_file = write_job(tmp_path_factory.mktemp("job"), data, schedule={"steps": 1, "warmup_steps": 0})
    train_here(job_file)
    checkpoint = output_folder(job_file) / "checkpoints" / "step-1"
    (tensors,) = checkpoint.glob("*.safetensors")
    content = bytearray(tensors.read_bytes())
    content[-1] ^= 1
    tensors.write_bytes(content)
    results: list[dict[str, tuple[Any, Any]]] = on_mesh(Degrees(pipeline=2), _answers, checkpoint)
    return results


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("question", QUESTIONS)
def test_ranks_agree_with_the_collective_and_disagree_without_it(
    question: str, answers: list[dict[str, tuple[Any, Any]]]
) -> None:
    together, alone = zip(*(of_rank[question] for of_rank in answers), strict=True)
    assert together == (QUESTIONS[question].answer,) * 2
    assert alone != together
