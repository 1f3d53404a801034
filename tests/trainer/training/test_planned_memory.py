"""The planner's bytes compared with those of real tensors."""

import gc
from itertools import accumulate
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from tests.trainer.jobs import TINY, write_job
from tests.trainer.ranks import on_mesh
from trainwright.contracts.job_spec import output_folder
from trainwright.contracts.layout_rules import configured_stages
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.precision_spec import FP8Level, FP8Spec, PrecisionKind
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.training_spec import MemorySpec, RecomputeKind
from trainwright.planner.activations import BlockMode, activation_bytes, cast_bytes_per_weight
from trainwright.planner.memory import RankMemory, rank_memory, score_bytes
from trainwright_trainer.checkpoint.snapshot import take_snapshot
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.fp8.compute.conversion import convert
from trainwright_trainer.model.recompute import recompute
from trainwright_trainer.model.residual_dtype import set_residual_dtype
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.observe.step_timer import StepTimer
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.training.build import Training, build

MODELS = {
    "grouped": ModelSpec(layers=2, width=128, heads=4, kv_heads=2, feed_forward=320),
    "wide heads": ModelSpec(layers=2, width=64, heads=4, head_size=32, feed_forward=256),
    "filtered": ModelSpec(
        layers=2, width=64, heads=4, kv_heads=2, feed_forward=160, attention="localized_filtering"
    ),
    "capped": ModelSpec(
        layers=2, width=128, heads=4, kv_heads=2, feed_forward=320, attn_logit_softcapping=50.0
    ),
    "narrow gate": ModelSpec(layers=2, width=256, heads=4, feed_forward=192),
    "parallel block": ModelSpec(layers=2, width=128, heads=4, kv_heads=2, feed_forward=320, block="parallel"),
    "GPT": ModelSpec(layers=2, width=128, heads=4, activation="gelu", norm="layer", biases="all"),
    "norms of heads": ModelSpec(layers=2, width=128, heads=4, kv_heads=2, feed_forward=192, qk_norm=True),
    "norms after parts": ModelSpec(layers=2, width=128, heads=4, feed_forward=192, post_norms=True),
    "partly rotated heads": ModelSpec(layers=2, width=128, heads=4, partial_rotary_factor=0.5),
}
SEQUENCES, LENGTH = 4, 64
_WITHIN = 0.15
"""Rotary tables, random states and a few scalars are measured but not planned."""


class Storages:
    """Counts the memory behind tensors, each storage once."""

    def __init__(self, known: list[Tensor]) -> None:
        self._known = {tensor.untyped_storage().data_ptr() for tensor in known}
        self._kept: dict[int, torch.UntypedStorage] = {}

    def keep(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._known:
            self._kept[storage.data_ptr()] = storage
        return tensor

    @property
    def bytes(self) -> int:
        return sum(storage.nbytes() for storage in self._kept.values())


KINDS = [kind for kind in PrecisionKind if kind is not PrecisionKind.AUTO]


def block_of(model: ModelSpec, kind: PrecisionKind) -> Transformer:
    torch.manual_seed(0)
    built = Transformer(model, 257, LENGTH)
    if kind is PrecisionKind.BF16:
        set_residual_dtype(built, torch.bfloat16)
    if kind is PrecisionKind.FP8:
        weights = {name: weight.detach().half() for name, weight in built.named_parameters()}
        one_input = model.block == "parallel"
        converted = convert(built, FP8Spec(), torch.device("cpu"), one_input=one_input)
        for name, weight in converted.weights.items():
            weight.attach(weights[name], torch.ones(()), torch.ones(()))
    return built


def measured_bytes(built: Transformer, kind: PrecisionKind) -> int:
    """Bytes that autograd saves in the first block's forward pass."""
    dtype = torch.float32 if kind is PrecisionKind.FP32 else torch.bfloat16
    x = torch.randn(SEQUENCES, LENGTH, built.layers["0"].attention.query.weight.shape[1], dtype=dtype)
    tables = built.tables(LENGTH, dtype)
    known = [
        *built.parameters(),
        *built.buffers(),
        *(table for table in tables if isinstance(table, torch.Tensor)),
    ]
    storages = Storages(known)
    with (
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind is PrecisionKind.BF16),
        torch.autograd.graph.saved_tensors_hooks(storages.keep, lambda tensor: tensor),
    ):
        built.layers["0"](x.requires_grad_(), tables)
    return storages.bytes


