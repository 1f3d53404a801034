"""DeepSpeed's steps equal the native engine's, each resumes the other's checkpoints, and its output stays quiet."""

import os
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainer.jobs import build_here, losses, resume_from, run_trainer, write_job
from tests.trainer.ranks import on_mesh
from tests.trainer.zero_trainings import (
    BASE,
    EPSILON,
    GRADIENTS,
    LEARNING_RATE,
    Learned,
    TensorShard,
    assembled,
    complaints,
    farthest,
    learn,
    one_step,
    start,
    tensor_shards,
    uneven_losses,
)
from trainwright.contracts.checkpoint import CheckpointManifest
from trainwright.contracts.job_spec import output_folder
from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer.checkpoint.load import read_tensor
from trainwright_trainer.distributed.axis import RankLostError
from trainwright_trainer.distributed.mesh import Mesh, make_mesh
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.runtime.errors import BadJobError
from trainwright_trainer.training import deepspeed_engine
from trainwright_trainer.training.deepspeed_engine import DeepSpeedEngine, DeepSpeedUpdater
from trainwright_trainer.training.loop import train

DEEPSPEED: dict[str, Any] = {"engine": "deepspeed"}
UNEVEN = {"width": 10, "heads": 1, "kv_heads": 1, "feed_forward": 11}
"""Neither vectors nor all matrices can be split into four parts of equal length."""


