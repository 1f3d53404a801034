"""A checkpoint is complete and correct, or it is refused before any of its tensors is used."""

import json
import shutil
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.trainer.jobs import build_here, events, read_out, resume_from, run_trainer, train_here, write_job
from trainwright.contracts.checkpoint import CheckpointManifest, digest_of
from trainwright.contracts.job_spec import failure_name
from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer.checkpoint import load, rank_files, save
from trainwright_trainer.checkpoint.host_memory import HostMemory
from trainwright_trainer.checkpoint.load import (
    read_checkpoint,
    read_stored,
    read_tensor,
    verify_files,
    verifying,
)
from trainwright_trainer.checkpoint.snapshot import (
    Snapshot,
    StateSlice,
    config_digest,
    take_snapshot,
    training_position,
)
from trainwright_trainer.distributed.mesh import make_mesh, single_rank_mesh
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.runtime.errors import CheckpointInvalidError
from trainwright_trainer.training.build import Training
from trainwright_trainer.training.loop import train

_DIFFERS = r"00002\.safetensors does not match the manifest"
ALONE = save.Writer(rank=0, on_node=range(1), nonce="of-this-test")


def _snapshot(training: Training, step: int) -> Snapshot:
    where = training_position(step, training.spec) | training.skipped_steps.scalars()
    return take_snapshot(training.engine.updater, where, HostMemory())


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``out/checkpoints`` of a run that saved at steps 10 and 20, its tensors spread over several files."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank_files, "FILE_BYTES", 20_000)
        train_here(write_job(folder, data))
    return folder / "out/checkpoints"


def test_the_event_names_the_manifest_and_the_manifest_names_every_file(trained: Path) -> None:
    for line in events(trained.parents[1] / "job.json", "checkpoint_saved"):
        folder = trained / line["folder"]
        content = (folder / "manifest.json").read_bytes()
        manifest = CheckpointManifest.model_validate_json(content)
        assert line["digest"] == digest_of(content)
        assert {path.name for path in folder.iterdir()} == {
            "manifest.json",
            *(f.name for f in manifest.files),
        }
        assert len(manifest.files) > 3
        assert line["bytes"] == sum(entry.bytes for entry in manifest.files)
        assert manifest.state == {
            "step": line["step"],
            "sequences": line["step"] * 8,
            "tokens": line["step"] * 8 * 32,
            "seed": 7,
            "skipped_steps": 0,
            "skipped_in_a_row": 0,
            "updates": line["step"],
        }
        verify_files(folder, manifest.files)
    assert sorted(path.name for path in trained.iterdir()) == ["step-10", "step-20"]


def _flip_a_bit(folder: Path) -> None:
    path = folder / "tensors-0-00002.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def _flip_a_bit_of_a_header(folder: Path) -> None:
    path = folder / "tensors-0-00002.safetensors"
    content = bytearray(path.read_bytes())
    content[8] ^= 1
    path.write_bytes(content)


def _truncate_a_file(folder: Path) -> None:
    path = folder / "tensors-0-00001.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def _delete_a_file(folder: Path) -> None:
    (folder / "tensors-0-00000.safetensors").unlink()


def _swap_two_files(folder: Path) -> None:
    first, second = folder / "tensors-0-00000.safetensors", folder / "tensors-0-00001.safetensors"
    held = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(held)


def _copy_one_over_another(folder: Path) -> None:
    shutil.copy(folder / "tensors-0-00000.safetensors", folder / "tensors-0-00001.safetensors")


def _use_an_older_manifest(folder: Path) -> None:
    shutil.copy(folder.parent / "older-manifest.json", folder / "manifest.json")