def planned_bytes(built: nn.Module, model: ModelSpec, mode: BlockMode) -> float:
    tokens = SEQUENCES * LENGTH
    matrices = model.width * (2 * model.heads + 2 * model.key_value_heads) * model.features_per_head
    matrices += (3 if model.is_gated else 2) * model.width * model.feed_forward_width
    activations = tokens * activation_bytes(model, mode).total + cast_bytes_per_weight(mode) * matrices
    batch = {"sequence_tokens": LENGTH, "micro_sequences": SEQUENCES, "global_sequences": SEQUENCES}
    sections = {
        "model": model,
        "precision": {"kind": mode.precision},
        "batch": batch,
        "resources": {"device": "cpu"},
    }
    return activations + score_bytes(RunSpec.model_validate(TINY | sections))


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_block_saves_the_planned_bytes(kind: PrecisionKind, model: str) -> None:
    built = block_of(MODELS[model], kind)
    assert measured_bytes(built, kind) == pytest.approx(
        planned_bytes(built, MODELS[model], BlockMode(kind)), rel=_WITHIN
    )


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("kind", [PrecisionKind.BF16, PrecisionKind.FP8])
def test_a_compiled_block_saves_the_planned_bytes(kind: PrecisionKind) -> None:
    model = MODELS["grouped"]
    built = block_of(model, kind)
    built.layers["0"].compile(fullgraph=True, dynamic=False)
    assert measured_bytes(built, kind) == pytest.approx(
        planned_bytes(built, model, BlockMode(kind, compiled=True)), rel=_WITHIN
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_recomputed_block_saves_its_input(kind: PrecisionKind) -> None:
    model = MODELS["grouped"]
    built = block_of(model, kind)
    recompute(built, MemorySpec(recompute=RecomputeKind.FULL))
    mode = BlockMode(kind, recompute=RecomputeKind.FULL)
    assert measured_bytes(built, kind) == pytest.approx(planned_bytes(built, model, mode), rel=_WITHIN)


HELD = {
    "one rank": (1, {}, {}),
    "zero 1": (2, {"zero_stage": 1}, {}),
    "zero 2": (2, {"zero_stage": 2}, {}),
    "zero 3": (2, {"zero_stage": 3}, {}),
    "tensor": (2, {"tensor": 2}, {}),
    "zbv, uneven, tied": (2, {"pipeline": 2, "schedule": "zbv", "stages": (1, 1, 2, 1)}, {}),
    "zero 3, Muon": (2, {"zero_stage": 3}, {}),
    "zero 1, Muon": (2, {"zero_stage": 1}, {}),
    "O1": (1, {}, {"kind": "fp8", "fp8": {"level": "O1"}}),
    "O2 by blocks": (1, {}, {"kind": "fp8", "fp8": {"level": "O2", "moments": "block"}}),
    "O3": (2, {}, {"kind": "fp8", "fp8": {"level": "O3"}}),
}
"""Ranks, and the sections ``parallelism`` and ``precision``."""

_SMALL = 0.04
"""One number per tensor or row besides the large ones:
update counts, scales, position tables, row padding."""


def job_of(folder: Path, shards: Path, layout: str) -> Path:
    ranks, parallelism, precision = HELD[layout]
    return write_job(
        folder,
        shards,
        ranks,
        model={"layers": 5, "width": 128, "heads": 4, "kv_heads": 4, "tied_embeddings": True},
        batch={"sequence_tokens": 16, "micro_sequences": 1, "global_sequences": 8},
        parallelism=parallelism,
        precision={"kind": "fp32"} | precision,
        optimizer={"kind": "muon" if "Muon" in layout else "adamw"},
    )


def held_bytes(mesh: Mesh, job_file: Path) -> tuple[int, int]:
    """Bytes that persist on this rank after a step: weights, gradients and optimizer state. And those of a snapshot."""
    training = build(read_job(job_file), job_file, mesh)
    training.engine.step(training.loader.micro_batches(1), 1e-3, StepTimer(mesh.device))
    held = _live_bytes()
    training.saver.save(lambda: take_snapshot(training.engine.updater, {"step": 1}, training.saver.memory))
    training.saver.wait()
    return held, _live_bytes() - held


def _live_bytes() -> int:
    """Bytes of all tensors in this process."""
    gc.collect()
    storages = Storages([])
    for candidate in gc.get_objects():
        for tensor in (
            (candidate, getattr(candidate, "grad", None))
            if isinstance(candidate, nn.Parameter)
            else (candidate,)
        ):
            if isinstance(tensor, Tensor) and tensor.device.type == "cpu":
                storages.keep(tensor.to_local() if isinstance(tensor, DTensor) else tensor)
    return storages.bytes


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("layout", HELD)
def test_a_rank_holds_the_planned_bytes(tmp_path: Path, data: Path, layout: str) -> None:
    job_file = job_of(tmp_path / "job", data, layout)
    output_folder(job_file).mkdir()
    spec = read_job(job_file).spec
    layers = configured_stages(spec.model, spec.parallelism)
    assert layers is not None
    snapshots: dict[int, int] = {}
    for rank, (measured, snapshot) in enumerate(on_mesh(spec.degrees, held_bytes, job_file)):
        stage = spec.degrees.coordinates(rank).pipeline
        planned = rank_memory(spec, layers, stage)
        assert measured == pytest.approx(_lasting(spec, planned), rel=_SMALL), f"rank {rank}"
        snapshots[stage] = max(snapshot, snapshots.get(stage, 0))
    for stage, snapshot in snapshots.items():
        planned = rank_memory(spec, layers, stage)
        assert snapshot == pytest.approx(planned.snapshot, rel=_SMALL), f"pipeline rank {stage}"


def _lasting(spec: RunSpec, planned: RankMemory) -> float:
    """The part of a plan that persists after a step, without the buffers for communication during it."""
    held = planned.weights + planned.optimizer
    if spec.precision.fp8 is not None:
        bytes_of_moments = {FP8Level.O1: 8.0, FP8Level.O2: 2 + 1 / 16, FP8Level.O3: 3.0}
        return held + planned.copies + planned.optimizer / bytes_of_moments[spec.precision.fp8.level]
    gradients = planned.gradients if spec.parallelism.zero_stage != 2 else planned.optimizer / 2
    return held + gradients


DEEPSPEED = {
    "zero 0": (2, {}),
    "zero 1": (2, {"zero_stage": 1}),
    "zero 2": (2, {"zero_stage": 2}),
    "zero 3": (2, {"zero_stage": 3}),
    "zero 3, one rank": (1, {"zero_stage": 3}),
    "zero 2, states on the host": (2, {"zero_stage": 2, "offload": "optimizer"}),
    "zero 3, weights on the host": (2, {"zero_stage": 3, "offload": "parameters"}),
}
_BUCKET = 4 * 500_000_000
"""DeepSpeed's bucket, which a small model does not use. It is subtracted to see the other memory."""


def peak_bytes(mesh: Mesh, job_file: Path) -> int:
    """Peak bytes during a step: persistent memory plus, from the allocator's record, temporary memory.

    Takes the minimum over three steps: a gloo thread may free what it sent a moment after the next buffer is
    allocated.
    """
    training = build(read_job(job_file), job_file, mesh)
    training.engine.step(training.loader.micro_batches(1), 1e-3, StepTimer(mesh.device))
    return _live_bytes() + min(_temporary_bytes(training, step, mesh) for step in (2, 3, 4))


def _temporary_bytes(training: Training, step: int, mesh: Mesh) -> int:
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as seen:
        training.engine.step(training.loader.micro_batches(step), 1e-3, StepTimer(mesh.device))
    assert seen.profiler is not None and seen.profiler.kineto_results is not None
    record = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    return max(accumulate(event.nbytes() for event in sorted(record, key=lambda event: event.start_ns())))


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("layout", DEEPSPEED)
def test_deepspeed_takes_the_planned_bytes(tmp_path: Path, data: Path, layout: str) -> None:
    ranks, parallelism = DEEPSPEED[layout]
    job_file = write_job(
        tmp_path / "job",
        data,
        ranks,
        model={"layers": 5, "width": 512, "heads": 4, "tied_embeddings": True},
        batch={"sequence_tokens": 16, "micro_sequences": 1, "global_sequences": 8},
        parallelism={"engine": "deepspeed"} | parallelism,
        precision={"kind": "fp32"},
    )
    output_folder(job_file).mkdir()
    spec = read_job(job_file).spec
    planned = rank_memory(spec, [5], 0)
    bucket = _BUCKET if spec.parallelism.zero_stage else 0
    for measured in on_mesh(spec.degrees, peak_bytes, job_file):
        in_step = planned.total + planned.host - planned.snapshot
        assert measured - bucket == pytest.approx(in_step - bucket, rel=_SMALL)
