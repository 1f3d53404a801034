"""Data folders of earlier versions open with the current version, with all their data, to the last digit.

`older_folder.md`, `older_folder_fp8.md`, `older_folder_0003.md` and `older_folder_0007.md` describe the folders. Each has
an `expected.json`, the HTTP responses of the version that made it. The current responses may have more fields, but must
have all of the old ones, under their current names.
"""

import hashlib
import json
import os
import signal
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.live import (
    PATIENT_TIMERS,
    eventually,
    finished,
    live_environment,
    marked_processes,
    store_cpu_peak,
)
from tests.selection import partly_slow
from trainwright.client import Client, TeamClient
from trainwright.contracts.api.people import Me
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright.contracts.end_codes import OLDER_CODES
from trainwright.contracts.run_state import FINAL, RunState
from trainwright.contracts.series import current_name
from trainwright.contracts.spec_upgrade import upgrade_spec
from trainwright.transport.errors import ApiError
from trainwright_backend.core.ids import parse_id
from trainwright_backend.local.data_folder import DataFolder
from trainwright_backend.local.platform import Platform, bind_socket

pytestmark = pytest.mark.timeout(480)

ARCHIVES = ("older_folder", "older_folder_fp8", "older_folder_0003", "older_folder_0007")
NEWEST_IN_MAKE_TEST = partly_slow(ARCHIVES, [ARCHIVES[-1]], "faults")
"""``make test`` reads the newest folder and continues its run; ``make faults`` reads all of them."""

OF_RUN = (
    *("id", "name", "state", "sentence", "reason", "attempt", "created", "created_by", "started", "ended"),
    *("tags", "notes"),
)
FRACTIONS = ("mfu", "bf16_mfu", "hfu")
OF_PREPARATION = ("id", "state", "validation_fraction", "documents", "train_tokens", "validation_tokens")


@dataclass(frozen=True)
class Older:
    """An old folder under the current platform, a client with its old key, and the expected responses."""

    platform: Platform
    client: Client
    team: TeamClient
    expected: Any

    def run(self, name: str) -> Any:
        return self.expected["runs"][name]

    def run_id(self, name: str) -> str:
        return str(self.run(name)["run"]["id"])

    def beat_its_peak(self, name: str) -> bool:
        """Whether the run stored fractions above 1 of a wrong peak, which the upgrade deletes with all of its fractions."""
        return any(curve["last"] > 1 for key, curve in self.run(name)["curves"].items() if key in FRACTIONS)

    def ended_runs(self) -> list[str]:
        return [name for name in self.expected["runs"] if name != "under_way"]

    def dataset_id(self, name: str) -> str:
        return str(self.expected["datasets"][name]["dataset"]["id"])


@contextmanager
def opened(name: str, folder: Path) -> Iterator[Older]:
    """Unpack the old folder ``name`` into ``folder`` and serve it."""
    (packed,) = Path(__file__).parent.glob(f"{name}.tar.*")
    with tarfile.open(packed) as archive:
        for member in archive:
            archive.extract(member, folder, filter="data")
    expected = renamed(json.loads((folder / "older_folder/expected.json").read_text()))
    account = expected["account"]
    data = DataFolder.acquire(folder / "older_folder/data")
    platform = Platform(data, bind_socket("127.0.0.1", 0), environment=live_environment(PATIENT_TIMERS))
    store_cpu_peak(data.path / "agent", platform.cpu_slots)
    try:
        with platform, Client(platform.url, account["key"]) as client:
            yield Older(platform, client, client.team(account["team"]), expected)
    finally:
        for pid in marked_processes(data.path):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        data.release()


def renamed(expected: Any) -> Any:
    """Answers of an older version with the current names of fields, series and end codes."""
    if isinstance(expected, dict):
        names = {"recipe": "curation", "holds": "contents"}
        return {names.get(key, current_name(key)): renamed(value) for key, value in expected.items()}
    if isinstance(expected, list):
        return [renamed(item) for item in expected]
    return OLDER_CODES.get(expected, expected) if isinstance(expected, str) else expected


@pytest.fixture(scope="module", params=NEWEST_IN_MAKE_TEST)
def older(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Older]:
    """One platform for all tests of a folder. Tests at the start and the end change it, the others only read."""
    with opened(request.param, tmp_path_factory.mktemp("older")) as found:
        yield found