def _truncate_the_manifest(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_bytes(path.read_bytes()[:-20])


def _delete_the_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


FAULTS = [
    _flip_a_bit,
    _flip_a_bit_of_a_header,
    _truncate_a_file,
    _delete_a_file,
    _swap_two_files,
    _copy_one_over_another,
    _use_an_older_manifest,
    _truncate_the_manifest,
    _delete_the_manifest,
]


@pytest.mark.parametrize("damage", FAULTS)
def test_a_damaged_checkpoint_is_refused(
    tmp_path: Path, data: Path, trained: Path, damage: Callable[[Path], None]
) -> None:
    copy = tmp_path / "checkpoint"
    shutil.copytree(trained / "step-20", copy)
    shutil.copy(trained / "step-10/manifest.json", tmp_path / "older-manifest.json")
    job_file = write_job(tmp_path / "run", data, job=resume_from(copy, tmp_path / "run"))
    build_here(job_file)
    damage(copy)
    with pytest.raises(CheckpointInvalidError):
        build_here(job_file)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path, data: Path, trained: Path) -> None:
    point = resume_from(trained / "step-10", tmp_path)
    with pytest.raises(CheckpointInvalidError, match="another configuration"):
        build_here(write_job(tmp_path, data, job=point, model={"rope_theta": 500.0}))


def _drop_a_moment(pieces: list[StateSlice]) -> list[StateSlice]:
    return [piece for piece in pieces if piece.name != "optimizer.exp_avg_sq.norm.weight"]


def _store_in_float16(pieces: list[StateSlice]) -> list[StateSlice]:
    return [
        replace(piece, tensor=piece.tensor.half()) if piece.name == "model.norm.weight" else piece
        for piece in pieces
    ]


def _claim_a_scale(pieces: list[StateSlice]) -> list[StateSlice]:
    return [
        replace(piece, scale="model.embedding.weight") if piece.name == "model.norm.weight" else piece
        for piece in pieces
    ]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (_drop_a_moment, "optimizer.exp_avg_sq.norm.weight is missing"),
        (
            _store_in_float16,
            "model.norm.weight has the number format float16, but this run has float32",
        ),
        (_claim_a_scale, "model.norm.weight has the scale model.embedding.weight"),
    ],
)
def test_a_state_that_does_not_fit_the_run_is_refused(
    tmp_path: Path,
    data: Path,
    change: Callable[[list[StateSlice]], list[StateSlice]],
    word: str,
) -> None:
    """Every file matches its digest, but training cannot resume from the content."""
    training = train_here(write_job(tmp_path / "trained", data, schedule={"steps": 5}))
    taken = _snapshot(training, 5)
    origin = save.Origin(config_digest(training.spec), 1, None)
    saved = save.save_checkpoint(tmp_path, replace(taken, slices=change(taken.slices)), origin, ALONE)
    assert saved
    point = resume_from(saved.folder, tmp_path / "run")
    with pytest.raises(CheckpointInvalidError, match=word):
        build_here(write_job(tmp_path / "run", data, job=point))


def test_a_position_without_the_number_of_updates_is_refused(
    tmp_path: Path, data: Path, trained: Path
) -> None:
    copy = tmp_path / "checkpoint"
    shutil.copytree(trained / "step-10", copy)
    manifest = json.loads((copy / "manifest.json").read_bytes())
    del manifest["state"]["updates"]
    (copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointInvalidError, match="does not contain updates"):
        build_here(write_job(tmp_path / "run", data, job=resume_from(copy, tmp_path / "run")))


def test_a_checkpoint_in_another_precision_is_another_configuration(
    tmp_path: Path, data: Path, trained: Path
) -> None:
    job_file = write_job(
        tmp_path, data, precision={"kind": "bf16"}, job=resume_from(trained / "step-10", tmp_path)
    )
    with pytest.raises(CheckpointInvalidError, match="another configuration"):
        build_here(job_file)


def test_full_attention_keeps_the_digest_from_before_attention_variants(tmp_path: Path, data: Path) -> None:
    spec = read_job(write_job(tmp_path, data)).spec
    assert config_digest(spec) == "05e79d4bc8c5b9ca6c1c0046286ed710b8ec021b375ebab393417ab48cd0e08b"
    other = spec.model.model_copy(update={"attention": "another"})
    assert config_digest(spec.model_copy(update={"model": other})) != config_digest(spec)


