"""Uploads of checkpoints: no file outside the checkpoint is sent, and an interrupted upload is repeated."""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.agent.api import NODE_TOKEN, ScriptedApi, ScriptedRun
from tests.agent.folders import make_attempt, step_line, write_events
from tests.agent.machine import wait_for
from tests.agent.standin.rank import save
from trainwright.contracts.agent_protocol import Claim
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.hardware import RunHardwareUse
from trainwright.contracts.job_spec import Outcome, Peak
from trainwright_agent import file_copies
from trainwright_agent.client import Client
from trainwright_agent.shipping import uploader as uploading
from trainwright_agent.shipping.shipper import Shipper
from trainwright_agent.shipping.uploader import DamagedCheckpointError, Part, Upload, Uploader
from trainwright_agent.workspace import AttemptFolder, ClaimRecord

NAMES = ("out", "checkpoints", "step-5")
UPLOAD = Upload(CheckpointKind.STATE, 5, events_offset=1)


@pytest.fixture
def run(api: ScriptedApi) -> ScriptedRun:
    return api.place()


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptFolder:
    return make_attempt(tmp_path / "node")


def uploader(api: ScriptedApi, store: Path | None = None) -> Uploader:
    return Uploader(Client(api.url, NODE_TOKEN), "run_1", 1, store)


def change_name(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][0]["name"] = "../../../claim.json"
    (folder / "manifest.json").write_text(json.dumps(manifest))


def change_byte(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"weights of step 6")


def link_out(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder.parents[3] / "secret").write_bytes(content)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(folder.parents[3] / "secret")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (change_name, "manifest names a file"),
        (change_byte, "does not match the manifest"),
        (lambda folder: (folder / "model.safetensors").unlink(), "cannot be read"),
        (link_out, "cannot be read"),
        (lambda folder: (folder / "manifest.json").unlink(), "no readable manifest"),
        (lambda folder: (folder / "manifest.json").write_text("{}"), "manifest is invalid"),
    ],
)
@pytest.mark.parametrize("uses_store", [False, True])
def test_a_damaged_checkpoint_is_not_committed(
    api: ScriptedApi,
    run: ScriptedRun,
    attempt: AttemptFolder,
    tmp_path: Path,
    damage: Callable[[Path], object],
    words: str,
    uses_store: bool,
) -> None:
    folder = attempt.path.joinpath(*NAMES)
    save(folder, "state", 5)
    damage(folder)
    (tmp_path / "store").mkdir()
    sending = uploader(api, tmp_path / "store" if uses_store else None)
    with pytest.raises(DamagedCheckpointError, match=words):
        sending.upload(UPLOAD, Part.ALL, attempt.path, *NAMES)
    assert not run.commits
    assert not [key for key in api.objects if key.endswith("model.safetensors")]


@pytest.mark.parametrize(
    "differ",
    [
        lambda upload: replace(upload, step=6),
        lambda upload: replace(upload, digest="0" * 64),
        lambda upload: replace(upload, kind=CheckpointKind.EXPORT),
    ],
    ids=["step", "digest", "kind"],
)
def test_a_checkpoint_other_than_the_announced_one_is_not_sent(
    api: ScriptedApi, run: ScriptedRun, attempt: AttemptFolder, differ: Callable[[Upload], Upload]
) -> None:
    digest = save(attempt.path.joinpath(*NAMES), "state", 5)
    announced = differ(Upload(CheckpointKind.STATE, step=5, digest=digest))
    with pytest.raises(DamagedCheckpointError, match="announced"):
        uploader(api).upload(announced, Part.ALL, attempt.path, *NAMES)


@pytest.mark.parametrize(("part", "commits"), [(Part.OWN, 0), (Part.OWN_AND_COMMIT, 1)])
def test_a_node_sends_the_files_that_it_has(
    api: ScriptedApi, run: ScriptedRun, attempt: AttemptFolder, part: Part, commits: int
) -> None:
    """Another node has the other file; the first of them commits."""
    save(attempt.path.joinpath(*NAMES), "state", 5)
    (attempt.path.joinpath(*NAMES) / "model.safetensors").unlink()
    run.files["events.jsonl"] = 1
    uploader(api).upload(UPLOAD, part, attempt.path, *NAMES)
    assert len(run.commits) == commits
    assert [key for key in api.objects if "/state-5/" in key] == ["run_1/f1/state-5/manifest.json"]