@pytest.mark.slow(target="faults")
def test_a_run_in_progress_continues(older: Older) -> None:
    """The platform was stopped while the run was training. It resumes from the checkpoint that the older version wrote: in
    FP8 before there was parallelism, in an FP8 pipeline, and in FP8 with delayed scaling over a tensor group."""
    if "under_way" not in older.expected["runs"]:
        assert all(run.state in FINAL for run in older.team.runs())
        return
    team, run_id, before = older.team, older.run_id("under_way"), older.run("under_way")
    attempt = before["run"]["attempt"] + 1
    eventually(lambda: team.run(run_id).summary.attempt == attempt, "its next attempt makes steps", 120)
    saved = team.metrics(run_id).attempts[-1].resume_step
    assert saved >= max(checkpoint["step"] for checkpoint in before["checkpoints"])
    last = saved + 5
    eventually(lambda: team.run(run_id).summary.step >= last, f"step {last}", 120)
    metrics = team.metrics(run_id, points=100_000)
    resumed_at = [mark["resume_step"] for mark in before["attempts"]]
    assert [mark.resume_step for mark in metrics.attempts] == [*resumed_at, saved]
    (losses,) = (item for item in metrics.series if item.name == "loss")
    assert losses.steps[:last] == list(range(1, last + 1)), "every step has its metrics once"
    assert losses.values[saved] < 1.2, "it resumes at a loss of 0.8 or less; it started at 5.5"
    team.cancel(run_id)
    assert finished(team, run_id).state is RunState.CANCELLED
    team.delete_run(run_id)


def test_the_account_signs_in_with_its_password(older: Older) -> None:
    account = older.expected["account"]
    with Client(older.platform.url) as person:
        password = {"email": account["email"], "password": account["password"]}
        signed_in = person.post("/auth/sign-in", Me, json=password)
    assert [(team.slug, team.role) for team in signed_in.teams] == [(account["team"], "owner")]
    assert signed_in.site_admin


def test_the_node_reconnects(older: Older) -> None:
    eventually(lambda: any(node.online for node in older.client.nodes()), "the node is back", 60)
    assert [node.name for node in older.client.nodes()] == ["local"]


def test_ended_runs_are_unchanged(older: Older) -> None:
    for name in older.ended_runs():
        expected, run_id = older.run(name), older.run_id(name)
        run = older.team.run(run_id).model_dump(mode="json")
        beaten = older.beat_its_peak(name)
        fields = [
            field for field in OF_RUN if field in expected["run"] and not (beaten and field == "sentence")
        ]
        values = expected["run"]["summary"]["values"]
        values = {key: value for key, value in values.items() if not (beaten and key in FRACTIONS)}
        assert [run[field] for field in fields] == [expected["run"][field] for field in fields]
        assert differences(upgrade_spec(expected["run"]["spec"]), run["spec"]) == []
        assert differences(values, run["summary"]["values"]) == []
        events = [event.model_dump(mode="json") for event in older.team.events(run_id)]
        assert differences(expected["events"], events) == []
        attempts = [mark.model_dump(mode="json") for mark in older.team.metrics(run_id).attempts]
        assert differences(expected["attempts"], attempts) == []


def test_their_curves_are_equal_point_by_point(older: Older) -> None:
    for name in older.ended_runs():
        found = older.team.metrics(older.run_id(name), points=100_000).series
        curves = {
            item.name: {
                "unit": item.unit,
                "points": len(item.steps),
                "last_step": item.steps[-1],
                "first": item.values[0],
                "last": item.values[-1],
                "digest": digest([item.steps, [value.hex() for value in item.values]]),
            }
            for item in found
        }
        expected = older.run(name)["curves"]
        if older.beat_its_peak(name):
            expected = {key: curve for key, curve in expected.items() if key not in FRACTIONS}
        assert curves == expected


def test_their_logs_are_complete(older: Older) -> None:
    for name in older.ended_runs():
        run_id = older.run_id(name)
        logs = [
            {
                "attempt": log.attempt,
                "file": log.file,
                "bytes": log.bytes,
                "digest": hashlib.sha256(
                    log_text(older.team, run_id, log.attempt, log.file).encode()
                ).hexdigest(),
            }
            for log in sorted(older.team.logs(run_id), key=lambda log: (log.attempt, log.file))
        ]
        assert logs == older.run(name)["logs"]


