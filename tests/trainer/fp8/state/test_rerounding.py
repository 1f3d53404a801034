"""A run reports in its events when its new layout splits blocks of 128 values
that share a scale, and only then."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.jobs import events, resume_from, write_job
from tests.trainer.ranks import on_mesh
from tests.trainer.training.test_layouts import NARROW, WIDE
from trainwright.contracts.job_spec import output_folder
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.training.build import build
from trainwright_trainer.training.loop import train

BLOCKS = {"level": "O2", "scaling": "tensor", "moments": "block"}
PAPER = {"level": "O2", "scaling": "tensor", "moments": "paper"}


def _train(mesh: Mesh, job_file: Path) -> None:
    output_folder(job_file).mkdir(exist_ok=True)
    train(build(read_job(job_file), job_file, mesh))


def _run(job_file: Path) -> Path:
    on_mesh(read_job(job_file).spec.degrees, _train, job_file)
    return job_file


@pytest.fixture
def resumed(tmp_path: Path, data: Path) -> Callable[..., list[str]]:
    """Remarks in the events of a run that starts in one layout and resumes in another."""

    def go(
        model: dict[str, Any],
        recipe: dict[str, Any],
        then: tuple[int, dict[str, Any]],
        first: tuple[int, dict[str, Any]] = (1, {}),
    ) -> list[str]:
        sections = {
            "model": model | {"layers": 2},
            "batch": {"sequence_tokens": 32, "micro_sequences": 1, "global_sequences": 2},
            "precision": {"kind": "fp8", "compile": "off", "fp8": recipe},
            "schedule": {"steps": 2, "warmup_steps": 0},
            "checkpoint": {"every_steps": 1},
        }
        ranks, parallelism = first
        fresh = _run(write_job(tmp_path / "fresh", data, ranks, parallelism=parallelism, **sections))
        assert not _remarks(fresh), "a new run restores nothing"
        job = resume_from(output_folder(fresh) / "checkpoints/step-1", tmp_path / "then")
        ranks, parallelism = then
        found = _run(write_job(tmp_path / "then", data, ranks, job, parallelism=parallelism, **sections))
        (started,) = events(found, "attempt_started")
        assert started["resume_step"] == 1
        return _remarks(found)

    return go


def _remarks(job_file: Path) -> list[str]:
    return [event["message"] for event in events(job_file, "note")]


in_make_layouts = pytest.mark.slow(target="layouts")


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize(
    ("first", "then"),
    [
        pytest.param((1, {}), (2, {"tensor": 2}), id="split by two tensor ranks"),
        pytest.param((2, {"tensor": 2}), (1, {}), id="put together again", marks=in_make_layouts),
    ],
)
def test_split_blocks_are_reported(
    first: tuple[int, Any], then: tuple[int, Any], resumed: Callable[..., list[str]]
) -> None:
    """Columns of 64 and 160 are halved, so a block has values of both shards. This affects two moments of two
    weights in each of two layers. A tensor is not counted if the new blocks represent all of its values
    exactly."""
    (remark,) = resumed(NARROW, BLOCKS, then, first)
    found = re.fullmatch(
        r"(\d) tensors were rounded again, because this layout splits blocks of 128 elements that share a scale\.",
        remark,
    )
    assert found and 1 <= int(found[1]) <= 8


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize(
    ("model", "recipe", "then"),
    [
        pytest.param(WIDE, BLOCKS, (2, {"tensor": 2}), id="slices are whole blocks"),
        pytest.param(NARROW, BLOCKS, (2, {"pipeline": 2}), id="layers are whole", marks=in_make_layouts),
        pytest.param(NARROW, PAPER, (2, {"tensor": 2}), id="a scale for the tensor", marks=in_make_layouts),
    ],
)
def test_nothing_is_reported_if_no_block_is_split(
    model: dict[str, Any], recipe: dict[str, Any], then: tuple[int, Any], resumed: Callable[..., list[str]]
) -> None:
    assert resumed(model, recipe, then) == []