@pytest.mark.parametrize("part", [Part.OWN, Part.OWN_AND_COMMIT])
def test_a_node_notices_that_its_object_folder_is_not_the_servers(
    tmp_path: Path, api: ScriptedApi, run: ScriptedRun, attempt: AttemptFolder, part: Part
) -> None:
    """The commit cannot detect this while other nodes' files are missing too."""
    save(attempt.path.joinpath(*NAMES), "state", 5)
    run.files["events.jsonl"] = 1
    (tmp_path / "elsewhere").mkdir()
    uploader(api, tmp_path / "elsewhere").upload(UPLOAD, part, attempt.path, *NAMES)
    assert "run_1/f1/state-5/model.safetensors" in api.objects


def test_files_in_the_store_are_not_sent_again(
    api: ScriptedApi, run: ScriptedRun, attempt: AttemptFolder
) -> None:
    save(attempt.path.joinpath(*NAMES), "state", 5)
    run.files["events.jsonl"] = 1
    for _ in range(2):
        uploader(api).upload(UPLOAD, Part.ALL, attempt.path, *NAMES)
        # The second upload must not need the file: the store has it.
        (attempt.path.joinpath(*NAMES) / "model.safetensors").write_bytes(b"changed meanwhile")
    assert len(run.commits) == 2


def test_copying_again_leaves_no_draft(api: ScriptedApi, attempt: AttemptFolder, tmp_path: Path) -> None:
    api.place().files["events.jsonl"] = 1
    api.object_store = tmp_path / "store"
    api.object_store.mkdir()
    save(attempt.path.joinpath(*NAMES), "state", 5)
    for _ in range(2):
        uploader(api, tmp_path / "store").upload(UPLOAD, Part.ALL, attempt.path, *NAMES)
    found = sorted(path.name for path in (tmp_path / "store").rglob("*") if path.is_file())
    assert found == ["manifest.json", "model.safetensors"]


def test_a_committed_file_does_not_change_with_the_trainer_s_file(
    api: ScriptedApi, attempt: AttemptFolder, tmp_path: Path
) -> None:
    api.place().files["events.jsonl"] = 1
    api.object_store = tmp_path / "store"
    api.object_store.mkdir()
    save(attempt.path.joinpath(*NAMES), "state", 5)
    source = attempt.path.joinpath(*NAMES, "model.safetensors")
    committed = source.read_bytes()
    with source.open("r+b") as held:  # open since before the upload
        uploader(api, tmp_path / "store").upload(UPLOAD, Part.ALL, attempt.path, *NAMES)
        held.write(b"?")
        held.flush()
        (stored,) = (tmp_path / "store").rglob("model.safetensors")
        assert source.read_bytes() != stored.read_bytes() == committed


def test_a_file_that_changes_while_it_is_copied_is_damaged(
    api: ScriptedApi, attempt: AttemptFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.place().files["events.jsonl"] = 1
    api.object_store = tmp_path / "store"
    api.object_store.mkdir()
    save(attempt.path.joinpath(*NAMES), "state", 5)

    def copy_changed(source: int, target: int, size_bytes: int) -> None:
        file_copies.copy_file(source, target, size_bytes)
        os.pwrite(target, b"?", 0)

    monkeypatch.setattr(uploading, "copy_file", copy_changed)
    with pytest.raises(DamagedCheckpointError, match="does not match"):
        uploader(api, tmp_path / "store").upload(UPLOAD, Part.ALL, attempt.path, *NAMES)
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]


def no_folder(_: Path) -> None:
    """A mistyped path."""


def another_folder(store: Path) -> None:
    """An existing folder that is not the server's."""
    store.mkdir()


def unwritable_folder(store: Path) -> None:
    """A folder that cannot be written, not even by root."""
    store.mkdir()
    (store / "run_1").write_text("in the way")


@pytest.mark.parametrize("make", [no_folder, another_folder, unwritable_folder])
def test_with_a_wrong_object_folder_files_are_uploaded(
    api: ScriptedApi,
    run: ScriptedRun,
    attempt: AttemptFolder,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    make: Callable[[Path], None],
) -> None:
    store = tmp_path / "store"
    make(store)
    save(attempt.path / "out" / "export", "export", 5)
    digest = save(attempt.path.joinpath(*NAMES), "state", 5)
    write_events(attempt.path, step_line(5), saved_line(digest))
    attempt.write_exit(Outcome(code=EndCode.FINISHED, message="m", step=5))
    shipper = ship(api, attempt, store)
    wait_for(lambda: shipper.is_done, "the end")
    assert run.end["code"] == "finished"
    assert [commit["kind"] for commit in run.commits] == ["state", "export"]
    assert str(store) in caplog.text
    assert store.exists() is (make is not no_folder)