def test_their_checkpoints_download_byte_for_byte(older: Older, tmp_path: Path) -> None:
    for name in older.ended_runs():
        run_id, expected = older.run_id(name), older.run(name)["checkpoints"]
        found = [checkpoint.model_dump(mode="json") for checkpoint in older.team.checkpoints(run_id)]
        without_files = [{key: item[key] for key in item if key != "files"} for item in expected]
        assert differences(without_files, found) == []
        for item in expected:
            folder = older.team.download(run_id, tmp_path / item["id"], item["id"])
            files = {file.name: file.read_bytes() for file in folder.iterdir()}
            digests = {file: [len(data), hashlib.sha256(data).hexdigest()] for file, data in files.items()}
            assert digests == item["files"]


def test_the_newest_export_downloads_without_an_id(older: Older, tmp_path: Path) -> None:
    (export,) = (
        checkpoint
        for checkpoint in older.run("succeeded")["checkpoints"]
        if checkpoint["kind"] == CheckpointKind.EXPORT
    )
    folder = older.team.download(older.run_id("succeeded"), tmp_path / "export")
    assert {file.name for file in folder.iterdir()} == set(export["files"])


def test_datasets_have_their_versions_files_and_preparations(older: Older) -> None:
    for name in older.expected["datasets"]:
        expected = older.expected["datasets"][name]["dataset"]
        found = older.team.dataset(older.dataset_id(name)).model_dump(mode="json")
        assert [found[key] for key in ("name", "created", "created_by")] == [
            expected[key] for key in ("name", "created", "created_by")
        ]
        assert [version["number"] for version in found["versions"]] == [
            version["number"] for version in expected["versions"]
        ]
        for version, then in zip(found["versions"], expected["versions"], strict=True):
            assert differences(then["files"], version["files"]) == []
            assert differences(then.get("curation"), version["curation"]) == [] or "curation" not in then
            known = {preparation["id"]: preparation for preparation in version["preparations"]}
            for item in then["preparations"]:
                assert [known[item["id"]][key] for key in OF_PREPARATION] == [
                    item[key] for key in OF_PREPARATION
                ]
                assert differences(item["tokenizer"], known[item["id"]]["tokenizer"]) == []


def test_their_bad_lines_are_listed(older: Older) -> None:
    """A later version may parse the files again and word the reasons differently, but must list the same lines."""
    for name in older.expected["datasets"]:
        expected = [(line["file"], line["line"]) for line in older.expected["datasets"][name]["rejected"]]
        eventually(partial(lists_bad_lines, older, name, expected), f"lines {expected} are listed")


def test_saved_recipes_have_the_current_names(older: Older) -> None:
    found = older.client.fetch(f"/teams/{older.expected['account']['team']}/recipes").json()
    before = older.expected.get("recipes", [])
    assert differences([{**item, "spec": upgrade_spec(item["spec"])} for item in before], found) == []


@pytest.mark.slow(target="faults")
def test_older_data_can_be_deleted_and_trained_on(older: Older) -> None:
    """A dataset is deleted but not another one with the same bytes; runs train on old and new shards; a run is
    deleted."""
    team, objects = older.team, older.platform.folder.path / "objects"
    delete_active_runs(older)
    shared, only_drafts = (
        file["digest"] for file in older.expected["datasets"]["draft"]["dataset"]["versions"][0]["files"]
    )
    assert {shared, only_drafts} <= digests_below(objects)
    for name in {"sifted", "draft"} & older.expected["datasets"].keys():
        team.delete_dataset(older.dataset_id(name))
    eventually(lambda: only_drafts not in digests_below(objects), "the draft's own bytes are gone")
    assert older.dataset_id("draft") not in {dataset.id for dataset in team.datasets()}

    trained = [team.submit(short_run(older, tokenizer)).id for tokenizer in ("old", "new")]
    with pytest.raises(ApiError) as refused:
        team.delete_dataset(older.dataset_id("letters"))
    assert refused.value.status == 409
    for run_id in trained:
        run = finished(team, run_id, 300)
        assert run.state is RunState.SUCCEEDED, run.sentence
        assert run.summary.step == 10
    assert shared in digests_below(objects), "bytes shared with another dataset remain"

    weights = weights_of(older, "cancelled")
    for checkpoint in older.run("cancelled")["checkpoints"]:
        path = f"runs/{older.run_id('cancelled')}/checkpoints/{checkpoint['id']}/files"
        older.client.fetch(f"/teams/{older.expected['account']['team']}/{path}")
    team.delete_run(older.run_id("cancelled"))
    deleted = trained.pop()
    (folder,) = objects.glob(f"*/runs/{parse_id('run', deleted)}")
    team.delete_run(deleted)
    eventually(lambda: not folder.exists(), "the run's bytes are gone")
    kept = {older.run_id(name) for name in older.expected["runs"].keys() - {"cancelled", "under_way"}}
    assert {run.id for run in team.runs()} == {*kept, *trained}
    assert weights & digests_below(objects) == weights, "links to these have been issued and are still valid"