def test_the_digest_covers_what_decides_the_formats_of_the_state(tmp_path: Path, data: Path) -> None:
    def digest(**fp8: object) -> str:
        return config_digest(read_job(write_job(tmp_path, data, precision={"kind": "fp8", "fp8": fp8})).spec)

    different = [digest(level="O1"), digest(level="O2"), digest(level="O3"), digest(moments="block")]
    assert len(set(different)) == 4
    assert digest(level="O2", skip_limit=9, accumulation="fp32") == digest(level="O2")


def test_a_manifest_with_a_correct_digest_is_still_validated(trained: Path) -> None:
    """Names that lead out of the folder, slices in unlisted files and slices that leave gaps are refused."""
    folder = trained / "step-10"
    manifest = CheckpointManifest.model_validate_json((folder / "manifest.json").read_bytes())
    outside = manifest.files[0].model_copy(update={"name": "../step-20/tensors-0-00000.safetensors"})
    with pytest.raises(CheckpointInvalidError, match="missing"):
        verify_files(folder, [outside])

    name, entry = next(iter(manifest.tensors.items()))
    for change in (
        {"slices": [entry.slices[0].model_copy(update={"file": "../step-20/tensors-0-00000.safetensors"})]},
        {"slices": []},
        {"shape": (1, 2, 3)},
    ):
        changed = manifest.model_copy(update={"tensors": {name: entry.model_copy(update=change)}})
        with pytest.raises(CheckpointInvalidError):
            read_tensor(folder, changed, name, entry.shape)


def test_saving_the_same_step_again_replaces_it(tmp_path: Path, data: Path) -> None:
    training = train_here(write_job(tmp_path, data, schedule={"steps": 5}))
    snapshot = _snapshot(training, 5)
    checkpoints = tmp_path / "out/checkpoints"
    before = (checkpoints / "step-5/manifest.json").read_bytes()
    save.save_checkpoint(checkpoints, snapshot, save.Origin(config_digest(training.spec), 1, None), ALONE)
    assert (checkpoints / "step-5/manifest.json").read_bytes() == before
    assert [path.name for path in checkpoints.iterdir()] == ["step-5"]


def test_later_updates_do_not_change_a_snapshot(tmp_path: Path, data: Path) -> None:
    training = train_here(write_job(tmp_path, data, schedule={"steps": 5}))
    snapshot = _snapshot(training, 5)
    held = snapshot.slices[0].tensor.clone()
    with torch.no_grad():
        for weight in training.engine.model.parameters():
            weight.add_(1.0)
    assert torch.equal(snapshot.slices[0].tensor, held)


def test_a_write_that_fails_ends_the_training(tmp_path: Path, data: Path) -> None:
    job_file = write_job(tmp_path, data)
    training = build_here(job_file)
    (tmp_path / "out/checkpoints").write_text("a file in place of the folder")
    with pytest.raises(NotADirectoryError):
        train(training)
    assert not events(job_file, "checkpoint_saved")


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("damage", [_truncate_a_file, _flip_a_bit, _flip_a_bit_of_a_header])
def test_a_damaged_checkpoint_ends_the_launch_with_its_code(
    tmp_path: Path, data: Path, trained: Path, damage: Callable[[Path], None]
) -> None:
    """Two ranks: only one hashes the damaged file, both refuse."""
    copy = tmp_path / "checkpoint"
    shutil.copytree(trained / "step-10", copy)
    job_file = write_job(tmp_path / "run", data, ranks=2, job=resume_from(copy, tmp_path / "run"))
    damage(copy)
    assert run_trainer("train", job_file) == 1
    failures = [json.loads(path.read_text()) for path in (tmp_path / "run/out").glob("failure-*.json")]
    assert failures and {failure["code"] for failure in failures} == {"checkpoint_invalid"}
    assert not events(job_file, "step")


