"""Row F12: a checkpoint that is damaged in a random place is refused before the first step, and the one before is used."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from torch import Tensor

from tests.faults.rows import FaultRow
from tests.trainer.jobs import build_here, events, resume_from, train_here, write_job
from trainwright.contracts.checkpoint import CheckpointManifest
from trainwright_trainer.checkpoint import load, rank_files
from trainwright_trainer.runtime.errors import CheckpointInvalidError
from trainwright_trainer.training.build import Training

SEED = 12
STEPS = (20, 10)
"""The saved steps, newest first. The newest is damaged."""

Damage = Callable[[Path, random.Random], None]


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``out/checkpoints`` of a run that saved at both steps, its tensors spread over several files."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank_files, "FILE_BYTES", 50_000)
        train_here(write_job(folder, data))
    return folder / "out/checkpoints"


def flip_a_bit(folder: Path, choose: random.Random) -> None:
    path = choose.choice(sorted(folder.iterdir()))
    content = bytearray(path.read_bytes())
    content[choose.randrange(len(content))] ^= 1 << choose.randrange(8)
    path.write_bytes(content)


def truncate(folder: Path, choose: random.Random) -> None:
    path = choose.choice(sorted(folder.iterdir()))
    content = path.read_bytes()
    path.write_bytes(content[: choose.randrange(len(content))])


def remove(folder: Path, choose: random.Random) -> None:
    choose.choice(sorted(folder.iterdir())).unlink()


def swap_two_shards(folder: Path, choose: random.Random) -> None:
    first, second = two_shards(folder, choose)
    held = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(held)


def duplicate_a_shard(folder: Path, choose: random.Random) -> None:
    first, second = two_shards(folder, choose)
    shutil.copy(first, second)


def two_shards(folder: Path, choose: random.Random) -> list[Path]:
    return choose.sample(sorted(folder.glob("*.safetensors")), 2)


def use_the_older_manifest(folder: Path, choose: random.Random) -> None:
    shutil.copy(folder.parent / f"step-{STEPS[-1]}" / "manifest.json", folder / "manifest.json")


def use_another_configuration(folder: Path, choose: random.Random) -> None:
    path = folder / "manifest.json"
    manifest = CheckpointManifest.model_validate_json(path.read_bytes())
    other = manifest.model_copy(update={"config_digest": f"{choose.getrandbits(256):064x}"})
    path.write_bytes(other.to_bytes())


def flip_the_last_bit(folder: Path, choose: random.Random) -> None:
    """It belongs to a number, so that only the digest of its file reveals it."""
    path = two_shards(folder, choose)[0]
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


DAMAGES: list[Damage] = [
    flip_a_bit,
    truncate,
    remove,
    swap_two_shards,
    duplicate_a_shard,
    use_the_older_manifest,
    use_another_configuration,
]
BEFORE_COMMIT: list[Damage] = [use_another_configuration]
"""The platform has stored the digest of the changed manifest."""


@pytest.mark.fault_row(name="F12", trials=1_000, long=10_000)
def test_a_damaged_checkpoint_is_refused_and_the_one_before_is_used(
    row: FaultRow, data: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"seed {SEED}")
    choose = random.Random(SEED)
    intact = state(build_here(offered(trained, STEPS[-1], data, tmp_path / "intact")))
    for number in range(row.count):
        damage = DAMAGES[number % len(DAMAGES)]
        with row.trial(f"{damage.__name__}, trial {number}"), TemporaryDirectory(dir=tmp_path) as folder:
            check_the_one_before_is_used(Path(folder), trained, data, intact, damage, choose)
    with row.control(), monkeypatch.context() as patched:
        patched.setattr(load, "_fault", lambda folder, entry: None)  # the sizes are still compared
        check_the_one_before_is_used(tmp_path / "control", trained, data, intact, flip_the_last_bit, choose)


def check_the_one_before_is_used(
    folder: Path,
    trained: Path,
    data: Path,
    intact: dict[str, Tensor],
    damage: Damage,
    choose: random.Random,
) -> None:
    checkpoints = folder / "checkpoints"
    shutil.copytree(trained, checkpoints)
    newest = checkpoints / f"step-{STEPS[0]}"
    if damage in BEFORE_COMMIT:
        damage(newest, choose)
    jobs = [offered(checkpoints, step, data, folder / f"from-{step}") for step in STEPS]
    if damage not in BEFORE_COMMIT:
        damage(newest, choose)
    training = first_accepted(jobs)
    assert training.step == STEPS[-1], "the damaged checkpoint was used"
    found = state(training)
    assert found.keys() == intact.keys()
    assert all(torch.equal(found[name], intact[name]) for name in intact), "its state is not the saved one"


def offered(checkpoints: Path, step: int, data: Path, folder: Path) -> Path:
    """A job in ``folder`` that resumes from the checkpoint of ``step``, as the platform has committed it."""
    return write_job(folder, data, job=resume_from(checkpoints / f"step-{step}", folder))


def first_accepted(jobs: list[Path]) -> Training:
    """The training of the first job whose checkpoint is accepted. The platform also offers the newest one first."""
    for job in jobs:
        try:
            return build_here(job)
        except CheckpointInvalidError:
            assert not events(job, "attempt_started"), "it was refused too late"
    raise AssertionError("the intact checkpoint was refused")


def state(training: Training) -> dict[str, Tensor]:
    """All tensors of a training."""
    return {stored.name: stored.tensor for stored in training.engine.updater.state()}
