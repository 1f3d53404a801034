"""Several ranks write one checkpoint in any number format:
one process can read all of it, or it does not exist."""

import os
import threading
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from tests.fork_server import FORKED
from tests.trainer.ranks import on_ranks
from trainwright.contracts.checkpoint import CheckpointManifest, TensorEntry
from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer.checkpoint import rank_files
from trainwright_trainer.checkpoint.load import read_checkpoint, read_stored, read_tensor, verify_files
from trainwright_trainer.checkpoint.save import (
    Origin,
    SavedCheckpoint,
    Saver,
    Writer,
    join_writers,
    save_checkpoint,
)
from trainwright_trainer.checkpoint.snapshot import Snapshot, StateSlice
from trainwright_trainer.distributed.axis import RankLostError
from trainwright_trainer.distributed.mesh import Mesh, make_mesh
from trainwright_trainer.distributed.process_group import CPU_BACKEND
from trainwright_trainer.distributed.shard_spec import full_slice
from trainwright_trainer.runtime.errors import CheckpointInvalidError

ORIGIN = Origin("of-this-test", 2, None)
E4M3 = torch.float8_e4m3fn


def _states() -> dict[str, tuple[Tensor, str | None]]:
    """Tensors in all formats that a state may be stored in, and the names of their scales."""
    drawn = torch.Generator().manual_seed(0)
    rows = torch.randn(3, 100, generator=drawn)
    return {
        "model.master": ((torch.randn(7, 5, generator=drawn) * 900).half(), "model.master.scale"),
        "model.master.scale": (torch.tensor(2.0**-9), None),
        "model.norm": (torch.randn(5, generator=drawn), None),
        "moment.every_code": (torch.arange(256, dtype=torch.uint8).view(E4M3).view(16, 16), "moment.s"),
        "moment.s": (torch.tensor(2.0**-30), None),
        "moment.by_block": (rows.to(E4M3), "moment.by_block.scale"),
        "moment.by_block.scale": (torch.tensor([2.0**-3, 1.0, 2.0**20]), None),
        "count": (torch.tensor(7), None),
        "counts": (torch.tensor([3, 4], dtype=torch.int32), None),
    }


def _pieces(names: list[str]) -> list[StateSlice]:
    states = _states()
    return [_whole(name, *states[name]) for name in names]


