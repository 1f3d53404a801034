"""Tensor and sequence parallelism: every rank has its shard of each matrix and of the tokens, and matches one
process.

A case trains a small model, so that its bounds can be derived: two layers 32 wide, eight heads that share
four heads of keys and values, and a vocabulary of 257 tokens, which no number of ranks divides.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.selection import partly_slow
from tests.trainer.jobs import build_here, losses, resume_from, train_here, write_job
from tests.trainer.ranks import on_mesh
from tests.trainer.zero_trainings import (
    EPSILON,
    LEARNING_RATE,
    TensorShard,
    assembled_replicas,
    farthest,
    one_step,
    start,
)
from trainwright.contracts.job_spec import output_folder
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer.data.loader import read_batches
from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.distributed.shard_spec import ShardSpecs, unsharded_specs
from trainwright_trainer.linear.norms import RMSNorm
from trainwright_trainer.model.attention import Attention
from trainwright_trainer.model.feed_forward import FeedForward
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.optim import replicated_updater
from trainwright_trainer.parallel.tensor import parallelize, sequence_parallel, vocab_parallel
from trainwright_trainer.training.build import Training
from trainwright_trainer.training.loop import train

STEPS = 5

BASE: dict[str, Any] = {
    "model": {"layers": 2, "width": 32, "heads": 8, "kv_heads": 4, "feed_forward": 96},
    "batch": {"sequence_tokens": 64, "micro_sequences": 4, "global_sequences": 8},
    "optimizer": {"learning_rate": LEARNING_RATE, "epsilon": EPSILON},
    "schedule": {"steps": 4, "warmup_steps": 1},
    "checkpoint": {"every_steps": 2},
}

# In the model's backward pass about ten matmuls are computed in sequence in each of two layers, and each sums at
# most the 512 tokens of the batch, so another order of summation changes at most 512 · 2⁻²⁴ of the sum of
# magnitudes.
GRADIENT_BOUND = 20 * 512 * 2.0**-24

# Under autocast each matmul is rounded to 2⁻⁹ of itself. At four places per layer the t terms of t ranks are
# each rounded, and so is each of their sums: 2·t - 1 roundings instead of one.
BF16_UNIT = 2.0**-9


def _bf16_bound(ranks: int) -> float:
    return 2 * 4 * 2 * ranks * BF16_UNIT


@dataclass
class Learned:
    """What a rank reports after a few steps."""

    losses: list[float]
    norms: list[float]
    initial: dict[str, TensorShard]
    gradients: dict[str, TensorShard]
    """The clipped gradients of the first step."""

    weights: dict[str, TensorShard]
    """After the last step."""

    validation: float


def learn(mesh: Mesh, job_file: Path, steps: int = STEPS) -> Learned:
    training = start(mesh, job_file)
    initial = _tensor_shards(training, lambda weight: weight)
    numbers = [one_step(training, 1)]
    gradients = _tensor_shards(training, lambda weight: weight.grad)
    numbers += [one_step(training, step) for step in range(2, steps + 1)]
    batches = read_batches(training.validation, validated(mesh), training.spec.batch.micro_sequences)
    return Learned(
        [number.loss for number in numbers],
        [number.grad_norm for number in numbers],
        initial,
        gradients,
        _tensor_shards(training, lambda weight: weight),
        training.engine.mean_loss(batches),
    )


def validated(mesh: Mesh) -> Any:
    return np.arange(mesh.data.rank, 6, mesh.data.ranks, dtype=np.uint64)


def _tensor_shards(training: Training, of: Callable[[nn.Parameter], Tensor | None]) -> dict[str, TensorShard]:
    """Shards on this rank, by canonical name."""
    held = _parts(training).local
    found = {}
    for name, weight in training.engine.model.named_parameters():
        value = of(weight)
        assert value is not None
        found[name] = TensorShard(held[name].slice, value.detach().clone())
    return found


def _parts(training: Training) -> ShardSpecs:
    """The shards that sharding the model left on this rank."""
    spec, mesh = training.spec, training.mesh
    with torch.device("meta"):
        model = Transformer(spec.model, spec.data.tokenizer.size, spec.batch.sequence_tokens)
    parts = unsharded_specs(model)
    return parallelize.shard_matrices(model, parts, mesh.tensor) if mesh.tensor.ranks > 1 else parts


@pytest.fixture(scope="module")
def job(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Writes a job folder for ``degrees``."""

    def write(degrees: Degrees, **sections: Any) -> Path:
        spec = {name: BASE.get(name, {}) | sections.get(name, {}) for name in BASE | sections}
        spec["parallelism"] = {"tensor": degrees.tensor} | sections.get("parallelism", {})
        return write_job(tmp_path_factory.mktemp("job"), data, degrees.ranks, **spec)

    return write