def test_permanently_refused_lines_and_logs_are_skipped_and_the_rest_arrives(
    api: ScriptedApi, run: ScriptedRun, attempt: AttemptFolder
) -> None:
    run.refused_step, run.refused_log = 3, "a.log"
    digest = save(attempt.path.joinpath(*NAMES), "state", 5)
    path = write_events(attempt.path, *(step_line(step) for step in range(1, 6)), saved_line(digest))
    for name in ("a.log", "b.log"):
        (attempt.path / "out" / "logs" / name).write_text("a log")
    attempt.write_exit(Outcome(code=EndCode.CRASHED, message="m"))
    shipper = ship(api, attempt)
    wait_for(lambda: shipper.is_done, "the end")
    assert run.steps == [1, 2, 4, 5]
    assert run.logs == {"b.log": b"a log"}
    assert [commit["step"] for commit in run.commits] == [5]
    assert run.ends[-1]["offsets"] == {"events.jsonl": path.stat().st_size, "b.log": len("a log")}


@pytest.mark.parametrize(("measured", "reported"), [(True, [4e9, 6e9]), (False, [])])
def test_a_run_that_beats_a_measured_peak_is_reported_once_for_each_new_maximum(
    api: ScriptedApi, run: ScriptedRun, attempt: AttemptFolder, measured: bool, reported: list[float]
) -> None:
    peak = Peak(flops_per_second=2e9, dtype="bf16", device="a CPU", measured=measured)
    claim = attempt.granted_claim()
    assert claim is not None
    claim = claim.model_copy(update={"job": claim.job.model_copy(update={"peak": peak})})
    attempt.write_record(ClaimRecord(run_id=run.run_id, claim_id=attempt.claim_id, claim=claim))
    reached: list[Peak] = []
    shipper = ship(api, attempt, on_faster=reached.append)
    for step, mfu in enumerate([0.9, 2.0, 1.5, float("inf"), 3.0], start=1):
        write_events(attempt.path, step_line(step, mfu=mfu))
        wait_for(partial(has_steps, run, step), "the step")
    attempt.write_exit(Outcome(code=EndCode.CRASHED, message="m"))
    wait_for(lambda: shipper.is_done, "the end")
    assert [peak.flops_per_second for peak in reached] == reported


def test_measurements_are_sent_with_the_next_steps_and_stored_until_then(
    api: ScriptedApi, run: ScriptedRun, attempt: AttemptFolder
) -> None:
    measured = [
        RunHardwareUse(
            cpu_utilization=share, memory_bytes=1, memory_total_bytes=2, disk_bytes=1, disk_total_bytes=2
        )
        for share in (0.25, 0.5, 0.75)
    ]
    left = list(measured)
    shipper = ship(api, attempt, take_hardware=lambda: left.pop(0) if left else None)
    write_events(attempt.path, step_line(1))
    wait_for(partial(has_steps, run, 1), "the first step")
    api.away = True
    write_events(attempt.path, step_line(2))
    wait_for(lambda: len(left) == 1, "an attempt to send the second step")
    api.away = False
    wait_for(partial(has_steps, run, 2), "the second step")
    write_events(attempt.path, {"type": "note", "message": "m"})
    wait_for(lambda: len(run.events) == 1, "the note")
    assert len(left) == 1, "a note carries no measurements"
    for step in (3, 4):
        write_events(attempt.path, step_line(step))
        wait_for(partial(has_steps, run, step), "the step")
    assert [use["cpu_utilization"] for use in run.hardware] == [0.25, 0.5, 0.75]
    attempt.write_exit(Outcome(code=EndCode.CRASHED, message="m"))
    wait_for(lambda: shipper.is_done, "the end")


def has_steps(run: ScriptedRun, count: int) -> bool:
    return len(run.steps) == count


def ship(
    api: ScriptedApi,
    attempt: AttemptFolder,
    store: Path | None = None,
    on_faster: Callable[[Peak], None] = lambda peak: None,
    take_hardware: Callable[[], RunHardwareUse | None] = lambda: None,
) -> Shipper:
    claim = attempt.granted_claim()
    assert isinstance(claim, Claim)
    shipper = Shipper(attempt, claim, lambda: Client(api.url, NODE_TOKEN), store, on_faster, take_hardware)
    shipper.start()
    return shipper


