"""Row F14: SIGKILL at a random moment of a save. What is left is valid, and another process saves the same step again."""

import os
import random
import shutil
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import pytest
import torch

from tests.faults.rows import FaultRow
from tests.fork_server import FORKED
from trainwright_trainer.checkpoint import rank_files
from trainwright_trainer.checkpoint import save as saving
from trainwright_trainer.checkpoint.load import read_checkpoint, read_stored, verify_files
from trainwright_trainer.checkpoint.save import Origin, SavedCheckpoint, Saver, Writer, replace_folder
from trainwright_trainer.checkpoint.snapshot import Snapshot, StateSlice
from trainwright_trainer.distributed.shard_spec import full_slice
from trainwright_trainer.runtime.errors import CheckpointInvalidError

SEED = 14
STEP_BEFORE, STEP = 10, 20
"""The steps of a complete checkpoint and of the one whose save is killed."""

TENSORS, NUMBERS, FILE_BYTES = 24, 1 << 15, 1 << 19
SAVE_SECONDS = 60
"""A save that takes longer hangs."""

CONTROLS = 50
"""How often the control kills the defective save. Only a kill at the right moment shows the defect."""

ORIGIN = Origin("of-this-test", 1, None)

Commit = Callable[[Path, Path], None]


def copy_folder(draft: Path, final: Path) -> None:
    """The defect of the control: the files get their final names one by one."""
    shutil.copytree(draft, final, dirs_exist_ok=True)


class SavingProcess:
    """A process that saves one checkpoint."""

    def __init__(self, folder: Path, step: int, commit: Commit = replace_folder) -> None:
        self._reports, sender = FORKED.Pipe(duplex=False)
        self._process = FORKED.Process(target=save, args=(folder, step, commit, sender), daemon=True)
        self._process.start()
        sender.close()
        assert self._reported() == 0, "it is ready"
        self._began = time.monotonic()

    def kill(self) -> bool:
        """Send SIGKILL; returns whether the checkpoint was reported as complete before."""
        self._process.kill()
        self._process.join()
        return self._reported() is not None

    def finish(self) -> float:
        """Wait for the end of the save; returns its seconds."""
        reported, seconds = self._reported(), time.monotonic() - self._began
        self._process.join(SAVE_SECONDS)
        assert reported and self._process.exitcode == 0, "the save failed"
        return seconds

    def _reported(self) -> int | None:
        """The next report of the process; None if it ended without one."""
        assert self._reports.poll(SAVE_SECONDS), "the save hangs"
        try:
            step: int = self._reports.recv()
        except EOFError:
            return None
        return step


def save(folder: Path, step: int, commit: Commit, reports: Connection) -> None:
    """Save ``step`` as a training does."""
    torch.set_num_threads(1)
    patch = pytest.MonkeyPatch()
    patch.setattr(rank_files, "FILE_BYTES", FILE_BYTES)
    patch.setattr(saving, "replace_folder", commit)

    def report(saved: SavedCheckpoint) -> None:
        reports.send(saved.step)

    writer = Writer(rank=0, on_node=range(1), nonce=os.urandom(6).hex())
    saver, taken = Saver(folder, ORIGIN, writer, report), snapshot(step)
    reports.send(0)
    saver.save(lambda: taken)
    saver.wait()


def snapshot(step: int) -> Snapshot:
    drawn = torch.Generator().manual_seed(step)
    tensors = {f"model.{n}": torch.randn(NUMBERS, generator=drawn) for n in range(TENSORS)}
    slices = [StateSlice(name, (NUMBERS,), (0,), tensor, None) for name, tensor in tensors.items()]
    return Snapshot(step, slices, {"step": step})


def check_loads(folder: Path, step: int) -> None:
    """The checkpoint of ``step`` is valid, and has what was saved."""
    checkpoint = folder / f"step-{step}"
    try:
        manifest = read_checkpoint(checkpoint, ORIGIN.config_digest, None)
        verify_files(checkpoint, manifest.files)
    except CheckpointInvalidError as error:
        raise AssertionError(str(error)) from error
    saved = snapshot(step)
    assert manifest.state == saved.state
    assert manifest.tensors.keys() == {stored.name for stored in saved.slices}
    for stored in saved.slices:
        found = read_stored(checkpoint, manifest, stored.name, full_slice(stored.full_shape))
        assert torch.equal(found, stored.tensor), stored.name


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a complete checkpoint."""
    folder = tmp_path_factory.mktemp("before") / "checkpoints"
    SavingProcess(folder, STEP_BEFORE).finish()
    return folder


@pytest.mark.fault_row(name="F14", trials=100, long=2_000)
def test_a_killed_save_leaves_valid_checkpoints_and_can_be_repeated(
    row: FaultRow, before: Path, tmp_path: Path
) -> None:
    print(f"seed {SEED}")
    choose = random.Random(SEED)
    seconds, incomplete = save_seconds(tmp_path, replace_folder), 0
    for number in range(row.count):
        moment = choose.uniform(0, seconds)
        with row.trial(f"trial {number}, {moment:.3f} s"), TemporaryDirectory(dir=tmp_path) as folder:
            checkpoints = Path(folder) / "checkpoints"
            is_reported = killed_save(checkpoints, before, moment, replace_folder)
            killed = time.monotonic()
            incomplete += not (checkpoints / f"step-{STEP}").exists()
            check_nothing_is_lost(checkpoints, is_reported)
            row.recovered(killed)
    assert incomplete >= row.count // 2, "too few saves were killed before their end"
    seconds = save_seconds(tmp_path, copy_folder)
    with row.control():
        for _ in range(CONTROLS):
            with TemporaryDirectory(dir=tmp_path) as folder:
                checkpoints = Path(folder) / "checkpoints"
                is_reported = killed_save(checkpoints, before, choose.uniform(0, seconds), copy_folder)
                check_nothing_is_lost(checkpoints, is_reported)


def save_seconds(folder: Path, commit: Commit) -> float:
    """The median duration of a save that is not killed."""
    saves = [SavingProcess(folder / f"{commit.__name__}-{turn}", STEP, commit).finish() for turn in range(5)]
    return median(saves)


def killed_save(folder: Path, before: Path, moment: float, commit: Commit) -> bool:
    """Kill a save after ``moment`` seconds; returns whether it was reported as complete."""
    shutil.copytree(before, folder, copy_function=os.link)
    process = SavingProcess(folder, STEP, commit)
    time.sleep(moment)
    return process.kill()


def check_nothing_is_lost(folder: Path, is_reported: bool) -> None:
    """The checkpoint before is valid, the killed one too if its folder exists, and it can be saved again."""
    check_loads(folder, STEP_BEFORE)
    exists = (folder / f"step-{STEP}").exists()
    assert exists or not is_reported, "a checkpoint was reported, and is not there"
    if exists:
        check_loads(folder, STEP)
    SavingProcess(folder, STEP).finish()
    check_loads(folder, STEP)
