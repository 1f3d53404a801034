"""Data folders of earlier code open with today's, and what they hold is there, to the last digit.

`older_folder.md`, `older_folder_fp8.md` and `older_folder_0003.md` say what the folders hold. What they must say of
themselves, `expected.json` beside each, was told over HTTP by the code that made it. Fields that came later may stand in
today's answers; none of the old ones may be missing.
"""

import hashlib
import json
import os
import signal
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.live import SCALED_TIMERS, eventually, finished, live_environment, marked_processes
from trainwright.client import Client, TeamClient
from trainwright.connection import ApiError
from trainwright.contracts.api.people import Me
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright.contracts.run_state import FINAL, RunState
from trainwright_backend.core.ids import parse_id
from trainwright_backend.local import DataFolder, Platform, listen

pytestmark = pytest.mark.timeout(480)

ARCHIVES = ("older_folder", "older_folder_fp8", "older_folder_0003")
RUNS = ("succeeded", "cancelled")

OF_RUN = ("id", "name", "state", "sentence", "reason", "attempt", "created", "created_by", "started", "ended")
OF_PREPARATION = ("id", "state", "validation_fraction", "documents", "train_tokens", "validation_tokens")


@dataclass(frozen=True)
class Older:
    """The old folder under today's platform, a client with its old key, and what it must say."""

    platform: Platform
    client: Client
    team: TeamClient
    expected: Any

    def run(self, which: str) -> Any:
        return self.expected["runs"][which]

    def run_id(self, which: str) -> str:
        return str(self.run(which)["run"]["id"])

    def dataset_id(self, name: str) -> str:
        return str(self.expected["datasets"][name]["dataset"]["id"])


@contextmanager
def opened(name: str, folder: Path) -> Iterator[Older]:
    """Unpack the old folder ``name`` into ``folder`` and serve it."""
    with tarfile.open(Path(__file__).with_name(f"{name}.tar.gz")) as archive:
        for member in archive:
            archive.extract(member, folder, filter="data")
    expected = json.loads((folder / "older_folder/expected.json").read_text())
    account = expected["account"]
    data = DataFolder.take(folder / "older_folder/data")
    platform = Platform(data, listen("127.0.0.1", 0), environment=live_environment(SCALED_TIMERS))
    try:
        with platform, Client(platform.url, account["key"]) as client:
            yield Older(platform, client, client.team(account["team"]), expected)
    finally:
        for pid in marked_processes(data.path):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        data.release()


@pytest.fixture(scope="module", params=ARCHIVES)
def older(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Older]:
    """One platform for all tests of a folder: the first and the last change what it holds, the others only read."""
    with opened(request.param, tmp_path_factory.mktemp("older")) as found:
        yield found


@pytest.mark.parametrize("older", ["older_folder_fp8", "older_folder_0003"], indirect=True)
def test_a_run_that_was_under_way_goes_on(older: Older) -> None:
    """Left running when its platform was stopped, it goes on from the checkpoint that older code wrote: FP8 of before there
    was parallelism, and an FP8 pipeline."""
    team, run_id = older.team, older.run_id("under_way")
    saved = max(one["step"] for one in older.run("under_way")["checkpoints"])
    eventually(lambda: team.run(run_id).summary.attempt == 2, "its second attempt makes steps", 120)
    last = saved + 5
    eventually(lambda: team.run(run_id).summary.step >= last, f"step {last}", 120)
    told = team.metrics(run_id, points=100_000)
    assert [mark.resume_step for mark in told.attempts] == [0, saved]
    (losses,) = (one for one in told.series if one.name == "loss")
    assert losses.steps[:last] == list(range(1, last + 1)), (
        "every step up to the newest has its numbers, once"
    )
    assert losses.values[saved] < 1.2, "it learns on from where it was, at a loss of 0.8; it began at 5.5"
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


def test_the_node_is_the_one_that_joined_then(older: Older) -> None:
    eventually(lambda: any(node.online for node in older.client.nodes()), "the node is back", 60)
    assert [node.name for node in older.client.nodes()] == ["local"]