@pytest.fixture(scope="module")
def alone(job: Callable[..., Path]) -> Callable[..., Learned]:
    """What one process learns, computed once for all cases that compare with it."""

    @cache
    def run(precision: str, tied: bool) -> Learned:
        here = job(Degrees(), precision={"kind": precision}, model=BASE["model"] | {"tied_embeddings": tied})
        (result,) = on_mesh(Degrees(), learn, here)
        assert isinstance(result, Learned)
        return result

    return run


CHUNKED = {"loss_chunk_tokens": 128}

CASES = {
    "tensor 2": (Degrees(tensor=2), True, {}),
    "tensor 2, chunks, untied": (Degrees(tensor=2), False, {"memory": CHUNKED}),
    "tensor 4, chunks": (Degrees(tensor=4), True, {"memory": CHUNKED}),
    "tensor 4, untied": (Degrees(tensor=4), False, {}),
    "data 2, tensor 2": (Degrees(replicas=2, tensor=2), True, {"memory": CHUNKED}),
    "tensor 2, full recomputation": (Degrees(tensor=2), True, {"memory": {"recompute": "full"}}),
    "tensor 2, selective recomputation": (Degrees(tensor=2), True, {"memory": {"recompute": "selective"}}),
}


IN_MAKE_TEST = ("tensor 4, chunks",)


@pytest.mark.parametrize("case", partly_slow(CASES, IN_MAKE_TEST))
def test_ranks_learn_what_one_process_does(
    case: str, job: Callable[..., Path], alone: Callable[..., Learned]
) -> None:
    degrees, tied, sections = CASES[case]
    model = BASE["model"] | {"tied_embeddings": tied}
    results = on_mesh(degrees, learn, job(degrees, **sections, model=model, precision={"kind": "fp32"}))
    wanted = alone("fp32", tied)
    _check_initial(results, wanted)
    _check_first_step(results, wanted)
    off = farthest(
        assembled_replicas([result.gradients for result in results]), assembled_replicas([wanted.gradients])
    )
    # Ranks whose losses differ would decide differently on skipping a step.
    assert all(result.losses == results[0].losses and result.norms == results[0].norms for result in results)
    # AdamW moves a weight by at most 2 · rate / epsilon times the error of its gradient. Gradients are
    # clipped to a norm of 1, so in five steps all weights together are off by 5 · 6 · off, and a loss by that
    # times the norm of its gradient, below 2 here. Computing gradients at weights that are off adds as much
    # again. In addition, a loss is a mean over 512 tokens of logarithms of sums over 257.
    shift = 2 * STEPS * 2 * LEARNING_RATE / EPSILON * max(off, 2.0**-23)
    rounding = (512 + 257) * 2.0**-24
    for loss, one in zip(results[0].losses, wanted.losses, strict=True):
        assert abs(loss - one) <= 2 * shift + rounding * one
    assert abs(results[0].validation - wanted.validation) <= 2 * shift + rounding * wanted.validation
    weights, expected = (
        assembled_replicas([result.weights for result in results]),
        assembled_replicas([wanted.weights]),
    )
    assert all((weights[name] - expected[name]).norm() <= shift for name in expected)


def _check_initial(results: list[Learned], wanted: Learned) -> None:
    """Each rank starts with its shard of the one-process weights, bit for bit,
    and has no other part of a matrix."""
    initial = assembled_replicas([result.initial for result in results])
    assert all(result.initial.keys() == wanted.initial.keys() for result in results)
    for name, shard in wanted.initial.items():
        assert torch.equal(initial[name], shard.tensor)
    matrices = [name for name, tensor in initial.items() if tensor.ndim == 2]
    groups = sum(
        shard.box == results[0].initial[matrices[0]].box
        for shard in (result.initial[matrices[0]] for result in results)
    )
    for name in matrices:
        assert (
            sum(result.initial[name].tensor.numel() for result in results) == groups * initial[name].numel()
        )


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("ranks", [2, 4])
def test_bfloat16_differs_from_one_process_by_its_roundings_only(
    ranks: int, job: Callable[..., Path], alone: Callable[..., Learned]
) -> None:
    degrees = Degrees(tensor=ranks)
    model = BASE["model"] | {"tied_embeddings": True}
    results = on_mesh(degrees, learn, job(degrees, model=model, memory=CHUNKED, precision={"kind": "bf16"}))
    wanted = alone("bf16", True)
    _check_initial(results, wanted)
    bound = _bf16_bound(ranks)
    gradients = assembled_replicas([result.gradients for result in results])
    assert farthest(gradients, assembled_replicas([wanted.gradients])) <= bound
    # The features of the last norm are off by a rounding of 2⁻⁹ for each sum before them, and logits are
    # below 1.
    for loss, one in zip(results[0].losses, wanted.losses, strict=True):
        assert loss == pytest.approx(one, abs=bound * 0.1)
    assert results[0].validation == pytest.approx(wanted.validation, abs=bound * 0.1)


