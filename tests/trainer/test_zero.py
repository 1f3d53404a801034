"""Data ranks that share moments, gradients and weights: what each holds, and that nothing else changes.

What a case trains is small, so that its bounds can be derived: four layers 32 wide, a batch of 8 sequences of 32 tokens in
micro batches of one, so that every rank makes several rounds. Gradients are clipped in every step, and travel in several
buckets.
"""

import gc
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from tests.trainer.jobs import build_here, losses, resume_from, write_job
from tests.trainer.ranks import on_mesh
from trainwright.contracts.checkpoint import CheckpointManifest
from trainwright.contracts.job_spec import output_folder
from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer import held_model
from trainwright_trainer.build import Training, build
from trainwright_trainer.checkpoint.load import read_tensor
from trainwright_trainer.data.loader import read_batches
from trainwright_trainer.ends import read_job
from trainwright_trainer.loop import train
from trainwright_trainer.mesh import Mesh, RankLostError
from trainwright_trainer.observe.throughput import StepClock
from trainwright_trainer.optim import sharded
from trainwright_trainer.parallel.data import replicate, shares, slices
from trainwright_trainer.parallel.data.gradient_shares import GradientShares
from trainwright_trainer.parallel.data.owners import OwnedWeights
from trainwright_trainer.parallel.data.replicate import GradientBuckets
from trainwright_trainer.parts import Slice

STEPS = 5
LEARNING_RATE = 3e-3
EPSILON = 1e-3
BUCKET_BYTES = 16_384

BASE: dict[str, Any] = {
    "model": {"layers": 4},
    "batch": {"sequence_tokens": 32, "micro_sequences": 1, "global_sequences": 8},
    "optimizer": {"learning_rate": LEARNING_RATE, "epsilon": EPSILON, "clip_norm": 0.5},
    "schedule": {"steps": 6, "warmup_steps": 1},
    "checkpoint": {"every_steps": 3},
    "validation": {"every_steps": 6, "sequences": 8},
}

# An element of a gradient is a sum over the 256 tokens of the batch, and about ten products follow one another in each of four
# layers, each a sum of at most as many terms: another order of adding changes 256 · 2⁻²⁴ of the magnitudes in each.
GRADIENT_BOUND = 40 * 256 * 2.0**-24


@dataclass
class Piece:
    """Where a rank's tensor lies in the whole."""

    box: Slice
    tensor: Tensor


@dataclass
class Learned:
    """What a rank tells of some steps."""

    losses: list[float]
    norms: list[float]
    initial: dict[str, Piece]
    """State before the first step."""

    first: dict[str, Piece]
    """After it: first moments are the clipped gradients times 1 - beta1."""

    last: dict[str, Piece]
    validation: float


def learn(mesh: Mesh, job_file: Path, steps: int = STEPS, fault: str | None = None) -> Learned:
    replicate.BUCKET_BYTES = BUCKET_BYTES
    if fault is not None:
        FAULTS[fault][2]()
    training = start(mesh, job_file)
    initial = pieces(training)
    numbers = [one_step(training, training.step + 1)]
    first = pieces(training)
    numbers += [one_step(training, training.step + step) for step in range(2, steps + 1)]
    return Learned(
        [one.loss for one in numbers],
        [one.grad_norm for one in numbers],
        initial,
        first,
        pieces(training),
        validation_loss(training),
    )


def start(mesh: Mesh, job_file: Path) -> Training:
    output_folder(job_file).mkdir(exist_ok=True)
    return build(read_job(job_file), job_file, mesh)


def one_step(training: Training, step: int) -> Any:
    clock = StepClock(training.mesh.device)
    clock.start()
    return training.engine.step(training.loader.micro_batches(step), LEARNING_RATE, clock)


def validation_loss(training: Training) -> float:
    mine = np.arange(training.mesh.data.rank, 8, training.mesh.data.ranks, dtype=np.uint64)
    return training.engine.mean_loss(read_batches(training.validation, mine, 1))