@pytest.fixture(scope="module")
def job(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Writes the job folder of a run on ``ranks`` ranks."""

    def write(ranks: int, resume: Path | None = None, **sections: Any) -> Path:
        spec = {name: BASE.get(name, {}) | sections.get(name, {}) for name in BASE | sections}
        folder = tmp_path_factory.mktemp("job")
        return write_job(folder, data, ranks, resume_from(resume, folder) if resume else None, **spec)

    return write


def run(job_file: Path, function: Callable[..., Any] = learn, *arguments: Any) -> list[Any]:
    return on_mesh(read_job(job_file).spec.degrees, function, job_file, *arguments)


def run_all(jobs: list[Path], function: Callable[..., Any]) -> list[list[Any]]:
    """Run ``function`` on each job, one after the other on the same ranks,
    which take seconds to import DeepSpeed."""
    ranks = read_job(jobs[0]).ranks
    return [
        list(results)
        for results in zip(*on_mesh(Degrees(replicas=ranks), _each, jobs, function), strict=True)
    ]


def _each(mesh: Mesh, jobs: list[Path], function: Callable[..., Any]) -> list[Any]:
    return [function(make_mesh(mesh.rank, read_job(path).spec.degrees, mesh.device), path) for path in jobs]


@pytest.fixture(scope="module")
def one_process(job: Callable[..., Path]) -> Callable[[], Learned]:
    """What the native engine learns, computed once for all cases."""

    @cache
    def of() -> Learned:
        (result,) = run(job(1))
        assert result.norms[0] > 0.5, "gradients must be clipped"
        return result

    return of


CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "stage 1 over 2": (2, {"zero_stage": 1}),
    "stage 2 over 2": (2, {"zero_stage": 2}),
    "stage 3 over 2": (2, {"zero_stage": 3}),
    "stage 0 over 4": (4, {}),
    "stage 3 over 4": (4, {"zero_stage": 3}),
    "stage 0 alone": (1, {}),
    "stage 3 alone": (1, {"zero_stage": 3}),
    "states in host memory": (2, {"zero_stage": 2, "offload": "optimizer"}),
    "weights in host memory": (2, {"zero_stage": 3, "offload": "parameters"}),
}


@pytest.fixture(scope="module")
def learned(job: Callable[..., Path]) -> Callable[[int], dict[str, list[Learned]]]:
    """What all cases with a given number of ranks learn."""

    @cache
    def of(ranks: int) -> dict[str, list[Learned]]:
        mine = {case: parallelism for case, (needed, parallelism) in CASES.items() if needed == ranks}
        jobs = [job(ranks, parallelism=DEEPSPEED | parallelism) for parallelism in mine.values()]
        return dict(zip(mine, run_all(jobs, learn), strict=True))

    return of


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("case", CASES)
def test_every_stage_learns_what_the_native_engine_does(
    case: str,
    learned: Callable[[int], dict[str, list[Learned]]],
    one_process: Callable[[], Learned],
) -> None:
    """In float32; ``complaints`` derives what rounding may change."""
    results, wanted = learned(CASES[case][0])[case], one_process()
    initial, expected = assembled([result.initial for result in results]), assembled([wanted.initial])
    assert all(torch.equal(initial[name], expected[name]) for name in expected)
    assert not complaints(results, wanted)


BF16: dict[str, Any] = {
    "precision": {"kind": "bf16"},
    "model": {"tied_embeddings": False},
    "batch": {"micro_sequences": 2, "sequence_tokens": 128},
    "memory": {"loss_chunk_tokens": 128, "recompute": "full"},
}


@pytest.fixture(scope="module")
def bf16(job: Callable[..., Path]) -> list[list[Learned]]:
    """What stages 0 to 3 and then the native engine learn."""
    layouts = [DEEPSPEED | {"zero_stage": stage} for stage in (0, 1, 2, 3)]
    jobs = [job(2, parallelism=parallelism, **BF16) for parallelism in layouts]
    return [*run_all(jobs, learn), run(job(2, **BF16))]


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_bfloat16_is_rounded_where_the_native_engine_rounds(stage: int, bf16: list[list[Learned]]) -> None:
    """Weights, gradients and their sums are float32.
    Loss chunks and recomputation run with DeepSpeed's hooks."""
    results, wanted = bf16[stage], bf16[-1]
    assert results[0].losses[0] == wanted[0].losses[0]
    if not stage:
        assert (results[0].losses, results[0].norms) == (wanted[0].losses, wanted[0].norms)
    first, expected = (
        assembled([result.first for result in results]),
        assembled([item.first for item in wanted]),
    )
    # Two ranks with two micro batches each sum four numbers in another order, and the norm used for clipping
    # is rounded differently. Gradients rounded to bfloat16 before they are summed would be off by about 2⁻¹⁰.
    assert farthest(first, expected, GRADIENTS) <= 16 * 2.0**-24
    # A weight that differs in its last bits makes a few activations round to their other neighbour, 2⁻⁸ away.
    # The loss changes by less than if all activations did.
    for loss, one in zip(results[0].losses, wanted[0].losses, strict=True):
        assert abs(loss - one) <= 2.0**-9


STEPS_RESUMED = 5


def _train(mesh: Mesh, job_file: Path, fault: str | None = None) -> dict[str, TensorShard]:
    if fault is not None:
        FAULTS[fault]()
    training = start(mesh, job_file)
    restored = tensor_shards(training)
    train(training)
    return restored


LONG: dict[str, Any] = {
    "schedule": {"steps": 3 * STEPS_RESUMED, "warmup_steps": 1},
    "checkpoint": {"every_steps": STEPS_RESUMED, "keep": 3},
    "validation": {"every_steps": 100, "sequences": 8},
    "model": UNEVEN,
}


@pytest.fixture(scope="module")
def native(job: Callable[..., Path]) -> Path:
    """A complete run of the native engine."""
    path = job(1, **LONG)
    run(path, _train)
    return path


def checkpoint(job_file: Path, step: int) -> Path:
    return output_folder(job_file) / "checkpoints" / f"step-{step}"


def stored(folder: Path) -> dict[str, Tensor]:
    manifest = CheckpointManifest.model_validate_json((folder / "manifest.json").read_bytes())
    return {
        name: read_tensor(folder, manifest, name, entry.shape) for name, entry in manifest.tensors.items()
    }


def resumed(
    job: Callable[..., Path], source: Path, ranks: int, parallelism: dict[str, Any], fault: str | None = None
) -> tuple[Path, list[str]]:
    """Resume from ``source``. Returns the job and the tensors that differ from the stored state."""
    path = job(ranks, source, parallelism=parallelism, **LONG)
    restored, kept = assembled(run(path, _train, fault)), stored(source)
    assert restored.keys() == kept.keys()
    return path, [name for name in kept if not torch.equal(restored[name], kept[name])]


def same_losses(results: list[float], wanted: list[float]) -> bool:
    """Layouts sum the same gradients and their norm in other orders, each at most 2⁻²¹ off.

    ``complaints`` derives the effect over this many steps.
    """
    shift = len(wanted) * 2 * LEARNING_RATE / EPSILON * 2.0**-20
    return len(results) == len(wanted) and all(
        abs(loss - one) <= 2 * shift + 512 * 2.0**-24 * one for loss, one in zip(results, wanted, strict=True)
    )


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize(("stage", "ranks"), [(0, 2), (1, 4), (2, 2), (3, 4)])
def test_a_checkpoint_resumes_in_the_other_engine_and_back(
    stage: int, ranks: int, native: Path, job: Callable[..., Path]
) -> None:
    wanted = losses(native)
    there, changed = resumed(job, checkpoint(native, STEPS_RESUMED), ranks, DEEPSPEED | {"zero_stage": stage})
    assert not changed
    assert same_losses(losses(there), wanted[STEPS_RESUMED:])
    files = {path.suffix for path in checkpoint(there, 2 * STEPS_RESUMED).iterdir()}
    assert files == {".json", ".safetensors"}
    back, changed = resumed(job, checkpoint(there, 2 * STEPS_RESUMED), 1, {})
    assert not changed
    assert same_losses(losses(back), wanted[2 * STEPS_RESUMED :])


def _with_bad_numbers(mesh: Mesh, job_file: Path) -> list[Any]:
    """Steps in which the last rank injects an infinite value, each between two good ones."""
    training = start(mesh, job_file)
    engine = training.engine
    assert isinstance(engine, DeepSpeedEngine) and isinstance(engine.updater, DeepSpeedUpdater)
    loss_module = engine.updater.loss_module
    right = loss_module.head_loss

    def spoilt_loss(features: Tensor, *rest: Any) -> Tensor:
        return right(features * torch.nan, *rest)

    def spoilt_gradient(features: Tensor, *rest: Any) -> Tensor:
        return right(_Spoilt.apply(features), *rest)

    def infinite_loss(*given: Any) -> Tensor:
        return right(*given) + torch.inf

    found: list[Any] = [one_step(training, 1).finite]
    for wrong in (spoilt_loss, spoilt_gradient, infinite_loss):
        before = tensor_shards(training)
        updates = engine.updater.scalars()
        loss_module.head_loss = wrong if mesh.rank == mesh.ranks - 1 else right
        bad = one_step(training, 2)
        loss_module.head_loss = right
        after = tensor_shards(training)
        found.append(bad.finite)
        found.append(all(torch.equal(before[name].tensor, after[name].tensor) for name in before))
        found.append(engine.updater.scalars() == updates)
        good = one_step(training, 3)
        found.append((good.loss, good.grad_norm))
    return found


class _Spoilt(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor) -> Tensor:
        return features.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * torch.nan


@pytest.fixture(scope="module")
def spoilt(job: Callable[..., Path]) -> dict[str, list[Any]]:
    cases = {
        case: CASES[case][1]
        for case in ("stage 1 over 2", "stage 2 over 2", "states in host memory", "stage 3 over 2")
    }
    jobs = [job(2, parallelism=DEEPSPEED | parallelism) for parallelism in ({}, *cases.values())]
    return dict(zip(("stage 0", *cases), run_all(jobs, _with_bad_numbers), strict=True))


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize(
    "case", ["stage 0", "stage 1 over 2", "stage 2 over 2", "states in host memory", "stage 3 over 2"]
)
def test_a_non_finite_step_changes_no_state_on_any_rank(case: str, spoilt: dict[str, list[Any]]) -> None:
    """A loss, a gradient, or a loss whose gradients are nevertheless finite."""
    results = spoilt[case]
    assert results[0] == results[1]
    first, *rest = results[0]
    assert first
    for index in range(3):
        finite, unchanged, counted, (loss, norm) = rest[4 * index : 4 * index + 4]
        assert (finite, unchanged, counted) == (False, True, True)
        assert loss < 10 and 0 < norm < 100, "the step after it is finite"


def _validate_and_lose_the_other_rank(mesh: Mesh, job_file: Path) -> tuple[list[float], str]:
    """Losses of unequal numbers of batches, and the error on the first rank
    when it gathers the state after the other has left."""
    training = start(mesh, job_file)
    validation = uneven_losses(training)
    tensor_shards(training)
    if mesh.rank == 1:
        threading.Timer(1.0, os._exit, [0]).start()  # after its answer was received
        return validation, "gone"
    with pytest.raises(RankLostError) as raised:
        tensor_shards(training)
    return validation, str(raised.value)


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("stage", [1, 3])
def test_uneven_validation_batches_do_not_block_ranks_and_a_lost_rank_is_reported(
    stage: int, job: Callable[..., Path]
) -> None:
    """At stage 3 each forward pass gathers weights, so all ranks must run the same number. A checkpoint gathers at
    any stage."""
    results = run(job(2, parallelism=DEEPSPEED | {"zero_stage": stage}), _validate_and_lose_the_other_rank)
    ((wanted, *_),) = run(job(1), _uneven_alone)
    assert results[0][0] == results[1][0] == pytest.approx(wanted, rel=1e-6)
    assert results[0][1].startswith("lost contact with another rank")


def _uneven_alone(mesh: Mesh, job_file: Path) -> tuple[list[float], str]:
    return uneven_losses(start(mesh, job_file)), ""


def _moments_are_not_restored() -> None:
    right = DeepSpeedUpdater.set_tensor

    def wrong(self: Any, weight: Any, kind: str | None, value: Tensor) -> None:
        if kind is None:
            right(self, weight, kind, value)

    DeepSpeedUpdater.set_tensor = wrong


def _updates_are_not_restored() -> None:
    deepspeed_engine.set_updates = lambda optimizer, updates: None


def _weights_are_restored_for_computing_only() -> None:
    """DeepSpeed stores them twice: for computing and for updating."""
    right = DeepSpeedUpdater.set_tensor

    def wrong(self: Any, weight: Any, kind: str | None, value: Tensor) -> None:
        if kind is None:
            weight.copy_(value)
            self._api.safe_set_full_fp32_param(weight, torch.zeros_like(value))
        else:
            right(self, weight, kind, value)

    DeepSpeedUpdater.set_tensor = wrong


FAULTS: dict[str, Callable[[], None]] = {
    "moments are not restored": _moments_are_not_restored,
    "updates are not restored": _updates_are_not_restored,
    "weights are restored for computing only": _weights_are_restored_for_computing_only,
}


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_resuming_is_detected(fault: str, native: Path, job: Callable[..., Path]) -> None:
    path, changed = resumed(job, checkpoint(native, STEPS_RESUMED), 2, DEEPSPEED | {"zero_stage": 1}, fault)
    assert changed or not same_losses(losses(path), losses(native)[STEPS_RESUMED:])
    assert not same_losses(losses(path), losses(native)[STEPS_RESUMED:]), "the losses alone show it"


def test_without_deepspeed_the_error_says_how_to_install_it(
    job: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deepspeed", None)
    for name in ("DS_ACCELERATOR", "LOCAL_RANK"):
        monkeypatch.setenv(name, "")
    with pytest.raises(
        BadJobError, match=r"spec\.parallelism\.engine: deepspeed .*'trainwright\[deepspeed\]'"
    ):
        build_here(job(1, parallelism=DEEPSPEED))


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_launched_run_logs_what_the_native_engine_logs(ranks: int, job: Callable[..., Path]) -> None:
    path = job(ranks, parallelism=DEEPSPEED | {"zero_stage": 2})
    assert run_trainer("train", path) == 0
    assert len(losses(path)) == BASE["schedule"]["steps"]
    logs = sorted((output_folder(path) / "logs").iterdir())
    assert len(logs) == ranks
    for log in logs:
        first, *lines = log.read_text().splitlines()
        assert first.startswith("rank ")
        assert all(line.startswith("step ") for line in lines), lines