def _whole(name: str, tensor: Tensor, scale: str | None) -> StateSlice:
    return StateSlice(name, tuple(tensor.shape), (0,) * tensor.ndim, tensor, scale)


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _read(folder: Path) -> CheckpointManifest:
    manifest = read_checkpoint(folder, ORIGIN.config_digest, None)
    verify_files(folder, manifest.files)
    return manifest


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A checkpoint written by one rank."""
    snapshot = Snapshot(3, _pieces(list(_states())), {"step": 3})
    saved = save_checkpoint(
        tmp_path, snapshot, ORIGIN, Writer(rank=0, on_node=range(1), nonce="of-this-test")
    )
    assert saved
    return saved.folder


def test_every_format_is_read_back_bit_for_bit(written: Path) -> None:
    """This includes all 256 codes of E4M3, with NaN and both zeros."""
    manifest = _read(written)
    for name, (tensor, scale) in _states().items():
        stored = read_stored(written, manifest, name, full_slice(tensor.shape))
        assert stored.dtype == tensor.dtype
        assert torch.equal(_bits(stored), _bits(tensor)), name
        assert manifest.tensors[name].scale == scale


def test_real_numbers_are_codes_times_their_scale(written: Path) -> None:
    manifest = _read(written)

    def real(name: str) -> Tensor:
        found = read_tensor(written, manifest, name, manifest.tensors[name].shape)
        assert found.dtype == torch.float32
        return found

    states = {name: tensor for name, (tensor, _) in _states().items()}
    assert torch.equal(real("model.norm"), states["model.norm"])
    assert torch.equal(real("model.master"), states["model.master"].float() / 512)
    every_code = states["moment.every_code"].float() * 2.0**-30
    assert torch.equal(real("moment.every_code").nan_to_num(9.0), every_code.nan_to_num(9.0))
    by_block = states["moment.by_block"].float().flatten()
    by_block[:128] /= 8
    by_block[256:] *= 2.0**20
    assert torch.equal(real("moment.by_block"), by_block.view(3, 100))


@pytest.mark.parametrize(
    ("name", "change", "word"),
    [
        ("moment.every_code", {"scale": "moment.gone"}, "moment.gone is missing"),
        ("moment.every_code", {"scale": "moment.by_block.scale"}, "does not fit moment.every_code"),
        ("moment.every_code", {"dtype": "float32"}, "not what the manifest says"),
        ("moment.every_code", {"dtype": "float8"}, "stored as float8, which is unknown"),
    ],
)
def test_a_tensor_that_differs_from_its_manifest_entry_is_refused(
    written: Path, name: str, change: dict[str, str], word: str
) -> None:
    manifest = _read(written)
    entry: TensorEntry = manifest.tensors[name].model_copy(update=change)
    changed = manifest.model_copy(update={"tensors": manifest.tensors | {name: entry}})
    with pytest.raises(CheckpointInvalidError, match=word):
        read_tensor(written, changed, name, entry.shape)


def _write_a_half(mesh: Mesh, folder: Path) -> list[int]:
    """Write every other tensor and one half of a sharded tensor in two steps, each rank as fast as it can."""
    saved: list[int] = []
    saver = Saver(folder, ORIGIN, join_writers(mesh), lambda complete: saved.append(complete.step))
    for step in (1, 2):
        cut = torch.arange(4.0).view(2, 2)[mesh.rank : mesh.rank + 1] + step
        pieces = [
            *_pieces(list(_states())[mesh.rank :: 2]),
            StateSlice("cut", (2, 2), (mesh.rank, 0), cut, None),
        ]
        saver.save(lambda step=step, pieces=pieces: Snapshot(step, pieces, {"step": step}))
    saver.wait()
    mesh.world.barrier()
    assert (folder / "step-2/manifest.json").exists()
    return saved


def test_two_ranks_write_one_checkpoint_that_one_rank_reads(tmp_path: Path) -> None:
    assert on_ranks(2, _write_a_half, tmp_path) == [[1, 2], []], "only rank 0 reports, once per checkpoint"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-1", "step-2"]
    for step in (1, 2):
        folder = tmp_path / f"step-{step}"
        manifest = _read(folder)
        assert {path.name for path in folder.iterdir()} == {
            "manifest.json",
            *(f.name for f in manifest.files),
        }
        assert {entry.name.split("-")[1] for entry in manifest.files} == {"0", "1"}
        for name, (tensor, _) in _states().items():
            assert torch.equal(
                _bits(read_stored(folder, manifest, name, full_slice(tensor.shape))), _bits(tensor)
            ), name
        cut = read_stored(folder, manifest, "cut", full_slice((2, 2)))
        assert torch.equal(cut, torch.arange(4.0).view(2, 2) + step)


def _write_all_on_rank_0(mesh: Mesh, folder: Path) -> None:
    saver = Saver(folder, ORIGIN, join_writers(mesh), lambda complete: None)
    pieces = _pieces(list(_states())) if mesh.rank == 0 else []
    saver.save(lambda: Snapshot(1, pieces, {"step": 1}))
    saver.wait()


def test_a_rank_without_tensors_to_write_creates_no_file(tmp_path: Path) -> None:
    on_ranks(2, _write_all_on_rank_0, tmp_path)
    assert [entry.name for entry in _read(tmp_path / "step-1").files] == ["tensors-0-00000.safetensors"]


def test_a_save_ends_when_all_ranks_have_written(tmp_path: Path) -> None:
    """So no rank starts a second draft next to the first,
    and none exits while its part may still be missing."""
    writers = [Writer(rank, range(2), "of-this-test") for rank in (0, 1)]
    saved: list[SavedCheckpoint] = []
    first, second = (Saver(tmp_path, ORIGIN, writer, saved.append) for writer in writers)
    names = list(_states())
    second.save(lambda: Snapshot(1, _pieces(names[1:]), {"step": 1}))
    listed = tmp_path / "step-1.tmp-of-this-test/rank-1.json"
    deadline = time.monotonic() + 30
    while not listed.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    waiting = threading.Thread(target=second.wait, daemon=True)
    waiting.start()
    waiting.join(timeout=0.3)
    assert waiting.is_alive(), "the first rank has not written"
    first.save(lambda: Snapshot(1, _pieces(names[:1]), {"step": 1}))
    waiting.join(timeout=30)
    assert not waiting.is_alive()
    first.wait()
    assert [complete.folder for complete in saved] == [tmp_path / "step-1"]
    assert set(_read(tmp_path / "step-1").tensors) == set(names)


def _die_once_the_other_manifest_exists(draft: Path, rank: int, part: rank_files.RankManifest) -> None:
    while not (draft / "rank-0.json").exists():
        time.sleep(0.01)
    os._exit(0)


def _die_before_writing_the_manifest(rank: int, store: str, folder: Path) -> None:
    """Rank 1's files are on disk when it dies. Rank 0 detects its loss and exits normally."""
    dist.init_process_group(CPU_BACKEND, init_method=f"file://{store}", rank=rank, world_size=2)
    mesh = make_mesh(rank, Degrees(replicas=2), torch.device("cpu"))
    if rank == 1:
        rank_files.write_rank_manifest = _die_once_the_other_manifest_exists  # the moment of the death
    saver = Saver(folder, ORIGIN, join_writers(mesh), lambda complete: None)
    saver.save(lambda: Snapshot(1, _pieces(list(_states())[rank::2]), {"step": 1}))
    try:
        while True:
            mesh.world.barrier()
    except RankLostError:
        pass


def test_a_writer_that_is_killed_leaves_no_checkpoint_and_no_process(tmp_path: Path) -> None:
    folder, store = tmp_path / "checkpoints", str(tmp_path / "store")
    ranks = [
        FORKED.Process(target=_die_before_writing_the_manifest, args=(rank, store, folder)) for rank in (0, 1)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(timeout=60)
    ends = [process.exitcode for process in ranks]
    for process in ranks:
        process.kill()
    assert ends == [0, 0], (
        "rank 0's thread waits for a manifest that never comes, and must not keep the process alive"
    )
    (draft,) = folder.iterdir()
    assert draft.name.startswith("step-1.tmp-")
    left = {"rank-0.json", "tensors-0-00000.safetensors", "tensors-1-00000.safetensors"}
    assert {path.name for path in draft.iterdir()} == left