@pytest.mark.parametrize("which", RUNS)
def test_a_run_is_told_as_it_was(older: Older, which: str) -> None:
    expected, run_id = older.run(which), older.run_id(which)
    run = older.team.run(run_id).model_dump(mode="json")
    assert {name: run[name] for name in OF_RUN} == {name: expected["run"][name] for name in OF_RUN}
    assert lacking(expected["run"]["spec"], run["spec"]) == []
    assert lacking(expected["run"]["summary"]["values"], run["summary"]["values"]) == []
    events = [event.model_dump(mode="json") for event in older.team.events(run_id)]
    assert lacking(expected["events"], events) == []
    attempts = [mark.model_dump(mode="json") for mark in older.team.metrics(run_id).attempts]
    assert lacking(expected["attempts"], attempts) == []


@pytest.mark.parametrize("which", RUNS)
def test_its_curves_are_equal_point_by_point(older: Older, which: str) -> None:
    found = older.team.metrics(older.run_id(which), points=100_000).series
    told = {
        one.name: {
            "unit": one.unit,
            "points": len(one.steps),
            "last_step": one.steps[-1],
            "first": one.values[0],
            "last": one.values[-1],
            "digest": digest([one.steps, [value.hex() for value in one.values]]),
        }
        for one in found
    }
    assert told == older.run(which)["curves"]


@pytest.mark.parametrize("which", RUNS)
def test_its_logs_are_whole(older: Older, which: str) -> None:
    run_id = older.run_id(which)
    told = [
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
    assert told == older.run(which)["logs"]


@pytest.mark.parametrize("which", RUNS)
def test_its_checkpoints_download_byte_for_byte(older: Older, which: str, tmp_path: Path) -> None:
    run_id, expected = older.run_id(which), older.run(which)["checkpoints"]
    found = [one.model_dump(mode="json") for one in older.team.checkpoints(run_id)]
    without_files = [{name: one[name] for name in one if name != "files"} for one in expected]
    assert lacking(without_files, found) == []
    for one in expected:
        folder = older.team.download(run_id, tmp_path / one["id"], one["id"])
        files = {file.name: file.read_bytes() for file in folder.iterdir()}
        told = {name: [len(content), hashlib.sha256(content).hexdigest()] for name, content in files.items()}
        assert told == one["files"]


def test_the_export_of_the_run_is_found_without_its_id(older: Older, tmp_path: Path) -> None:
    (export,) = (one for one in older.run("succeeded")["checkpoints"] if one["kind"] == CheckpointKind.EXPORT)
    folder = older.team.download(older.run_id("succeeded"), tmp_path / "export")
    assert {file.name for file in folder.iterdir()} == set(export["files"])


@pytest.mark.parametrize("name", ["draft", "letters"])
def test_a_dataset_has_its_versions_files_and_preparations(older: Older, name: str) -> None:
    expected = older.expected["datasets"][name]["dataset"]
    found = older.team.dataset(older.dataset_id(name)).model_dump(mode="json")
    assert [found[key] for key in ("name", "created", "created_by")] == [
        expected[key] for key in ("name", "created", "created_by")
    ]
    assert [version["number"] for version in found["versions"]] == [
        version["number"] for version in expected["versions"]
    ]
    for version, then in zip(found["versions"], expected["versions"], strict=True):
        assert lacking(then["files"], version["files"]) == []
        known = {one["id"]: one for one in version["preparations"]}
        for one in then["preparations"]:
            assert [known[one["id"]][key] for key in OF_PREPARATION] == [one[key] for key in OF_PREPARATION]
            assert lacking(one["tokenizer"], known[one["id"]]["tokenizer"]) == []


@pytest.mark.parametrize("name", ["draft", "letters"])
def test_its_bad_lines_are_listed(older: Older, name: str) -> None:
    """A later release may read the files again and say it in other words, but not of other lines."""
    expected = [(line["file"], line["line"]) for line in older.expected["datasets"][name]["rejected"]]

    def listed() -> bool:
        found = older.team.rejected_documents(older.dataset_id(name), 1)
        return [(line.file, line.line) for line in found if line.reason] == expected

    eventually(listed, f"lines {expected} are listed")


def test_what_is_new_works_on_what_is_old(older: Older) -> None:
    """A dataset goes, its twin of the same bytes stays; both old shards and new ones train; a run goes."""
    team, objects = older.team, older.platform.folder.path / "objects"
    end_what_is_under_way(older)
    shared, only_drafts = (
        file["digest"] for file in older.expected["datasets"]["draft"]["dataset"]["versions"][0]["files"]
    )
    assert {shared, only_drafts} <= digests_below(objects)
    team.delete_dataset(older.dataset_id("draft"))
    eventually(lambda: only_drafts not in digests_below(objects), "the draft's bytes are gone")
    assert older.dataset_id("draft") not in {dataset.id for dataset in team.datasets()}

    trained = [team.submit(short_run(older, tokenizer)).id for tokenizer in ("as then", "anew")]
    with pytest.raises(ApiError) as refused:
        team.delete_dataset(older.dataset_id("letters"))
    assert refused.value.status == 409
    for run_id in trained:
        run = finished(team, run_id)
        assert run.state is RunState.SUCCEEDED, run.sentence
        assert run.summary.step == 10
    assert shared in digests_below(objects), "the bytes that the draft shared are the other's now"

    weights = weights_of(older, "cancelled")
    for one in older.run("cancelled")["checkpoints"]:
        path = f"runs/{older.run_id('cancelled')}/checkpoints/{one['id']}/files"
        older.client.fetch(f"/teams/{older.expected['account']['team']}/{path}")
    team.delete_run(older.run_id("cancelled"))
    deleted = trained.pop()
    (folder,) = objects.glob(f"*/runs/{parse_id('run', deleted)}")
    team.delete_run(deleted)
    eventually(lambda: not folder.exists(), "the run's bytes are gone")
    assert {run.id for run in team.runs()} == {older.run_id("succeeded"), *trained}
    assert weights & digests_below(objects) == weights, "links to these were given out and are still good"


def test_an_older_run_is_forked_and_goes_on_where_it_was(older: Older) -> None:
    """On the shards and the tokenizer of then: others would begin at the loss of somebody who has learnt nothing."""
    end_what_is_under_way(older)
    parent = older.run("succeeded")["run"]
    steps = parent["spec"]["schedule"]["steps"]
    fork = older.team.fork(parent["id"], "goes on", {"schedule.steps": steps + 6})
    assert finished(older.team, fork.id).state is RunState.SUCCEEDED
    (losses,) = (one for one in older.team.metrics(fork.id).series if one.name == "loss")
    assert losses.steps == list(range(steps + 1, steps + 7))
    assert max(losses.values) < parent["summary"]["values"]["loss"] + 0.5


@pytest.mark.parametrize(
    "found",
    [{"a": [1, {"b": 3}]}, {"a": [1]}, {"a": [1, {}]}, {"b": [1, {"b": 2}]}, {}, None],
)
def test_a_planted_difference_is_found(found: Any) -> None:
    assert lacking({"a": [1, {"b": 2}]}, found)
    assert lacking({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2, "later": 0}], "later": 0}) == []