@pytest.mark.parametrize("damage", [_flip_a_bit, _flip_a_bit_of_a_header])
def test_a_wrong_digest_is_reported_even_if_the_damage_causes_other_errors(
    tmp_path: Path, trained: Path, damage: Callable[[Path], None]
) -> None:
    """Tensors are read while files are hashed, so another error may occur before the damage is known."""
    copy = tmp_path / "checkpoint"
    shutil.copytree(trained / "step-10", copy)
    manifest = CheckpointManifest.model_validate_json((copy / "manifest.json").read_bytes())
    mesh = single_rank_mesh(torch.device("cpu"))
    with pytest.raises(ZeroDivisionError), verifying(copy, manifest, mesh):
        raise ZeroDivisionError
    threads = torch.get_num_threads()
    damage(copy)
    with pytest.raises(CheckpointInvalidError, match=_DIFFERS), verifying(copy, manifest, mesh):
        raise ZeroDivisionError
    with pytest.raises(CheckpointInvalidError, match=_DIFFERS), verifying(copy, manifest, mesh):
        for name, entry in manifest.tensors.items():
            read_tensor(copy, manifest, name, entry.shape)
    assert torch.get_num_threads() == threads


def test_damage_is_reported_by_a_rank_that_was_not_assigned_the_file(tmp_path: Path, trained: Path) -> None:
    """The other ranks may be anywhere in their reading by then, so this rank checks the files itself."""
    copy = tmp_path / "checkpoint"
    shutil.copytree(trained / "step-10", copy)
    manifest = CheckpointManifest.model_validate_json((copy / "manifest.json").read_bytes())
    _flip_a_bit(copy)
    for rank in (0, 1):
        mesh = make_mesh(rank, Degrees(replicas=2), torch.device("cpu"))
        with pytest.raises(CheckpointInvalidError, match=_DIFFERS), verifying(copy, manifest, mesh):
            raise ZeroDivisionError


@pytest.mark.slow(target="layouts")
def test_an_export_of_a_damaged_checkpoint_is_refused(tmp_path: Path, data: Path, trained: Path) -> None:
    shutil.copytree(trained, tmp_path / "out/checkpoints")
    job_file = write_job(tmp_path, data)
    _flip_a_bit(tmp_path / "out/checkpoints/step-20")
    assert run_trainer("export", job_file) == 1
    assert read_out(job_file, failure_name(0))["code"] == "checkpoint_invalid"
    assert not (tmp_path / "out/export").exists()


def test_an_intact_checkpoint_is_read_back_as_written(trained: Path) -> None:
    spec = read_job(trained.parents[1] / "job.json").spec
    manifest = read_checkpoint(trained / "step-20", config_digest(spec), None)
    for name, entry in manifest.tensors.items():
        assert read_tensor(trained / "step-20", manifest, name, entry.shape).isfinite().all(), name


def test_weights_are_restored_one_at_a_time(
    tmp_path: Path, data: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host never has a second copy of the model, however large it is."""
    read: list[weakref.ref[torch.Tensor]] = []

    def reading(folder: Path, manifest: CheckpointManifest, name: str, shape: torch.Size) -> torch.Tensor:
        assert not [earlier for earlier in read if earlier() is not None]
        tensor = read_stored(folder, manifest, name, shape)
        if name.startswith("model."):
            read.append(weakref.ref(tensor))
        return tensor

    monkeypatch.setattr(load, "read_stored", reading)
    training = build_here(write_job(tmp_path, data, job=resume_from(trained / "step-10", tmp_path)))
    assert len(read) == len(list(training.engine.model.parameters()))


def test_a_snapshot_waits_until_the_previous_one_is_written(tmp_path: Path, data: Path) -> None:
    """Writing is slowed down, so that a snapshot taken too early would find nothing written."""
    training = train_here(write_job(tmp_path / "run", data, schedule={"steps": 5}))
    written: list[int] = []

    def on_saved(saved: save.SavedCheckpoint) -> None:
        time.sleep(0.3)
        written.append(saved.step)

    saver = save.Saver(tmp_path, save.Origin(config_digest(training.spec), 1, None), ALONE, on_saved)
    for step in range(3):

        def take(step: int = step) -> Snapshot:
            assert written == list(range(step))
            return _snapshot(training, step)

        saver.save(take)
    saver.wait()
    assert written == [0, 1, 2]