def saved_line(digest: str, folder: str = "step-5") -> dict[str, object]:
    return {
        "type": "checkpoint_saved",
        "step": 5,
        "folder": folder,
        "digest": digest,
        "bytes": 1,
        "seconds": 0.0,
    }


def test_a_checkpoint_is_committed_after_its_events_even_if_the_agent_died_between(
    api: ScriptedApi, run: ScriptedRun, attempt: AttemptFolder
) -> None:
    digest = save(attempt.path.joinpath(*NAMES), "state", 5)
    path = write_events(attempt.path, step_line(5), saved_line(digest))
    run.files["events.jsonl"] = path.stat().st_size  # an earlier agent had sent them
    ship(api, attempt)
    wait_for(lambda: run.commits, "the commit")
    assert run.commits[0]["events_offset"] == path.stat().st_size
    assert run.commits[0]["manifest_digest"] == digest


def test_a_refused_or_unsafe_checkpoint_does_not_delay_the_end(
    api: ScriptedApi, run: ScriptedRun, attempt: AttemptFolder
) -> None:
    digest = save(attempt.path.joinpath(*NAMES), "state", 5)
    write_events(attempt.path, saved_line(digest, "../../../../etc"), saved_line("0" * 64))
    attempt.write_exit(Outcome(code=EndCode.CRASHED, message="m"))
    shipper = ship(api, attempt)
    wait_for(lambda: shipper.is_done, "the end")
    assert run.end["code"] == "crashed"
    assert not run.commits


def test_an_export_that_must_not_be_sent_fails_the_attempt(
    api: ScriptedApi, run: ScriptedRun, attempt: AttemptFolder
) -> None:
    save(attempt.path / "out" / "export", "export", 5)
    change_byte(attempt.path / "out" / "export")
    attempt.write_exit(Outcome(code=EndCode.FINISHED, message="m", step=5))
    shipper = ship(api, attempt)
    wait_for(lambda: shipper.is_done, "the end")
    assert run.end["code"] == "export_failed"


def test_a_short_file_is_shipped_again(api: ScriptedApi, run: ScriptedRun, attempt: AttemptFolder) -> None:
    path = write_events(attempt.path, step_line(1), step_line(2), torn=b'{"type"')
    (attempt.path / "out" / "logs" / "rank-0.log").write_text("a log")
    shipper = ship(api, attempt)
    wait_for(lambda: run.steps == [1, 2] and run.logs, "events and logs")
    with api.lock:  # the API was restored from a backup and has less than it acknowledged
        run.files, run.steps, run.logs = {}, [], {}
        attempt.write_exit(Outcome(code=EndCode.CRASHED, message="m"))
    wait_for(lambda: shipper.is_done, "the end")
    assert run.steps == [1, 2]
    assert run.logs == {"rank-0.log": b"a log"}
    whole_lines = path.read_bytes().rindex(b"\n") + 1
    assert run.ends[-1]["offsets"] == {"events.jsonl": whole_lines, "rank-0.log": len("a log")}


def test_shipping_continues_at_the_offset_of_the_api(
    api: ScriptedApi, run: ScriptedRun, attempt: AttemptFolder
) -> None:
    path = write_events(attempt.path, *(step_line(step) for step in range(1, 6)))
    ship(api, attempt)
    wait_for(lambda: run.steps == [1, 2, 3, 4, 5], "the first lines")
    with api.lock:
        first_line = path.read_bytes().index(b"\n") + 1
        run.files["events.jsonl"], run.steps = first_line, [1]
        write_events(attempt.path, step_line(6))
    wait_for(lambda: run.steps == [1, 2, 3, 4, 5, 6], "all lines, once")


def test_a_commit_waits_for_missing_events(
    api: ScriptedApi, run: ScriptedRun, attempt: AttemptFolder
) -> None:
    digest = save(attempt.path.joinpath(*NAMES), "state", 5)
    assert (
        hashlib.sha256((attempt.path.joinpath(*NAMES) / "manifest.json").read_bytes()).hexdigest() == digest
    )
    with api.lock:
        path = write_events(attempt.path, step_line(5), saved_line(digest))
        run.files["events.jsonl"] = path.stat().st_size
        ship(api, attempt)
    wait_for(lambda: run.commits, "the commit")
