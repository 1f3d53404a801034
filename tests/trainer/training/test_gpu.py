"""What differs on a GPU: the fused optimizer's state, timing by CUDA events, memory, and device numbers."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.jobs import (
    build_here,
    events,
    losses,
    read_out,
    resume_from,
    run_trainer,
    train_here,
    write_job,
)
from trainwright.contracts.checkpoint import CheckpointManifest
from trainwright_trainer.checkpoint import host_memory
from trainwright_trainer.checkpoint.load import read_stored
from trainwright_trainer.checkpoint.snapshot import Snapshot, take_snapshot
from trainwright_trainer.data.loader import Batch
from trainwright_trainer.distributed.mesh import join_mesh
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.training import loop

pytestmark = pytest.mark.usefixtures("cuda")

GPU = "cuda:0"
ON_GPU: dict[str, Any] = {"device": "cuda"}


@pytest.mark.slow(target="layouts")
def test_all_gpus_train_in_bf16(tmp_path: Path, data: Path) -> None:
    ranks = torch.cuda.device_count()
    batch = {"global_sequences": 8 * ranks}
    job_file = write_job(tmp_path, data, ranks, ON_GPU, precision={"kind": "bf16"}, batch=batch)
    assert run_trainer("train", job_file) == 0
    assert losses(job_file)[-1] < losses(job_file)[0]
    assert run_trainer("export", job_file) == 0


@pytest.mark.slow(target="layouts")
def test_a_resumed_run_has_its_full_state_on_the_gpu_and_continues(tmp_path: Path, data: Path) -> None:
    """The state is equal to the bit. Losses are not, where a kernel sums in any order:
    see ``test_launcher`` for 3e-5."""
    straight = write_job(tmp_path / "straight", data, job=ON_GPU)
    train_here(straight, GPU)
    checkpoint = tmp_path / "straight/out/checkpoints/step-10"
    resumed = write_job(
        tmp_path / "resumed", data, job=ON_GPU | resume_from(checkpoint, tmp_path / "resumed")
    )

    updater = build_here(resumed, GPU).engine.updater
    manifest = CheckpointManifest.model_validate_json((checkpoint / "manifest.json").read_bytes())
    for held in updater.state():
        assert held.tensor.device.type == "cuda"
        stored = read_stored(checkpoint, manifest, held.name, held.box)
        assert torch.equal(held.tensor.cpu(), stored), held.name
    for state in updater.optimizer.state.values():
        assert (state["step"].device.type, state["step"].item()) == ("cuda", 10.0)

    train_here(resumed, GPU)
    assert losses(resumed) == pytest.approx(losses(straight)[10:], abs=3e-5)


@pytest.mark.slow(target="layouts")
def test_the_memory_of_snapshots_is_pinned_before_the_first_one(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned: list[int] = []
    reserved: list[list[int]] = []
    pin = host_memory.pin_memory

    def counted(block: torch.Tensor) -> Callable[[], None]:
        pinned.append(block.nbytes)
        return pin(block)

    def take(*arguments: Any) -> Snapshot:
        reserved.append(list(pinned))
        return take_snapshot(*arguments)

    monkeypatch.setattr(host_memory, "pin_memory", counted)
    monkeypatch.setattr(loop, "take_snapshot", take)
    train_here(write_job(tmp_path, data, job=ON_GPU), GPU)
    assert len(reserved) > 1
    assert len(pinned) == 1, "later snapshots reuse the memory of the first"
    assert reserved[0] == pinned


def test_weights_are_initialized_on_the_gpu_with_the_values_of_the_cpu(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cpu = build_here(write_job(tmp_path / "cpu", data)).engine.model
    monkeypatch.setattr(Transformer, "to", lambda model, device: model)  # none is moved there
    on_gpu = build_here(write_job(tmp_path / "gpu", data, job=ON_GPU), GPU).engine.model
    made = dict(on_gpu.named_parameters())
    assert {weight.device.type for weight in made.values()} == {"cuda"}
    assert on_gpu.head.weight is on_gpu.embedding.weight  # tied
    assert all(torch.equal(made[name].cpu(), weight) for name, weight in on_cpu.named_parameters())


@pytest.mark.slow(target="layouts")
def test_phases_sum_to_the_step_and_mfu_is_reported(tmp_path: Path, data: Path) -> None:
    peak = {"flops_per_second": 1e15, "dtype": "bf16", "device": "a GPU", "measured": False}
    job_file = write_job(tmp_path, data, job=ON_GPU | {"peak": peak}, precision={"kind": "bf16"})
    train_here(job_file, GPU)
    for values in (line["values"] for line in events(job_file, "step")):
        timings = [values[f"{name}_seconds"] for name in ("data", "forward", "backward", "optimizer")]
        assert all(seconds > 0 for seconds in timings)
        waiting = values["collectives_seconds"] + values["other_seconds"]
        assert sum(timings) + waiting == pytest.approx(values["seconds"])
        assert 0 < values["mfu"] < 1
        assert values["memory_bytes"] > 0


@pytest.mark.slow(target="layouts")
def test_a_batch_that_is_too_large_is_out_of_memory(tmp_path: Path, data: Path) -> None:
    """20,000 sequences of 1,024 positions and 1,024 features are 84 GB per tensor;
    a layer saves more than ten."""
    sizes = {"sequence_tokens": 1_024, "micro_sequences": 20_000, "global_sequences": 20_000}
    job_file = write_job(tmp_path, data, job=ON_GPU, batch=sizes, model={"width": 1_024, "heads": 8})
    assert run_trainer("train", job_file) == 1
    failure = read_out(job_file, "failure-0.json")
    assert (failure["code"], failure["step"]) == ("out_of_memory", 0)


@pytest.fixture
def no_waiting() -> Iterator[None]:
    """Make everything that waits for the GPU raise."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


def test_a_batch_is_copied_once_without_waiting(no_waiting: None) -> None:
    batch = Batch(torch.arange(4 * 33).view(4, 33))
    there = batch.to(torch.device("cuda"))
    with pytest.raises(RuntimeError, match="synchroniz"):
        batch.tokens.to("cuda")  # the control: copying from pageable memory waits
    torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(there.tokens.cpu(), batch.tokens)
    assert torch.equal(there.targets.cpu(), batch.targets)
    assert there.tokens.untyped_storage().data_ptr() == there.targets.untyped_storage().data_ptr()


def test_a_slot_is_the_gpu_with_its_number(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    mesh = join_mesh(read_job(write_job(tmp_path, data, job=ON_GPU | {"slots": [1]})))
    assert mesh.device == torch.device("cuda", 1)
    assert torch.cuda.current_device() == 1
    torch.cuda.set_device(0)