@pytest.mark.slow(target="faults")
def test_a_fork_of_an_older_run_continues_from_its_loss(older: Older) -> None:
    """With the old shards and tokenizer; with others it would start at the loss of an untrained model."""
    delete_active_runs(older)
    parent = older.run("succeeded")["run"]
    steps = parent["spec"]["schedule"]["steps"]
    fork = older.team.fork(parent["id"], "continued", {"schedule.steps": steps + 6})
    assert finished(older.team, fork.id, 300).state is RunState.SUCCEEDED
    (losses,) = (item for item in older.team.metrics(fork.id).series if item.name == "loss")
    assert losses.steps == list(range(steps + 1, steps + 7))
    assert max(losses.values) < parent["summary"]["values"]["loss"] + 0.5


@pytest.mark.parametrize(
    "found",
    [{"a": [1, {"b": 3}]}, {"a": [1]}, {"a": [1, {}]}, {"b": [1, {"b": 2}]}, {}, None],
)
def test_an_injected_difference_is_detected(found: Any) -> None:
    assert differences({"a": [1, {"b": 2}]}, found)
    assert differences({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2, "later": 0}], "later": 0}) == []


def delete_active_runs(older: Older) -> None:
    """Free the slots of the run in progress, unless the first test has done so."""
    for run in older.team.runs():
        if run.state not in FINAL:
            older.team.cancel(run.id)
            finished(older.team, run.id)
            older.team.delete_run(run.id)


def short_run(older: Older, tokenizer: str) -> dict[str, Any]:
    """The old spec for 10 steps on one slot, with its old shards or with new ones."""
    spec: dict[str, Any] = older.run("succeeded")["run"]["spec"]
    changed = {
        "name": f"Tokens {tokenizer}",
        "schedule": {"steps": 10, "warmup_steps": 2},
        "resources": {"device": "cpu", "slots_per_node": 1},
        "parallelism": {},
    }
    if tokenizer == "new":
        changed["data"] = spec["data"] | {"tokenizer": {"kind": "bpe", "vocabulary": 320}}
    return spec | changed


def lists_bad_lines(older: Older, name: str, expected: list[tuple[str, int]]) -> bool:
    found = older.team.rejected_documents(older.dataset_id(name), 1)
    return [(line.file, line.line) for line in found if line.reason] == expected


def weights_of(older: Older, name: str) -> set[str]:
    """Digests of the tensor files of the run's checkpoints."""
    files = [file for checkpoint in older.run(name)["checkpoints"] for file in checkpoint["files"].items()]
    return {digest_of_file for file, (_, digest_of_file) in files if file.endswith(".safetensors")}


def log_text(team: TeamClient, run_id: str, attempt: int, file: str) -> str:
    text, offset = "", 0
    while True:
        part = team.log_text(run_id, attempt, file, offset)
        text, offset = text + part.text, part.next_offset
        if part.end:
            return text


def digest(what: object) -> str:
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def digests_below(folder: Path) -> set[str]:
    """SHA-256 of every file, except files that are deleted meanwhile."""
    found = set()
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                found.add(hashlib.sha256(Path(parent, name).read_bytes()).hexdigest())
    return found


def differences(expected: Any, found: Any, at: str = "") -> list[str]:
    """Differences between ``found`` and ``expected``, not counting keys that only ``found`` has."""
    if isinstance(expected, dict) and isinstance(found, dict):
        there = [name for name in expected if name in found]
        missing = [f"{at}.{name} is missing" for name in expected if name not in found]
        return missing + [
            line for name in there for line in differences(expected[name], found[name], f"{at}.{name}")
        ]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return [line for n, (one, other) in pairs for line in differences(one, other, f"{at}[{n}]")]
    return [] if expected == found else [f"{at} was {expected!r} and is {found!r}"]