def _own_repeated(part: Tensor, axis: Axis) -> Tensor:
    return torch.cat([part.flatten(0, 1)] * axis.ranks).view(part.shape[0], -1, *part.shape[2:])


def _own_summand(summand: Tensor, axis: Axis) -> Tensor:
    part = summand.flatten(0, 1).chunk(axis.ranks)[axis.rank]
    return part.reshape(summand.shape[0], -1, *summand.shape[2:])


def _forward(collective: Callable[[Tensor, Axis], Tensor]) -> Any:
    """Forward of an autograd function, with ``collective`` instead of its own."""

    def forward(ctx: Any, given: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return collective(given, axis)

    return staticmethod(forward)


def _backward(collective: Callable[[Tensor, Axis], Tensor]) -> Any:
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor, None]:
        return collective(given, ctx.axis), None

    return staticmethod(backward)


log_sum_and_target = vocab_parallel.log_sum_and_target


def _own_logits(logits: Tensor, targets: Tensor, rows: Any, axis: Axis) -> tuple[Tensor, Tensor]:
    return logits.float().logsumexp(1), log_sum_and_target(logits, targets, rows, axis)[1]


def _own_targets(logits: Tensor, targets: Tensor, rows: Any, axis: Axis) -> tuple[Tensor, Tensor]:
    offsets = targets - rows.first
    found = logits.float().gather(1, offsets.remainder(rows.size)[:, None])[:, 0]
    is_here = (offsets >= 0) & (offsets < rows.size)
    return log_sum_and_target(logits, targets, rows, axis)[0], found.where(is_here, 0.0)


FAULTS: dict[str, tuple[Any, str, Any]] = {
    "tokens are not gathered": (sequence_parallel.AllGather, "forward", _forward(_own_repeated)),
    "gradients of gathered tokens are not summed": (
        sequence_parallel.AllGather,
        "backward",
        _backward(_own_summand),
    ),
    "matmuls are not summed": (sequence_parallel.ReduceScatter, "forward", _forward(_own_summand)),
    "gradients of summed matmuls are not gathered": (
        sequence_parallel.ReduceScatter,
        "backward",
        _backward(_own_repeated),
    ),
    "gradients of norms are not summed": (
        replicated_updater,
        "sum_gradients",
        lambda weights, axis: None,
    ),
    "the vocabulary's exponentials are not summed": (vocab_parallel, "log_sum_and_target", _own_logits),
    "the target's logit stays with its owner": (vocab_parallel, "log_sum_and_target", _own_targets),
    "embedded tokens are not summed": (vocab_parallel, "reduce_scatter", _own_summand),
    "embeddings of other ranks' tokens are added": (Tensor, "masked_fill", lambda self, mask, value: self),
    "the gradient norm is a rank's own": (replicated_updater, "norm_over", lambda axis, norm: norm),
}


def learn_with_faults(mesh: Mesh, job_file: Path) -> dict[str, Learned]:
    """Run the first step with each fault, and finally without one."""
    results = {}
    for fault, (where, name, wrong) in FAULTS.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(where, name, wrong)
            results[fault] = learn(mesh, job_file, 1)
    return results | {"none": learn(mesh, job_file, 1)}


@pytest.mark.slow(target="layouts")
def test_each_collective_that_is_left_out_is_detected(
    job: Callable[..., Path], alone: Callable[..., Learned]
) -> None:
    degrees, wanted = Degrees(tensor=2), alone("fp32", True)
    model = BASE["model"] | {"tied_embeddings": True}
    results = on_mesh(degrees, learn_with_faults, job(degrees, model=model, precision={"kind": "fp32"}))
    _check_first_step([result["none"] for result in results], wanted)
    for fault in FAULTS:
        seen = False
        try:
            _check_first_step([result[fault] for result in results], wanted)
        except AssertionError:
            seen = True
        assert seen, fault