def end_what_is_under_way(older: Older) -> None:
    """It holds the slots that others are to have, unless the first test has ended it."""
    for run in older.team.runs():
        if run.state not in FINAL:
            older.team.cancel(run.id)
            finished(older.team, run.id)
            older.team.delete_run(run.id)


def short_run(older: Older, tokenizer: str) -> dict[str, Any]:
    """The old spec for 10 steps on one slot, on the shards made then or on ones that are made now."""
    spec: dict[str, Any] = older.run("succeeded")["run"]["spec"]
    changed = {
        "name": f"Tokens {tokenizer}",
        "schedule": {"steps": 10, "warmup_steps": 2},
        "resources": {"device": "cpu", "slots_per_node": 1},
        "parallelism": {},
    }
    if tokenizer == "anew":
        changed["data"] = spec["data"] | {"tokenizer": {"kind": "bpe", "vocabulary": 320}}
    return spec | changed


def weights_of(older: Older, which: str) -> set[str]:
    """Digests of the tensor files of the run's checkpoints."""
    files = [file for one in older.run(which)["checkpoints"] for file in one["files"].items()]
    return {digest_of_file for name, (_, digest_of_file) in files if name.endswith(".safetensors")}


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
    """SHA-256 of every file; files and folders that go meanwhile are not counted."""
    found = set()
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                found.add(hashlib.sha256(Path(parent, name).read_bytes()).hexdigest())
    return found


def lacking(expected: Any, found: Any, at: str = "") -> list[str]:
    """Where ``found`` differs from ``expected``; keys that only ``found`` has do not count."""
    if isinstance(expected, dict) and isinstance(found, dict):
        there = [name for name in expected if name in found]
        missing = [f"{at}.{name} is missing" for name in expected if name not in found]
        return missing + [
            line for name in there for line in lacking(expected[name], found[name], f"{at}.{name}")
        ]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return [line for n, (one, other) in pairs for line in lacking(one, other, f"{at}[{n}]")]
    return [] if expected == found else [f"{at} was {expected!r} and is {found!r}"]
