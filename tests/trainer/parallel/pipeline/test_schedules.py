"""A model split into stages learns what an unsplit one does under every schedule: same losses, gradients and
weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config

from tests.selection import partly_slow
from tests.trainer.jobs import build_here, losses, resume_from
from tests.trainer.pipeline_trainings import (
    INTERLEAVED,
    INTERLEAVED_ZERO_BUBBLE,
    MODEL,
    ONE_F_ONE_B,
    TIED,
    ZBV,
    Learned,
    Whole,
    assert_close,
    assert_equal,
    job,
    run,
    staged,
    whole_models,
)
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.parallelism_spec import Degrees, PipelineSchedule
from trainwright_trainer.distributed.shard_spec import unsharded_specs
from trainwright_trainer.linear.dense import DenseLinear
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.parallel.pipeline.stages import Stages, split_model
from trainwright_trainer.training.forward_backward import GradientAccumulation


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return whole_models(data, tmp_path_factory)


@pytest.mark.parametrize("kind", partly_slow(["fp32", "bf16"], []))
def test_stages_on_two_ranks_equal_one_process_bit_for_bit(
    tmp_path: Path, data: Path, whole: Whole, kind: str
) -> None:
    """Each weight's gradient is the sum over the same micro batches in the same order,
    from the same matmuls."""
    precision = {"kind": kind}
    like, learned = whole(precision=precision)
    two = Degrees(pipeline=2)
    layouts = [
        ONE_F_ONE_B,
        ONE_F_ONE_B | {"stages": (5, 3)},
        INTERLEAVED,
        INTERLEAVED_ZERO_BUBBLE,
        ZBV,
    ]
    jobs = [
        staged(tmp_path / f"{number}", data, two, layout, precision=precision)
        for number, layout in enumerate(layouts)
    ]
    for job_file, ranks in run(two, jobs):
        assert_equal(job_file, ranks, like, learned)


@pytest.mark.slow(target="layouts")
def test_stages_on_four_ranks_equal_one_process_and_middle_ranks_read_no_data(
    tmp_path: Path, data: Path, whole: Whole
) -> None:
    like, learned = whole(precision={"kind": "fp32"})
    four = Degrees(pipeline=4)
    uneven = staged(tmp_path / "uneven", data, four, ONE_F_ONE_B | {"stages": (1, 3, 2, 2)})
    v = staged(tmp_path / "v", data, four, {"schedule": "zbv"})
    tied = staged(tmp_path / "tied", data, four, ONE_F_ONE_B, **TIED)
    results = dict(run(four, [uneven, v, tied]))
    assert_equal(uneven, results[uneven], like, learned)
    assert_equal(v, results[v], like, learned)
    assert_close(tied, whole(**TIED)[0])
    assert [rank.reads > 0 for rank in results[uneven]] == [True, False, False, True]
    assert [rank.reads > 0 for rank in results[v]] == [True, False, False, False]


@pytest.mark.slow(target="layouts")
def test_two_pipelines_equal_two_data_ranks_bit_for_bit(tmp_path: Path, data: Path, whole: Whole) -> None:
    """Two data ranks sum two numbers, in either order; compared with one process only rounding differs."""
    pairs, four = Degrees(replicas=2), Degrees(pipeline=2, replicas=2)
    plain = job(tmp_path / "plain", data, ranks=2)
    like, (learned, _) = run(pairs, [plain])[0]
    untied = [
        staged(tmp_path / layout["schedule"], data, four, layout)
        for layout in (ONE_F_ONE_B, INTERLEAVED, INTERLEAVED_ZERO_BUBBLE, ZBV)
    ]
    tied = staged(tmp_path / "tied", data, four, ONE_F_ONE_B, **TIED)
    for job_file, ranks in run(four, [*untied, tied]):
        if job_file == tied:
            assert_close(tied, whole(**TIED)[0])
        else:
            assert_equal(job_file, ranks, like, learned)
            assert_close(job_file, whole(precision={"kind": "fp32"})[0])


@pytest.mark.slow(target="layouts")
def test_tied_embeddings_are_updated_equally_in_both_stages(tmp_path: Path, data: Path, whole: Whole) -> None:
    """In one process each backward pass adds both gradients at once. Here each stage accumulates its own."""
    like, _ = whole(**TIED)
    two = Degrees(pipeline=2)
    jobs = [
        staged(tmp_path / layout["schedule"], data, two, layout, **TIED)
        for layout in (ONE_F_ONE_B, INTERLEAVED, INTERLEAVED_ZERO_BUBBLE, ZBV)
    ]
    for job_file, ranks in run(two, jobs):
        assert_close(job_file, like)
        copies = [rank.weights["embedding.weight"] for rank in ranks if "embedding.weight" in rank.weights]
        assert all(torch.equal(copies[0], copy) for copy in copies)
        assert len(copies) == (1 if "zbv" in str(job_file) else 2)


@pytest.mark.slow(target="layouts")
def test_ranks_between_the_replicas_of_a_tied_weight_create_the_same_groups(
    tmp_path: Path, data: Path
) -> None:
    """torch names a group by how many its process has created.
    Ranks with unequal counts would wait for each other forever."""
    between = Degrees(pipeline=4, replicas=2)
    one = staged(tmp_path, data, between, ONE_F_ONE_B, **TIED | {"schedule": {"steps": 1, "warmup_steps": 0}})
    ((_, ranks),) = run(between, [one])
    copies = [rank.weights["embedding.weight"] for rank in ranks if "embedding.weight" in rank.weights]
    assert len(copies) == 4
    assert all(torch.equal(copies[0], copy) for copy in copies)


@pytest.mark.slow(target="layouts")
def test_a_checkpoint_of_any_split_resumes_in_any_other_and_in_one_process(
    tmp_path: Path, data: Path
) -> None:
    """Each leg continues for two steps from the previous leg's checkpoint;
    together they equal one uninterrupted run."""
    legs: list[tuple[Degrees, dict[str, Any]]] = [
        (Degrees(pipeline=2), ONE_F_ONE_B | {"stages": (5, 3)}),
        (Degrees(pipeline=2), ZBV),
        (Degrees(pipeline=4), ONE_F_ONE_B | {"stages": (1, 3, 2, 2)}),
        (Degrees(), {}),
        (Degrees(pipeline=2), INTERLEAVED_ZERO_BUBBLE),
    ]
    every = {"checkpoint": {"every_steps": 2}, "validation": {"every_steps": 100, "sequences": 1}}
    straight = job(tmp_path / "straight", data, schedule=_steps(2 * len(legs)), **every)
    ((_, (learned,)),) = run(Degrees(), [straight])
    seen: list[float] = []
    last: tuple[Learned, ...] = ()
    for number, (degrees, layout) in enumerate(legs):
        folder = tmp_path / f"leg-{number}"
        point = {}
        if number:
            before = tmp_path / f"leg-{number - 1}"
            point = {"job": resume_from(before / f"out/checkpoints/step-{2 * number}", folder)}
        given = layout | ({"pipeline": degrees.pipeline} if layout else {})
        leg = job(folder, data, degrees.ranks, given, schedule=_steps(2 * number + 2), **every, **point)
        ((_, last),) = run(degrees, [leg])
        seen += losses(leg)
    assert seen == losses(straight)
    for rank in last:
        for weight, value in rank.weights.items():
            assert torch.equal(value, learned.weights[weight]), weight


def _steps(steps: int) -> dict[str, Any]:
    """A constant learning rate, which does not depend on the last step."""
    return {"steps": steps, "warmup_steps": 1, "final_fraction": 1.0}


def test_a_single_stage_adds_no_pipeline(tmp_path: Path, data: Path) -> None:
    training = build_here(job(tmp_path, data))
    assert isinstance(training.engine.forward_backward, GradientAccumulation)
    assert not any(isinstance(module, DenseLinear) for module in training.engine.model.modules())


@pytest.mark.parametrize(
    ("schedule", "layers", "layers_of_ranks"),
    [
        (PipelineSchedule.ONE_F_ONE_B, (5, 3), [[0, 1, 2, 3, 4], [5, 6, 7]]),
        (PipelineSchedule.INTERLEAVED, (1, 3, 2, 2), [[0, 4, 5], [1, 2, 3, 6, 7]]),
        (PipelineSchedule.ZBV, (1, 3, 2, 2), [[0, 6, 7], [1, 2, 3, 4, 5]]),
    ],
)
@pytest.mark.parametrize("tied", [False, True])
def test_layers_of_ranks_have_canonical_names_and_each_weight_counts_once(
    schedule: PipelineSchedule, layers: tuple[int, ...], layers_of_ranks: list[list[int]], tied: bool
) -> None:
    counted: list[str] = []
    for rank, expected in enumerate(layers_of_ranks):
        model = Transformer(ModelSpec.model_validate(MODEL | {"tied_embeddings": tied}), 257, 16)
        everything = dict(model.named_parameters())
        stages = Stages(schedule, 2, layers).of_rank(rank)
        parts = split_model(model, stages, unsharded_specs(model))
        assert [int(layer) for layer in model.layers] == expected
        assert list(parts.local) == [name for name, _ in model.named_parameters()]
        assert list(parts.forward_order) == list(everything)
        assert all(weight is everything[name] for name, weight in model.named_parameters())
        counted += [name for name, part in parts.local.items() if part.is_primary]
        of_stages = [name for stage in stages for name in stage.weight_names(parts)]
        shared = {"embedding.weight"} if tied and "embedding.weight" in parts.local else set()
        assert sorted(of_stages) == sorted(set(parts.local) - shared)
    assert sorted(counted) == sorted(everything)