def _check_first_step(results: list[Learned], wanted: Learned) -> None:
    off = farthest(
        assembled_replicas([result.gradients for result in results]), assembled_replicas([wanted.gradients])
    )
    assert off <= GRADIENT_BOUND, f"gradients are off by {off}"
    for item in results:
        loss, norm = item.losses[0] / wanted.losses[0], item.norms[0] / wanted.norms[0]
        assert max(abs(loss - 1), abs(norm - 1)) <= GRADIENT_BOUND, f"loss or norm is off by {loss}, {norm}"


@pytest.mark.slow(target="layouts")
def test_compiled_blocks_communicate_with_other_ranks(
    job: Callable[..., Path], alone: Callable[..., Learned]
) -> None:
    """Blocks and chunks of the loss are complete graphs, collectives included."""
    degrees, model = Degrees(tensor=2), BASE["model"] | {"tied_embeddings": True}
    here = job(degrees, model=model, memory=CHUNKED, precision={"kind": "bf16", "compile": "on"})
    results = on_mesh(degrees, learn, here, 1)
    gradients = assembled_replicas([result.gradients for result in results])
    assert farthest(gradients, assembled_replicas([alone("bf16", True).gradients])) <= _bf16_bound(2)


def run(mesh: Mesh, job_file: Path) -> list[float]:
    train(start(mesh, job_file))
    return losses(job_file) if mesh.rank == 0 else []


@pytest.mark.parametrize(("before", "after"), partly_slow([(2, 1), (1, 2), (4, 2)], [(2, 1)]))
def test_a_checkpoint_of_one_degree_resumes_in_another(
    before: int, after: int, job: Callable[..., Path], tmp_path: Path
) -> None:
    """The second half of a run resumed elsewhere equals that of an uninterrupted run."""
    precision = {"kind": "fp32"}
    first = job(Degrees(tensor=before), precision=precision)
    on_mesh(Degrees(tensor=before), run, first)
    second = job(Degrees(tensor=after), precision=precision)
    given = resume_from(output_folder(first) / "checkpoints" / "step-2", second.parent)
    second = write_job(
        second.parent,
        second.parent / "data",
        after,
        given,
        **BASE,
        precision=precision,
        parallelism={"tensor": after},
    )
    (resumed, *_) = on_mesh(Degrees(tensor=after), run, second)
    straight = losses(first)
    assert len(straight) == 4 and len(resumed) == 2
    shift = 2 * 2 * 2 * LEARNING_RATE / EPSILON * GRADIENT_BOUND  # two steps, as derived above
    assert resumed == pytest.approx(straight[2:], abs=shift)
    assert abs(straight[2] - straight[3]) > 0


def test_degree_1_changes_nothing(job: Callable[..., Path]) -> None:
    model = build_here(job(Degrees(), precision={"kind": "fp32"})).engine.model
    for block in model.layers.values():
        assert type(block.attention) is Attention and type(block.feed_forward) is FeedForward
        assert type(block.attention_norm) is type(block.feed_forward_norm) is RMSNorm
    assert type(model.embedding) is nn.Embedding and type(model.norm) is RMSNorm


@pytest.mark.slow(target="layouts")
def test_a_complete_training_equals_that_of_one_process(job: Callable[..., Path]) -> None:
    """Through the training loop, with its validation and checkpoints."""
    precision = {"kind": "fp32"}
    alone_job = job(Degrees(), precision=precision)
    train_here(alone_job)
    (results, *_) = on_mesh(
        Degrees(replicas=2, tensor=2), run, job(Degrees(replicas=2, tensor=2), precision=precision)
    )
    shift = 2 * 4 * 2 * LEARNING_RATE / EPSILON * GRADIENT_BOUND
    assert results == pytest.approx(losses(alone_job), abs=shift)


def test_every_matrix_is_sharded() -> None:
    """A new kind of layer must declare how it is sharded."""
    with torch.device("meta"):
        model = Transformer(ModelSpec(layers=2, width=32, heads=8, tied_embeddings=False), 257, 8)
    axis = Axis(((0, 1),), 1, torch.device("cpu"))
    parts = parallelize.shard_matrices(model, unsharded_specs(model), axis)
    assert list(parts.local) == list(dict(model.named_parameters()))
    for name, weight in model.named_parameters():
        part = parts.local[name]
        assert tuple(weight.shape) == part.slice.shape
        assert part.is_primary == (weight.ndim == 2)
        assert (part.slice.shape == part.slice.full_shape) == (weight.ndim == 1)