def pieces(training: Training) -> dict[str, Piece]:
    """What this rank would write to a checkpoint."""
    return {one.name: Piece(one.box, one.tensor.detach().clone()) for one in training.engine.updater.state()}


def assembled(told: list[dict[str, Piece]]) -> dict[str, Tensor]:
    """Whole tensors from the pieces of all ranks, which must fill them, each element once."""
    wholes: dict[str, Tensor] = {}
    for one in told:
        for name, piece in one.items():
            whole = wholes.setdefault(name, torch.full(piece.box.whole, torch.nan))
            assert whole[piece.box.where].isnan().all(), f"two ranks speak for a part of {name}"
            whole[piece.box.where] = piece.tensor
    assert not any(tensor.isnan().any() for tensor in wholes.values()), "parts do not fill a tensor"
    return wholes


def farthest(told: dict[str, Tensor], wanted: dict[str, Tensor], kind: str) -> float:
    """Greatest relative difference of a tensor of ``kind``, in the L2 norm."""
    assert told.keys() == wanted.keys()
    names = [name for name in wanted if name.startswith(kind)]
    assert names
    return max(float((told[name] - wanted[name]).norm() / wanted[name].norm()) for name in names)


GRADIENTS = "optimizer.exp_avg."


@pytest.fixture(scope="module")
def job(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Writes the folder of a job of ``ranks`` ranks."""

    def write(ranks: int, resume: Path | None = None, **sections: Any) -> Path:
        spec = {name: BASE.get(name, {}) | sections.get(name, {}) for name in BASE | sections}
        folder = tmp_path_factory.mktemp("job")
        return write_job(folder, data, ranks, resume_from(resume, folder) if resume else None, **spec)

    return write


def run(job_file: Path, *arguments: Any) -> list[Learned]:
    told = on_mesh(read_job(job_file).spec.degrees, learn, job_file, *arguments)
    assert all(isinstance(one, Learned) for one in told)
    return told


@pytest.fixture(scope="module")
def stage_0(job: Callable[..., Path]) -> Callable[..., list[Learned]]:
    """What ranks that share nothing learn, once for all cases that compare with it."""

    @cache
    def of(ranks: int, precision: str = "fp32", tied: bool = True, rounds: bool = True) -> list[Learned]:
        batch = BASE["batch"] | ({} if rounds else {"micro_sequences": 8 // ranks})
        clipped = {} if rounds else {"clip_norm": None}
        return run(
            job(
                ranks,
                batch=batch,
                optimizer=clipped,
                precision={"kind": precision},
                model={"tied_embeddings": tied},
            )
        )

    return of


CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "stage 1 over 2": (2, {"zero_stage": 1}),
    "stage 2 over 2": (2, {"zero_stage": 2}),
    "stage 3 over 2": (2, {"zero_stage": 3}),
    "stage 1 over 4": (4, {"zero_stage": 1}),
    "stage 2 over 4": (4, {"zero_stage": 2}),
    "stage 3 over 4": (4, {"zero_stage": 3}),
    "stage 1, 2 replicas of 2": (4, {"zero_stage": 1, "shard": 2}),
    "stage 2, 2 replicas of 2": (4, {"zero_stage": 2, "shard": 2}),
    "stage 3, 2 replicas of 2": (4, {"zero_stage": 3, "shard": 2}),
    "stage 1, tensor 2": (4, {"zero_stage": 1, "tensor": 2}),
    "stage 2, tensor 2": (4, {"zero_stage": 2, "tensor": 2}),
    "stage 3, tensor 2": (4, {"zero_stage": 3, "tensor": 2}),
    "stage 1, pipeline 2": (4, {"zero_stage": 1, "pipeline": 2}),
    "stage 2, pipeline 2": (4, {"zero_stage": 2, "pipeline": 2}),
    "stage 2, zero bubble": (4, {"zero_stage": 2, "pipeline": 2, "schedule": "zbv"}),
}


def complaints(told: list[Learned], wanted: Learned) -> list[str]:
    """In what the ranks differ from one process, or from each other, beyond rounding."""
    found = []
    first, expected = assembled([one.first for one in told]), assembled([wanted.first])
    off = farthest(first, expected, GRADIENTS)
    if not off <= GRADIENT_BOUND:
        found.append(f"gradients are {off:.1e} off")
    if any(one.losses != told[0].losses or one.norms != told[0].norms for one in told):
        found.append("ranks differ in losses or norms")
    if told[0].norms[0] != pytest.approx(wanted.norms[0], rel=GRADIENT_BOUND):
        found.append("the norm is another")
    # AdamW moves a weight by at most 2 · rate / epsilon times what its gradient is off. Gradients are clipped to a norm of
    # a half, so that in five steps all weights together are off by 5 · 3 · off, and a loss by the norm of its gradient,
    # below 2 here, times that. That gradients are taken where weights are off adds as much again. Besides, a loss is a
    # mean over 256 tokens of logarithms of sums over 256.
    shift = STEPS * 2 * LEARNING_RATE / EPSILON * max(min(off, GRADIENT_BOUND), 2.0**-23)
    for loss, one in zip(told[0].losses, wanted.losses, strict=True):
        if not abs(loss - one) <= 2 * shift + 512 * 2.0**-24 * one:
            found.append(f"a loss is {abs(loss - one):.1e} off")
    if not abs(told[0].validation - wanted.validation) <= 2 * shift + 512 * 2.0**-24 * wanted.validation:
        found.append("the validation loss is another")
    return found


@pytest.mark.parametrize("case", CASES)
def test_ranks_that_share_learn_what_one_process_does(
    case: str, job: Callable[..., Path], stage_0: Callable[..., list[Learned]]
) -> None:
    ranks, parallelism = CASES[case]
    (wanted,) = stage_0(1)
    told = run(job(ranks, parallelism=parallelism))
    initial, expected = assembled([one.initial for one in told]), assembled([wanted.initial])
    assert all(torch.equal(initial[name], expected[name]) for name in expected)
    assert wanted.norms[0] > 0.5, "gradients are to be clipped"
    assert not complaints(told, wanted)


@pytest.mark.parametrize("case", ["stage 1 over 2", "stage 1 over 4", "stage 1, 2 replicas of 2"])
def test_moments_may_be_shared_without_changing_a_bit(
    case: str, job: Callable[..., Path], stage_0: Callable[..., list[Learned]]
) -> None:
    ranks, parallelism = CASES[case]
    told, wanted = run(job(ranks, parallelism=parallelism)), stage_0(ranks)
    assert [(one.losses, one.norms, one.validation) for one in told] == [
        (one.losses, one.norms, one.validation) for one in wanted
    ]
    last, expected = assembled([one.last for one in told]), assembled([one.last for one in wanted])
    assert all(torch.equal(last[name], expected[name]) for name in expected)


@pytest.mark.parametrize("stage", [2, 3])
@pytest.mark.parametrize("tied", [True, False])
def test_two_ranks_in_one_round_add_two_numbers_wherever_they_keep_the_sum(
    stage: int, tied: bool, job: Callable[..., Path], stage_0: Callable[..., list[Learned]]
) -> None:
    """Not so the norm, a sum over all gradients: nothing is clipped here."""
    told = run(
        job(
            2,
            parallelism={"zero_stage": stage},
            batch={"micro_sequences": 4},
            optimizer={"clip_norm": None},
            model={"tied_embeddings": tied},
        )
    )
    wanted = stage_0(2, tied=tied, rounds=False)
    assert told[0].losses == wanted[0].losses
    last, expected = assembled([one.last for one in told]), assembled([one.last for one in wanted])
    assert all(torch.equal(last[name], expected[name]) for name in expected)


@pytest.mark.parametrize("tied", [True, False])
def test_cut_weights_round_to_bfloat16_where_whole_ones_do(
    tied: bool, job: Callable[..., Path], stage_0: Callable[..., list[Learned]]
) -> None:
    """Embedding, head and norms are not rounded, and gradients of several chunks and rounds are added up in float32."""
    memory = {"loss_chunk_tokens": 128}
    sections: dict[str, Any] = {
        "batch": {"micro_sequences": 2, "sequence_tokens": 128},
        "memory": memory,
        "precision": {"kind": "bf16"},
        "model": {"tied_embeddings": tied},
    }
    told, wanted = run(job(2, parallelism={"zero_stage": 3}, **sections)), run(job(2, **sections))
    assert told[0].losses[0] == wanted[0].losses[0]
    first, expected = assembled([one.first for one in told]), assembled([one.first for one in wanted])
    # Two ranks of two rounds add four numbers in another order, and the norm of all is rounded otherwise. A gradient that
    # is rounded to bfloat16 in between is off by about 2⁻¹⁰.
    assert farthest(first, expected, GRADIENTS) <= 16 * 2.0**-24


def _bytes_held(mesh: Mesh, job_file: Path) -> int:
    """Of all tensors that are there between two steps, beside the rotary tables and what is no matrix."""
    replicate.BUCKET_BYTES = BUCKET_BYTES
    training = start(mesh, job_file)
    one_step(training, 1)
    gc.collect()
    storages: dict[int, int] = {}
    for held in gc.get_objects():
        if isinstance(held, Tensor) and type(held) in (Tensor, torch.nn.Parameter):
            for tensor in (held, held.grad if held.is_leaf else None):
                if tensor is not None and tensor.ndim and tensor.device.type == "cpu":
                    storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    return sum(size for size in storages.values() if size >= 4_096)


@pytest.mark.parametrize("ranks", [2, 4])
def test_what_is_shared_takes_its_part_of_the_memory(ranks: int, job: Callable[..., Path]) -> None:
    model = {"layers": 4, "width": 64, "kv_heads": 4, "feed_forward": 192, "tied_embeddings": False}
    elements = 4 * (4 * 64 * 64 + 3 * 64 * 192) + 2 * 256 * 64
    whole = 4 * elements
    held = {
        stage: on_mesh(
            Degrees(shard=ranks) if stage else Degrees(replicas=ranks),
            _bytes_held,
            job(ranks, model=model, parallelism={"zero_stage": stage}),
        )
        for stage in (0, 1, 2, 3)
    }
    # Weights, gradients and two moments. Owners have a whole tensor more or less than others, of at most 64 KiB;
    # the rotary tables and the tokens of a batch are less than 64 KiB too.
    copies = {0: 4.0, 1: 2 + 2 / ranks, 2: 1 + 3 / ranks, 3: 4 / ranks}
    for stage, expected in copies.items():
        for rank in range(ranks):
            assert abs(held[stage][rank] - expected * whole) <= 4 * 65_536, (stage, held[stage], whole)


def _gradient_bytes(mesh: Mesh, job_file: Path) -> tuple[int, int]:
    """Of gradients, in whatever buffers: the most at one time of a step of several rounds, and those of own weights."""
    replicate.BUCKET_BYTES = BUCKET_BYTES
    training = start(mesh, job_file)
    updater: Any = training.engine.updater
    weights = list(training.engine.model.parameters())
    seen: list[int] = []

    def count(_: Tensor) -> None:
        buckets = updater._shares.gradients._buckets
        held = [bucket.flat for bucket in buckets] + [bucket.share for bucket in buckets]
        held += [weight.grad for weight in weights]
        seen.append(sum(tensor.nbytes for tensor in held if tensor is not None))

    for weight in weights:
        weight.register_post_accumulate_grad_hook(count)
    one_step(training, 1)
    assert len(seen) == len(weights) * 2, "two rounds"
    return max(seen), sum(weight.nbytes for weight in updater._shares.moved.values())


def test_stage_2_holds_its_own_gradients_and_two_buckets(job: Callable[..., Path]) -> None:
    model = {"layers": 8, "width": 64, "kv_heads": 4, "feed_forward": 192, "tied_embeddings": False}
    told = on_mesh(Degrees(shard=4), _gradient_bytes, job(4, model=model, parallelism={"zero_stage": 2}))
    whole = sum(own for _, own in told)
    # A bucket is closed by the tensor that fills it, of at most 64 KiB; the gradient that was made last is still there.
    largest = 65_536
    for most, own in told:
        assert own <= whole / 4 + largest
        assert own < most <= own + 2 * (BUCKET_BYTES + largest) + largest
        assert most < whole / 2


def _with_a_bad_number(mesh: Mesh, job_file: Path, where: str) -> tuple[bool, list[Any]]:
    """Whether the second of three steps, in which one rank computes NaN, leaves everything as it was."""
    training = start(mesh, job_file)
    one_step(training, 1)
    before = _all_held(training)

    def spoil(_: Any, __: Any, features: Tensor) -> Tensor:
        if where == "loss":
            return features * torch.nan
        features.register_hook(lambda gradient: gradient * torch.nan)  # type: ignore[no-untyped-call]
        return features

    if mesh.rank == mesh.ranks - 1:
        planted = training.engine.model.norm.register_forward_hook(spoil)
    bad = one_step(training, 2)
    if mesh.rank == mesh.ranks - 1:
        planted.remove()
    after = _all_held(training)
    unchanged = all(torch.equal(before[name], after[name]) for name in before)
    assert training.engine.updater.position() == {"updates": 1}
    return unchanged, [bad.finite, bad.not_finite, one_step(training, 3).loss]


def _all_held(training: Training) -> dict[str, Tensor]:
    weights = {
        name: (weight.to_local() if isinstance(weight, DTensor) else weight).detach().clone()
        for name, weight in training.engine.model.named_parameters()
    }
    return weights | {name: piece.tensor for name, piece in pieces(training).items()}


@pytest.mark.parametrize("where", ["loss", "gradient"])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_step_that_is_not_finite_leaves_all_untouched_on_every_rank(
    stage: int, where: str, job: Callable[..., Path]
) -> None:
    path = job(4, parallelism={"zero_stage": stage, "shard": 2})
    told = on_mesh(Degrees(replicas=2, shard=2), _with_a_bad_number, path, where)
    assert all(unchanged for unchanged, _ in told)
    (finite, name, next_loss) = told[0][1]
    assert not finite
    assert name == "norm.weight:gradient" if where == "loss" else name.endswith(":gradient")
    assert next_loss == next_loss, "the step after it is finite"
    assert all(rest == told[0][1] for _, rest in told)


LAYOUTS: dict[str, tuple[int, dict[str, Any]]] = {
    "one process": (1, {}),
    "stage 1 over 2": CASES["stage 1 over 2"],
    "stage 2, 2 replicas of 2": CASES["stage 2, 2 replicas of 2"],
    "stage 3, 2 replicas of 2": CASES["stage 3, 2 replicas of 2"],
    "stage 3 over 2": CASES["stage 3 over 2"],
    "stage 0 over 2": (2, {}),
    "stage 2 over 2": CASES["stage 2 over 2"],
}


def _train(mesh: Mesh, job_file: Path) -> dict[str, Piece]:
    training = start(mesh, job_file)
    initial = pieces(training)
    train(training)
    return initial


def test_a_checkpoint_of_any_stage_goes_on_in_any_other(job: Callable[..., Path]) -> None:
    def trained(layout: str, resume: Path | None = None) -> tuple[Path, list[float], dict[str, Tensor]]:
        ranks, parallelism = LAYOUTS[layout]
        path = job(ranks, resume, parallelism=parallelism)
        told = on_mesh(read_job(path).spec.degrees, _train, path)
        return output_folder(path) / "checkpoints" / "step-3", losses(path), assembled(told)

    whole = {layout: trained(layout) for layout in LAYOUTS}
    names = list(LAYOUTS)
    for source, target in zip(names, names[1:] + names[:1], strict=True):
        checkpoint, _, _ = whole[source]
        _, after, begun = trained(target, checkpoint)
        stored = _read(checkpoint)
        assert stored.keys() == begun.keys()
        assert all(torch.equal(stored[name], begun[name]) for name in stored), (source, target)
        # Layouts add the gradients of the same 8 sequences in other orders, each 2⁻²¹ off at most, and so is their norm.
        # What becomes of that in 6 steps is derived in ``complaints``.
        shift = 6 * 2 * LEARNING_RATE / EPSILON * 2.0**-20
        for loss, one in zip(after, whole[target][1][3:], strict=True):
            assert abs(loss - one) <= 2 * shift + 512 * 2.0**-24 * one, (source, target)


def _read(checkpoint: Path) -> dict[str, Tensor]:
    manifest = CheckpointManifest.model_validate_json((checkpoint / "manifest.json").read_bytes())
    return {
        name: read_tensor(checkpoint, manifest, name, entry.shape) for name, entry in manifest.tensors.items()
    }


def _nobody_hands_round() -> None:
    OwnedWeights.hand_round = lambda self: None  # type: ignore[method-assign]


def _one_owner_hands_nothing_round() -> None:
    right = OwnedWeights.__init__

    def wrong(self: Any, *given: Any) -> None:
        right(self, *given)
        self._buffers = [(owner, buffer) for owner, buffer in self._buffers if owner != 1]

    OwnedWeights.__init__ = wrong  # type: ignore[method-assign]


def _a_bucket_stays() -> None:
    right = GradientShares._send

    def wrong(self: Any) -> None:
        if self._sent != 1:
            right(self)
            return
        self._settle(0)
        self._sent += 1

    GradientShares._send = wrong  # type: ignore[method-assign]


def _sums_over_shards_only() -> None:
    right = held_model.share_states

    def wrong(model: Any, parts: Any, mesh: Mesh) -> Any:
        shares.GradientBuckets = lambda weights, *_: GradientBuckets(weights, mesh.shard)  # type: ignore
        return right(model, parts, mesh)

    held_model.share_states = wrong


def _replicas_keep_their_sums() -> None:
    right = GradientShares.send_as_ready

    def wrong(self: Any) -> None:
        right(self)
        self._last = False

    GradientShares.send_as_ready = wrong  # type: ignore[method-assign]


def _only_the_last_round_counts() -> None:
    right = GradientShares.end_round

    def wrong(self: Any) -> None:
        right(self)
        for bucket in self._buckets:
            bucket.share.zero_()

    GradientShares.end_round = wrong  # type: ignore[method-assign]


def _own_norm() -> None:
    sharded.norm_over = lambda axis, norm: norm


def _slices_of_replicas_stay_apart() -> None:
    slices._device_mesh = lambda mesh: DeviceMesh.from_group(mesh.shard.group, "cpu")  # type: ignore


def _slices_are_averaged() -> None:
    FSDPModule.set_gradient_divide_factor = lambda self, factor: None  # type: ignore[method-assign]


def _vectors_stay_apart() -> None:
    class Apart(GradientBuckets):
        def complete(self, weights: Any) -> None:
            self._works = [None] * len(self._flat)  # type: ignore[list-item]

        def wait(self) -> None:
            self._works, self._listening = [], False

    slices.GradientBuckets = Apart  # type: ignore[misc]


def _vectors_are_counted_by_all() -> None:
    right = held_model.share_weights

    def wrong(*given: Any) -> Any:
        found = right(*given)
        return replace(found, spoken_for=frozenset(found.weights))

    held_model.share_weights = wrong


FAULTS: dict[str, tuple[int, dict[str, Any], Callable[[], None]]] = {
    "owners keep the weights they moved": (*CASES["stage 1 over 2"], _nobody_hands_round),
    "one owner keeps the weights it moved": (*CASES["stage 2 over 4"], _one_owner_hands_nothing_round),
    "gradients are summed over shards only": (*CASES["stage 1, 2 replicas of 2"], _sums_over_shards_only),
    "a bucket is left out": (*CASES["stage 2 over 2"], _a_bucket_stays),
    "shares are not summed over replicas": (
        *CASES["stage 2, 2 replicas of 2"],
        _replicas_keep_their_sums,
    ),
    "rounds before the last are lost": (*CASES["stage 2 over 2"], _only_the_last_round_counts),
    "the norm is that of the own share": (*CASES["stage 2 over 2"], _own_norm),
    "slices are not summed over replicas": (
        *CASES["stage 3, 2 replicas of 2"],
        _slices_of_replicas_stay_apart,
    ),
    "slices are averaged": (*CASES["stage 3 over 2"], _slices_are_averaged),
    "vectors are not summed": (*CASES["stage 3 over 2"], _vectors_stay_apart),
    "vectors are counted by every rank": (*CASES["stage 3 over 2"], _vectors_are_counted_by_all),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught(
    fault: str, job: Callable[..., Path], stage_0: Callable[..., list[Learned]]
) -> None:
    ranks, parallelism, _ = FAULTS[fault]
    told = run(job(ranks, parallelism=parallelism), STEPS, fault)
    (wanted,) = stage_0(1)
    try:
        found = complaints(told, wanted)
    except AssertionError as error:  # the parts of the ranks do not make whole tensors
        found = [str(error)]
    assert found


def _left_alone(mesh: Mesh, job_file: Path) -> str:
    """What the first rank is told when the second has left."""
    training = start(mesh, job_file)
    one_step(training, 1)
    if mesh.rank == 1:
        threading.Timer(1.0, os._exit, [0]).start()  # when its answer has been heard
        return "gone"
    with pytest.raises(RankLostError) as raised:
        one_step(training, 2)
    return str(raised.value)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_rank_that_is_left_alone_says_so(stage: int, job: Callable[..., Path]) -> None:
    """Also where torch's own code speaks with the other ranks."""
    told = on_mesh(Degrees(shard=2), _left_alone, job(2, parallelism={"zero_stage": stage}))
    assert told[0].startswith("lost contact with another rank")


def _uneven(mesh: Mesh, job_file: Path) -> list[float]:
    return uneven_losses(start(mesh, job_file))


def uneven_losses(training: Training) -> list[float]:
    """Validation losses of so many sequences that data ranks have unequal numbers of batches, or none."""
    losses = []
    for count in (1, 5):
        mine = np.arange(training.mesh.data.rank, count, training.mesh.data.ranks, dtype=np.uint64)
        losses.append(training.engine.mean_loss(read_batches(training.validation, mine, 2)))
    return losses


def test_ranks_with_fewer_batches_of_validation_keep_no_other_waiting(job: Callable[..., Path]) -> None:
    """Each forward pass gathers weights, so all ranks must make as many."""
    shared = job(2, parallelism={"zero_stage": 3})
    told = on_mesh(read_job(shared).spec.degrees, _uneven, shared)
    alone = job(1)
    ((one, five),) = on_mesh(read_job(alone).spec.degrees, _uneven, alone)
    assert told[0] == told[1] == pytest.approx([one, five], rel=1e-6)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_one_data_rank_shares_nothing(tmp_path: Path, data: Path, stage: int) -> None:
    """At degree 1 the model and what moves its weights are those of a spec without a stage."""
    plain, staged = (
        build_here(write_job(tmp_path / name, data, parallelism=given)).engine
        for name, given in (("plain", {}), ("staged", {"zero_stage": stage}))
    )
    assert type(staged) is type(plain) and type(staged.updater) is type(plain.updater)
    kinds = [[type(module) for module in one.model.modules()] for one in (staged, plain)]
    assert kinds[0] == kinds[1] and not any(issubclass(kind, FSDPModule) for kind in kinds[0])
    assert not any(isinstance(weight, DTensor) for weight in staged.model.parameters())
