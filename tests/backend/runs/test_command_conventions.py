"""What all commands share: the files that they read, the team, exit codes, and what happens if the reader goes away."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.backend.runs.conftest import Served, key_of
from tests.backend.scripted_agent import Scene
from trainwright import cli
from trainwright.commands import run_logs
from trainwright.prepare.tokenizer import byte_tokenizer, tokenizer_bytes
from trainwright_backend.nodes import load_history
from trainwright_backend.runs import attempt_files

PROGRAM = Path(sys.executable).with_name("trainwright")


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture
def spec(scene: Scene, tmp_path: Path) -> Path:
    """A spec as the page of a new run writes it."""
    path = tmp_path / "form.yaml"
    path.write_text(
        f"# Fields that are left out keep their defaults.\nname: pilot\ndata:\n  dataset: {scene.dataset}\n"
        "schedule:\n  steps: 10\nresources:\n  device: cpu\n"
    )
    return path


def test_the_yaml_of_the_page_is_checked_and_submitted(served: Served, key: str, spec: Path) -> None:
    for command in ("runs check", "estimate", "plan", "recipes save pilot", "runs submit"):
        done = served.command(key, f"{command} {spec}")
        assert done.exit_code == 0, done.output
    spec.write_text("name: pilot\nname: again\n")
    refused = served.command(key, f"runs check {spec}")
    assert refused.stderr.startswith(f"{spec}: line 2: the key 'name' appears twice")


def test_plans_use_the_words_and_units_of_the_pages(served: Served, key: str, spec: Path) -> None:
    estimated = served.command(key, f"estimate {spec}").stdout
    assert "\ncompute      " in estimated and "arithmetic" not in estimated
    planned = served.command(key, f"what-if {spec} --gpu h100").stdout
    last = planned.splitlines()[-1]
    assert re.fullmatch(
        r"time    about (less than )?[\d.]+ (ms|s|min), estimated at \d+ % of the peak", last
    ), planned


def test_all_problems_of_a_spec_are_shown_at_once(scene: Scene, served: Served, key: str, spec: Path) -> None:
    nine = "--set resources.slots_per_node=9 --set schedule.steps=0"
    for command in ("runs check", "runs submit", "plan", "estimate"):
        refused = served.command(key, f"{command} {spec} {nine}")
        fields = [line.partition(":")[0] for line in refused.stderr.splitlines()]
        assert (refused.exit_code, refused.stdout) == (1, ""), refused.output
        assert sorted(fields) == ["resources.slots_per_node", "schedule.steps"], refused.output
    checked = served.command(key, f"runs check {spec} {nine} --json")
    assert checked.exit_code == 1 and len(json.loads(checked.stdout)["problems"]) == 2
    planned = served.command(key, f"what-if {spec} --set resources.slots_per_node=9 --gpu h100 --count 2")
    assert planned.exit_code == 0 and planned.stdout.startswith("2 × "), "its own slots do not matter"


@pytest.mark.parametrize("command", ["runs check", "runs submit", "plan", "estimate", "what-if --gpu h100"])
def test_a_spec_that_is_not_json_is_refused_by_field(
    served: Served, key: str, spec: Path, command: str
) -> None:
    refused = served.command(key, f"{command} {spec} --set optimizer.learning_rate=NaN")
    assert refused.exit_code == 1 and refused.stderr.startswith("optimizer.learning_rate: "), refused.output


def started(served: Served, key: str, words: str, *, stdout: int, stderr: int) -> subprocess.Popen[str]:
    """A command in a process of its own, which Ctrl-C ends even if the tests run in the background, where it is ignored."""
    names = {"SERVER": served.url, "KEY": key, "TEAM": "acme"}
    environment = os.environ | {f"TRAINWRIGHT_{name}": value for name, value in names.items()}
    return subprocess.Popen(
        [str(PROGRAM), *words.split()],
        env=environment,
        text=True,
        stdout=stdout,
        stderr=stderr,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.parametrize(
    "words", ["--help", "schema", "presets", "runs show {run}", "runs events {run}", "runs logs {run}"]
)
def test_a_reader_that_goes_away_is_no_error(scene: Scene, served: Served, key: str, words: str) -> None:
    work = scene.running()
    work.log(b"a line\n")
    reader, writer = os.pipe()
    os.close(reader)
    process = started(served, key, words.format(run=work.run_id), stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    printed = process.communicate(timeout=60)[1]
    assert (process.returncode, printed) == (0, "")
    scene.cancel(work.run_id)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("presets", 0),
        ("runs submit {spec}", 0),
        ("runs show run_none", 1),
        ("runs list --server http://127.0.0.1:9", 1),
        ("runs list --server http://127.0.0.1:9 --key=", 1),
        ("runs check {spec} --set schedule.steps=none", 1),
        ("runs nothing", 2),
        ("runs list --state nothing", 2),
    ],
)
def test_exit_codes_stay_if_nobody_reads_stderr(
    served: Served, key: str, spec: Path, words: str, code: int
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = started(served, key, words.format(spec=spec), stdout=subprocess.PIPE, stderr=writer)
    os.close(writer)
    printed = process.communicate(timeout=60)[0]
    assert process.returncode == code
    assert bool(printed) == (code == 0), "stdout is still read"


@pytest.mark.parametrize("words", ["runs check {spec} --json", "runs cancel run_none --json"])
def test_a_failed_command_fails_even_if_nobody_reads_stdout(
    scene: Scene, served: Served, key: str, spec: Path, words: str
) -> None:
    spec.write_text(spec.read_text().replace(scene.dataset, "ds_none"))
    reader, writer = os.pipe()
    os.close(reader)
    process = started(served, key, words.format(spec=spec), stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    printed = process.communicate(timeout=60)[1]
    assert (process.returncode, printed) == (1, "")


@pytest.mark.parametrize("is_id_read", [True, False])
def test_a_run_is_waited_for_even_if_nobody_reads_the_output(
    scene: Scene, served: Served, key: str, spec: Path, is_id_read: bool
) -> None:
    reader, writer = os.pipe()
    if not is_id_read:
        os.close(reader)
    process = started(served, key, f"runs submit {spec} --wait", stdout=writer, stderr=writer)
    os.close(writer)
    if is_id_read:
        assert os.read(reader, 4).startswith(b"run_")
        os.close(reader)
    cancel_the_run(scene)
    assert process.wait(timeout=60) == 1, "it was cancelled"


def cancel_the_run(scene: Scene) -> None:
    """Cancel the only run once it is submitted."""
    deadline = time.monotonic() + 60
    while not (runs := scene.site.admin.get(scene.runs).json()["items"]):
        assert time.monotonic() < deadline, "nothing was submitted"
        time.sleep(0.1)
    scene.cancel(runs[0]["id"])


def without_team(served: Served, key: str, *words: str) -> Result:
    names = {"SERVER": served.url, "KEY": key, "TEAM": ""}
    environment = {f"TRAINWRIGHT_{name}": value for name, value in names.items()}
    return CliRunner().invoke(cli.app, words, env=environment)


def test_the_only_team_of_a_person_is_the_default(scene: Scene, served: Served, key: str) -> None:
    run = scene.submit()
    assert run in without_team(served, key, "runs", "list").stdout
    scene.site.other_team("initech")
    several = without_team(served, key_of(scene.site.admin), "runs", "list")
    assert several.exit_code == 2 and "acme, initech. Choose one with --team" in several.stderr
    assert run in without_team(served, key, "runs", "list", "--team", "acme").stdout
    nobody = without_team(served, "", "runs", "list")
    assert nobody.exit_code == 1 and "trainwright login" in nobody.stderr, "a team does not come first"


def test_a_team_is_named_to_leave_it_and_never_empty(scene: Scene, served: Served) -> None:
    viewer = key_of(scene.site.member("viewer"))
    unnamed = without_team(served, viewer, "members", "leave")
    assert unnamed.exit_code == 2 and "Missing option '--team'" in unnamed.stderr
    for words in (
        ("members", "leave"),
        ("members", "remove", "ada@acme.example"),
        ("teams", "rename", "Mine"),
        ("teams", "delete", "--confirm", "acme"),
        ("runs", "list"),
    ):
        refused = without_team(served, viewer, *words, "--team", "")
        assert refused.exit_code == 2 and "Invalid value for '--team'" in refused.stderr, refused.output
    left = without_team(served, viewer, "members", "leave", "--team", "acme")
    assert left.stdout == "You are no longer in acme.\n", left.output


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("runs check {spec}", 0),
        ("runs check {spec} --set schedule.steps=none", 1),
        ("runs check {folder}/missing.json", 1),
        ("runs check {folder}/damaged.json", 1),
        ("runs show run_none", 1),
        ("runs check {spec} --set steps", 2),
        ("runs check {spec} --nothing", 2),
        ("runs check", 2),
        ("runs nothing", 2),
        ("runs list --state nothing", 2),
    ],
)
def test_only_a_wrong_command_line_gives_exit_code_2(
    served: Served, key: str, spec: Path, words: str, code: int
) -> None:
    (spec.parent / "damaged.json").write_text("{")
    done = served.command(key, words.format(spec=spec, folder=spec.parent))
    assert done.exit_code == code, done.output


def test_the_list_says_who_submitted_each_run_and_when(scene: Scene, served: Served, key: str) -> None:
    work = scene.running()
    row = served.command(key, "runs list").stdout.splitlines()[1]
    age = row.split("Ada")[1].split()
    assert row.split()[0] == work.run_id and age[1] in ("ms", "s", "min"), row


def test_states_are_those_of_the_pages(scene: Scene, served: Served, key: str) -> None:
    work = scene.running()
    assert work.ended("crash") == "retry_wait"
    waiting = scene.submit()
    for state in ("recovering", "retry_wait", "Recovering"):
        listed = served.command(key, f"runs list --state {state}").stdout
        assert work.run_id in listed and waiting not in listed and " recovering " in listed
    groups = served.command(key, "runs list --group state").stdout
    assert "recovering" in groups and "queued" in groups and "retry_wait" not in groups
    served.command(key, "runs save-view early --state starting")
    assert set(served.received[-1].body["view"]["state"]) == {"leased", "starting"}
    refused = served.command(key, "runs list --state finshing")
    shown = " ".join(refused.stderr.replace("│", " ").split())
    assert "There is no state 'finshing'. Did you mean 'finishing'?" in shown
    assert "recovering" in shown and "leased" not in shown and "retry_wait" not in shown


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("whoami", "account show"),
        ("runs stop run_1", "cancel"),
        ("stop", "runs cancel"),
        ("compare a b", "runs compare"),
        ("prune", "checkpoints prune"),
        ("run", "runs"),
    ],
)
def test_other_words_lead_to_the_command(served: Served, key: str, words: str, command: str) -> None:
    done = served.command(key, words)
    assert done.exit_code == 2 and f"Did you mean '{command}'?" in done.stderr


def test_a_command_that_several_groups_have_is_suggested_with_some_of_them(served: Served, key: str) -> None:
    shown = " ".join(served.command(key, "list").stderr.replace("│", " ").split())
    assert "Did you mean 'datasets list', 'tokenizers list', 'runs list', 'queue list' or another?" in shown


def test_a_run_can_be_given_by_a_name_that_no_other_run_has(scene: Scene, served: Served, key: str) -> None:
    run_id, first, second = scene.submit(name="pilot"), scene.submit(name="twin"), scene.submit(name="twin")
    scene.submit(name="pilot-2")
    assert json.loads(served.command(key, "runs show pilot --json").stdout)["id"] == run_id
    assert "pilot" in served.command(key, f"runs compare pilot {first}").stdout
    ambiguous = served.command(key, "runs events twin")
    assert ambiguous.exit_code == 1
    assert (
        "2 runs are named 'twin'" in ambiguous.stderr
        and first in ambiguous.stderr
        and second in ambiguous.stderr
    )
    unknown = served.command(key, "runs show nothing")
    assert unknown.exit_code == 1 and "No run of this team has the id or the name 'nothing'" in unknown.stderr


def test_actions_take_names_too_and_do_nothing_if_one_is_ambiguous(
    scene: Scene, served: Served, key: str
) -> None:
    pilot, other = scene.submit(name="pilot"), scene.submit(name="other")
    twins = [scene.submit(name="twin") for _ in range(2)]
    ambiguous = served.command(key, "runs cancel pilot twin")
    assert ambiguous.exit_code == 1 and all(twin in ambiguous.stderr for twin in twins)
    assert scene.show(pilot)["state"] == "queued"
    assert served.command(key, "runs edit pilot --notes a").exit_code == 0
    assert served.command(key, "runs tag pilot other --add a").exit_code == 0
    done = served.command(key, f"runs cancel pilot nothing {other}")
    assert done.exit_code == 1 and done.stderr.startswith("nothing  ")
    assert [scene.show(run)["state"] for run in (pilot, other)] == ["cancelled", "cancelled"]


def test_what_has_a_name_can_be_given_by_it(scene: Scene, served: Served, key: str, spec: Path) -> None:
    run, other = scene.submit(name="pilot"), scene.submit(name="other")
    tokenizer = spec.with_name("tokenizer.json")
    tokenizer.write_bytes(tokenizer_bytes(byte_tokenizer()))
    uploaded = f"tokenizers upload bytes {tokenizer}"
    for words in (uploaded, f"recipes save small {spec}", "runs save-view mine", "recipes show small"):
        assert served.command(key, words).exit_code == 0
    for words, sent in (
        ("queue reorder other pilot", {"runs": [other, run]}),
        ("queue priority low pilot", {"priority": "low"}),
        ("checkpoints prune --run pilot --yes", {"runs": [run]}),
        ("tokenizers delete bytes", {}),
        ("recipes delete small", {}),
        ("runs delete-view mine", {}),
    ):
        done = served.command(key, words)
        assert done.exit_code == 0, done.output
        assert sent.items() <= (served.received[-1].body or {}).items()
    for words in ("recipes delete small", "runs delete-view mine", "tokenizers delete bytes"):
        refused = served.command(key, words)
        assert refused.exit_code == 1 and "lists them" in refused.stderr


def test_values_have_the_titles_and_formats_of_the_pages(scene: Scene, served: Served, key: str) -> None:
    work = scene.running()
    values = {"loss": [2.71828], "validation_loss": [3.0], "tokens_per_second": [441_037.0], "mfu": [0.4523]}
    work.send(work.batch(metrics=[{"steps": [4], "series": values}]))
    shown = served.command(key, f"runs show {work.run_id}").stdout
    assert "loss 2.718, validation loss 3.000, tokens/s 441,000, MFU 45.2 %" in " ".join(shown.split())
    compared = served.command(
        key, f"runs compare {work.run_id} {work.run_id} --metric validation_loss"
    ).stdout
    assert "validation loss at step" in compared and "validation_loss" not in compared


def test_a_run_is_shown_with_the_name_of_its_dataset_and_its_slots(
    scene: Scene, served: Served, key: str
) -> None:
    dataset = scene.site.admin.get(f"{scene.site.path}/datasets/{scene.dataset}").json()
    scene.submit(slots=2, name="pilot")
    shown = " ".join(served.command(key, "runs show pilot").stdout.split())
    assert f" data {dataset['name']} version 1 " in shown and " hardware 2 CPU slots " in shown


def test_a_run_of_a_deleted_dataset_is_shown_with_the_id(scene: Scene, served: Served, key: str) -> None:
    run = scene.submit()
    scene.cancel(run)
    deleted = scene.site.admin.delete(f"{scene.site.path}/datasets/{scene.dataset}")
    assert deleted.status_code == 204, deleted.text
    shown = " ".join(served.command(key, f"runs show {run}").stdout.split())
    assert f" data {scene.dataset} (deleted) version 1 " in shown


def test_each_column_of_a_list_has_a_title_and_a_loss_appears_once(
    scene: Scene, served: Served, key: str
) -> None:
    work = scene.start(steps=1_000)
    assert work.finish(1_000) == "succeeded"
    heading, row = served.command(key, "runs list").stdout.splitlines()
    assert heading.split() == ["id", "state", "name", "by", "age", "loss", "tokens/s", "progress"]
    assert "0.00100" in row and "loss" not in row and row.split()[-2:] == ["1,000", "steps"]
    for command in (f"runs checkpoints {work.run_id}", "checkpoints list", "checkpoints prune --dry-run"):
        shown = served.command(key, command).stdout
        assert " 1,000 " in shown and work.run_id not in shown, shown
    assert " pilot " in shown


def test_the_load_of_a_node_is_summarized_by_hour(
    scene: Scene, served: Served, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = {
        "memory_bytes": 3 * 2**30,
        "memory_total_bytes": 2**34,
        "disk_bytes": 0,
        "disk_total_bytes": 2**40,
    }
    for minutes, cpu in ((0, 0.2), (10, 0.4), (125, 0.6)):
        at = datetime(2026, 3, 1, 12, minutes % 60, tzinfo=UTC) + timedelta(hours=minutes // 60)
        monkeypatch.setattr(load_history, "now", lambda: at)  # noqa: B023
        gpus = [{"index": 0, "utilization": 0.25}]
        scene.agent.heartbeat(hardware=memory | {"cpu_utilization": cpu, "gpus": gpus})
    heading, first, second = served.command(key, "nodes load node-a").stdout.splitlines()
    assert heading.split() == ["from", "CPU", "memory", "disk", "GPUs"]
    assert " 30 % " in first and " 3 GiB " in first and " 25 % " in first and " 60 % " in second
    assert served.command(key, "nodes load node-a --hours 25").exit_code == 2


def test_slots_and_sizes_are_written_as_on_the_pages(scene: Scene, served: Served, key: str) -> None:
    [node] = scene.show(scene.running().run_id)["nodes"]
    waiting = scene.submit(slots=2, name="later")
    listed = " ".join(served.command(key, "nodes list").stdout.split())
    shown = served.command(key, f"nodes show {node}").stdout.splitlines()
    assert "CPU slots" in listed and " cpu" not in listed and "0 of 0" not in listed
    assert shown[0] == f"{node}: online" and shown[1].endswith(" CPU slots")
    assert shown[3] == "runs: acme/pilot (running)"
    heading, row = served.command(key, "queue list").stdout.splitlines()
    assert heading.split()[-3:] == ["why", "it", "waits"] and waiting in row and " 2 CPU slots " in row
    version = served.command(key, f"datasets show {scene.dataset}").stdout.splitlines()[1]
    assert re.fullmatch(r"version 1: ready, 1 file, [\d.]+ (B|KiB)", version), version


@pytest.mark.parametrize(
    ("earlier", "present"),
    [
        ("checkpoints retain --keep-last 1", "checkpoints prune --keep-last 1 --dry-run"),
        (
            "checkpoints retain --run {run} --delete-exports --delete",
            "checkpoints prune --run {run} --delete-exports --yes",
        ),
        ("layout {run} --set batch.micro_sequences=4", "runs layout {run} --set batch.micro_sequences=4"),
        ("datasets rejected {dataset} 1", "datasets rejected {dataset} --version 1"),
        ("datasets rejected {dataset} 1", "datasets rejected {dataset}"),
        ("datasets documents {dataset} 1 --limit 5", "datasets documents {dataset} --limit 5"),
    ],
)
def test_the_earlier_form_of_a_command_sends_the_same_request(
    scene: Scene, served: Served, key: str, earlier: str, present: str
) -> None:
    names = {"run": scene.submit(), "dataset": scene.dataset}
    sent = []
    for words in (earlier, present):
        done = served.command(key, words.format(**names))
        assert done.exit_code == 0, done.output
        sent.append(served.received[-1])
    assert sent[0] == sent[1]


def test_old_checkpoints_are_deleted_only_once_that_is_confirmed(
    scene: Scene, served: Served, key: str
) -> None:
    work = scene.start()
    work.finish(10)
    command = f"checkpoints prune --run {work.run_id} --keep-last 0 --delete-exports"
    listed = served.command(key, f"{command} --dry-run --json")
    doomed = json.loads(listed.stdout)["freed"]["checkpoints"]
    for typed, code in (("n\n", 1), ("", 1), ("y\n", 0)):
        before = len(served.received)
        done = served.command(key, command, typed)
        sent = [request.body["dry_run"] for request in served.received[before:]]
        assert (done.exit_code, sent) == (code, [True] if code else [True, False]), done.output
        assert "Delete them? [y/N]" in done.stderr and f"{doomed} checkpoint" in done.stderr
    assert served.command(key, command).exit_code == 0, "nothing is left to ask about"


def test_a_command_line_names_one_version(scene: Scene, served: Served, key: str) -> None:
    done = served.command(key, f"datasets rejected {scene.dataset} 1 --version 2")
    assert done.exit_code == 2 and "Name one." in done.stderr


@pytest.mark.parametrize("words", ["runs watch {run}", "runs submit {spec} --wait"])
def test_ctrl_c_ends_the_waiting_and_names_the_command_that_cancels(
    scene: Scene, served: Served, key: str, spec: Path, words: str
) -> None:
    run = scene.submit() if "watch" in words else ""
    command = words.format(run=run, spec=spec)
    process = started(served, key, command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("queued: ")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    run = run or out.strip()
    assert process.returncode == 130
    assert err.endswith(f"The run continues. Cancel it with: trainwright runs cancel {run}\n"), err
    assert scene.state(run) == "queued"


def test_submit_and_wait_prints_the_id_only(scene: Scene, served: Served, key: str, spec: Path) -> None:
    canceller = threading.Thread(target=cancel_the_run, args=(scene,), daemon=True)
    canceller.start()
    done = served.command(key, f"runs submit {spec} --wait")
    canceller.join()
    [run] = done.stdout.splitlines()
    assert run.startswith("run_") and done.exit_code == 1, "it was cancelled"
    assert "cancelled: " in done.stderr.splitlines()[-1]


def test_logs_say_which_attempt_they_are_of_and_which_ranks_there_are(
    scene: Scene, served: Served, key: str
) -> None:
    work = scene.running()
    work.log(b"first\n")
    only = served.command(key, f"runs logs {work.run_id}")
    assert (only.stdout, only.stderr) == ("first\n", "")
    missing = served.command(key, f"runs logs {work.run_id} --rank 9")
    assert missing.exit_code == 1
    assert "no log named 'rank-9.log'. It has rank-0.log." in missing.stderr
    assert work.ended("crash") == "retry_wait"
    scene.end_backoff(work.run_id)
    scene.again(work.run_id).log(b"second\n")
    newest = served.command(key, f"runs logs {work.run_id}")
    assert newest.stdout == "second\n"
    assert "attempt 2, the newest. See an earlier one with --attempt 1." in newest.stderr
    assert served.command(key, f"runs logs {work.run_id} --attempt 1").stderr == ""
    scene.cancel(work.run_id)


def test_a_run_that_has_not_started_has_no_log(scene: Scene, served: Served, key: str) -> None:
    done = served.command(key, f"runs logs {scene.submit()}")
    assert done.exit_code == 1 and "no log, because it has not started" in done.stderr


def test_an_edit_without_changes_is_refused(scene: Scene, served: Served, key: str) -> None:
    before = len(served.received)
    refused = served.command(key, f"runs edit {scene.submit()}")
    assert (refused.exit_code, refused.stderr) == (2, "Give --name or --notes.\n")
    assert len(served.received) == before


def test_a_log_is_printed_with_times_if_they_are_asked_for(
    scene: Scene, served: Served, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_logs, "LINES_AT_ONCE", 2)
    work = scene.running()
    begin = datetime(2026, 1, 31, 9, tzinfo=UTC)
    for second, text in enumerate((b"one\ntw", b"o\nthree\n", b"four\nfi")):
        monkeypatch.setattr(attempt_files, "now", lambda: begin + timedelta(seconds=second))  # noqa: B023
        work.log(text)
    times = zip(("00", "01", "01", "02", "02"), ("one", "two", "three", "four", "fi"), strict=True)
    shown = served.command(key, f"runs logs {work.run_id} --timestamps")
    assert shown.stdout == "".join(f"2026-01-31T09:00:{time}Z {text}\n" for time, text in times), shown.output
    assert served.command(key, f"runs logs {work.run_id}").stdout == "one\ntwo\nthree\nfour\nfi"
    scene.cancel(work.run_id)


def test_a_followed_log_with_times_has_only_complete_lines_until_the_end(
    scene: Scene, served: Served, key: str
) -> None:
    work = scene.running()
    work.log(b"one\ntw")
    command = f"runs logs {work.run_id} --timestamps --follow"
    process = started(served, key, command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline().endswith("Z one\n")
    work.log(b"o\nthree")
    assert process.stdout.readline().endswith("Z two\n")
    scene.cancel(work.run_id)
    assert work.ended("cancelled") == "cancelled"
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out[20:], err) == (0, " three\n", "")


def test_a_model_is_not_downloaded_onto_a_file(
    scene: Scene, served: Served, key: str, tmp_path: Path
) -> None:
    file = tmp_path / "letters.jsonl"
    file.write_text("{}")
    done = served.command(key, f"runs download {scene.submit()} {file}")
    assert done.exit_code == 1 and f"{file} is a file, not a folder." in done.stderr
    assert file.read_text() == "{}"
