"""The command line against a live platform and a real trainer, from upload to a downloaded checkpoint and a fork."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.live import PATIENT_TIMERS, TEAM, Live, live_platform, series, small_spec, write_letters
from trainwright.cli import app
from trainwright.contracts.api.actions import RunAction
from trainwright.contracts.api.runs import Run
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright.contracts.run_state import RunState

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow(target="faults")]

STEPS = 12


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_platform(tmp_path_factory.mktemp("platform") / "data", PATIENT_TIMERS) as running:
        yield running


@pytest.fixture(scope="module")
def dataset(live: Live, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Id of a dataset that the command line uploaded."""
    letters = write_letters(tmp_path_factory.mktemp("letters") / "l.jsonl")
    return output(run_cli(live, "datasets", "upload", "letters", letters))


@pytest.fixture(scope="module")
def spec(live: Live, dataset: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The file of a spec on that dataset, with a checkpoint after every fourth step."""
    content: dict[str, Any] = small_spec(live.team.dataset(dataset))
    # A copied configuration sets unused fields to null.
    content |= {"name": "by hand", "precision": {"kind": "fp32", "fp8": None}}
    content |= {"checkpoint": {"every_steps": 4, "keep": 10}}
    file = tmp_path_factory.mktemp("spec") / "spec.json"
    file.write_text(json.dumps(content))
    return str(file)


@pytest.fixture(scope="module")
def parent(live: Live, spec: str) -> Run:
    """A run of 12 steps that the command line submitted and waited for."""
    submitted = run_cli(live, "runs", "submit", spec, "--set", f"schedule.steps={STEPS}", "--wait")
    run = live.team.run(output(submitted))
    assert run.state is RunState.SUCCEEDED, run.sentence
    return run


def run_cli(live: Live, *words: object) -> Result:
    key = live.client.create_key("cli").secret
    environment = {"TRAINWRIGHT_SERVER": live.platform.url, "TRAINWRIGHT_KEY": key, "TRAINWRIGHT_TEAM": TEAM}
    return CliRunner().invoke(app, [str(word) for word in words], env=environment)


def output(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def test_upload_check_submit_follow_and_download(
    live: Live, dataset: str, spec: str, parent: Run, tmp_path: Path
) -> None:
    assert dataset.startswith("ds_")
    assert "letters" in output(run_cli(live, "datasets", "list"))
    assert "letters" in output(run_cli(live, "datasets", "list", "--search", "LETT"))
    assert output(run_cli(live, "datasets", "list", "--search", "numbers")) == "No datasets."
    assert "parameters" in output(run_cli(live, "runs", "check", spec, "--set", "schedule.steps=12"))
    fp8 = ("precision.kind=fp8", "precision.fp8.level=O1", "precision.fp8.skip_limit=0")
    changes = [word for change in fp8 for word in ("--set", change)]
    assert "parameters" in output(run_cli(live, "runs", "check", spec, *changes))

    run = parent.id
    assert run.startswith("run_")
    shown = json.loads(output(run_cli(live, "runs", "show", run, "--json")))
    assert (shown["state"], shown["summary"]["step"]) == ("succeeded", STEPS)
    text = output(run_cli(live, "runs", "show", run))
    assert f"{parent.name}  {run}\ndone: " in text
    rows = [line.split(maxsplit=1) for line in text.splitlines()[2:]]
    assert {"data", "model", "values", "checkpoints", "created"} <= {name for name, _ in rows}
    assert dict(rows)["step"].strip() == f"{STEPS} of {STEPS}" and dict(rows)["data"].startswith(
        "letters version "
    )
    assert run in output(run_cli(live, "runs", "list", "--state", "done")).replace("\n", "")
    assert "step 10" in output(run_cli(live, "runs", "logs", run))
    assert "export" in output(run_cli(live, "runs", "checkpoints", run))
    assert len(output(run_cli(live, "runs", "events", run)).splitlines()) >= 6
    folder = tmp_path / "export"
    assert output(run_cli(live, "runs", "download", run, folder)) == str(folder)
    assert output(run_cli(live, "runs", "download", run, folder)) == str(folder), "it is complete"
    (folder / "model.safetensors").write_bytes(b"another model")
    refused = run_cli(live, "runs", "download", run, folder)
    assert refused.exit_code == 1 and "another model: model.safetensors." in refused.output
    assert (folder / "model.safetensors").read_bytes() == b"another model"


def test_mistakes_are_explained_in_a_sentence(live: Live, spec: str, tmp_path: Path) -> None:
    unknown = tmp_path / "unknown.json"
    unknown.write_text(Path(spec).read_text().replace('"dataset": "ds_', '"dataset": "ds_unknown'))
    for words, expected in [
        (("runs", "check", spec, "--set", "optimizer.lerning_rate=1"), "Did you mean 'learning_rate'?"),
        (
            ("runs", "check", spec, "--set", "precision.kind=fp8", "--set", "precision.fp8.levle=O1"),
            "'level'",
        ),
        (
            ("runs", "check", spec, "--set", "precision.fp8.level=O1"),
            "set it to fp8, or leave precision.fp8 out",
        ),
        (("runs", "check", spec, "--set", "name.first=x"), "is a value, not a section"),
        (("runs", "submit", unknown), "data.dataset"),
        (("runs", "show", "run_nonsense"), "run"),
        (("datasets", "upload", "x", tmp_path / "missing.jsonl"), "missing.jsonl"),
        (("runs", "check", tmp_path / "none.json"), "none.json: No such file or directory."),
    ]:
        result = run_cli(live, *words)
        assert result.exit_code != 0, words
        assert expected in result.output
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception


def test_waiting_for_an_upload_reports_its_outcome(live: Live, tmp_path: Path) -> None:
    good = run_cli(live, "datasets", "upload", "good", write_letters(tmp_path / "l.jsonl"))
    assert "ready" in good.stderr and live.team.dataset(output(good)).versions[0].statistics is not None
    again = run_cli(live, "datasets", "upload", "again", write_letters(tmp_path / "m.jsonl"))
    assert f"Version 1 of good ({output(good)}) has the same files." in again.stderr.replace("\n", " ")
    assert f"Version 1 of good ({output(good)}) has the same files." in output(
        run_cli(live, "datasets", "show", output(again))
    )
    bad = tmp_path / "bad.jsonl"
    bad.write_text("broken\n" * 3)
    unwaited = run_cli(live, "datasets", "upload", "bad", bad, "--no-wait")
    assert live.team.wait_for_version(output(unwaited), 1).error is not None
    failed = run_cli(live, "datasets", "upload", "bad", bad)
    assert failed.exit_code == 1 and failed.stdout.startswith("ds_")
    assert "all 3 rows were rejected" in failed.output
    previewed = run_cli(live, "datasets", "preview", bad)
    assert previewed.exit_code == 1 and "Nothing here can be read" in previewed.output
    previewed = run_cli(live, "datasets", "preview", tmp_path / "l.jsonl")
    assert previewed.exit_code == 0 and "No dataset was created." in previewed.stderr
    before = live.team.uploads()
    refused = run_cli(live, "datasets", "upload", "b/ad", write_letters(tmp_path / "new.jsonl"))
    assert refused.exit_code == 1 and "letters, digits" in refused.output
    assert live.team.uploads() == before, "nothing was sent"
    output(run_cli(live, "datasets", "delete", failed.stdout.split()[0]))
    output(run_cli(live, "datasets", "delete", output(again)))


def test_a_node_is_drained_and_a_queued_run_is_paused_and_resumed(live: Live, spec: str) -> None:
    (node,) = live.client.nodes()
    assert (
        f"There is no node 'gpu-99'. The nodes are: {node.name}."
        in run_cli(live, "nodes", "drain", "gpu-99").stderr
    )
    assert "gets no new runs" in output(run_cli(live, "nodes", "drain", node.name, "--move-runs"))
    assert "drained" in output(run_cli(live, "nodes", "list"))
    runs = [output(run_cli(live, "runs", "submit", spec)) for _ in range(2)]
    assert output(run_cli(live, "runs", "pause", *runs)).count("Paused before its first step") == 2
    assert [line.split()[0] for line in output(run_cli(live, "runs", "resume", *runs)).splitlines()] == runs
    refused = run_cli(live, "runs", "resume", *runs)
    assert refused.exit_code == 1
    assert "only a paused run can be resumed" in refused.stderr
    for run in runs:
        output(run_cli(live, "runs", "cancel", run))
    assert "gets new runs again" in output(run_cli(live, "nodes", "undrain", node.id))


def test_a_fork_without_changes_continues_bit_for_bit_like_its_parent(live: Live, parent: Run) -> None:
    state = next(checkpoint for checkpoint in live.team.checkpoints(parent.id) if checkpoint.step == 4)
    before = live.team.run(parent.id), live.team.checkpoints(parent.id)
    fork = ("runs", "fork", parent.id)
    at_step_4 = ("--checkpoint", state.id)
    same = output(run_cli(live, *fork, "same", *at_step_4))
    other = output(run_cli(live, *fork, "other", *at_step_4, "--set", "optimizer.learning_rate=0.02"))
    assert live.team.wait(same).state is live.team.wait(other).state is RunState.SUCCEEDED
    expected = series(live.team, parent.id, "loss")
    assert series(live.team, same, "loss") == {step: loss for step, loss in expected.items() if step > 4}
    changed = series(live.team, other, "loss")
    assert changed[5] == expected[5] and changed[6] != expected[6]
    assert (live.team.run(parent.id), live.team.checkpoints(parent.id)) == before
    forked_from = live.team.run(same).forked_from
    assert forked_from is not None and (forked_from.run, forked_from.step) == (parent.id, 4)


def test_the_command_line_edits_tags_clones_and_deletes(live: Live, parent: Run) -> None:
    assert (
        output(run_cli(live, "runs", "edit", parent.id, "--name", "first", "--notes", "the one")) == "first"
    )
    assert output(run_cli(live, "runs", "tag", parent.id, "--add", "a", "--add", "b"))
    assert output(run_cli(live, "runs", "tag", parent.id, "--add", "a", "--remove", "b", "--remove", "a"))
    shown = live.team.run(parent.id)
    assert (shown.name, shown.notes, shown.tags) == ("first", "the one", ["a"])
    assert [run.id for run in live.team.runs(tag="a")] == [parent.id]
    refused = run_cli(live, "runs", "clone", parent.id, "copy", "--set", "model.layer=2")
    assert refused.exit_code == 1 and "model.layer" in refused.output
    clone = output(run_cli(live, "runs", "clone", parent.id, "copy", "--set", "schedule.steps=1000000"))
    assert live.team.run(clone).spec.schedule.steps == 1_000_000
    assert run_cli(live, "runs", "delete", clone).exit_code == 1
    (result,) = live.team.act(RunAction.CANCEL, [clone])
    assert result.done
    live.team.wait(clone)
    assert "Would free" in output(run_cli(live, "runs", "delete", clone, "--dry-run"))
    assert "Freed" in output(run_cli(live, "runs", "delete", clone))


def test_the_command_line_keeps_and_deletes_checkpoints(live: Live, parent: Run) -> None:
    states = {
        checkpoint.step: checkpoint
        for checkpoint in live.team.checkpoints(parent.id)
        if checkpoint.kind is CheckpointKind.STATE
    }
    assert sorted(states) == [4, 8, 12]
    contents = states[12].contents
    assert contents is not None and contents.ranks == 2 and contents.resumed_from_step is None
    shown = json.loads(output(run_cli(live, "runs", "show", parent.id, "--json")))
    assert contents.dtypes.keys() == {"float32"}
    assert contents.dtypes["float32"] == 3 * contents.parameters, "weights and two moments"
    assert shown["id"] == parent.id
    output(run_cli(live, "checkpoints", "pin", parent.id, states[4].id))
    assert [checkpoint.id for checkpoint in live.team.all_checkpoints(pinned=True)] == [states[4].id]
    assert states[4].id in output(run_cli(live, "checkpoints", "list", "--pinned"))
    keep = ("--keep-last", 1, "--run", parent.id)
    would = output(run_cli(live, "checkpoints", "prune", *keep, "--dry-run"))
    assert "pinned" in would and "1 checkpoint." in would.splitlines()[-1]
    done = output(run_cli(live, "checkpoints", "prune", *keep, "--yes"))
    assert done == would.replace("Would free", "Freed")
    left = [(checkpoint.step, checkpoint.kind.value) for checkpoint in live.team.checkpoints(parent.id)]
    assert sorted(left) == [(4, "state"), (12, "export"), (12, "state")]
    assert run_cli(live, "checkpoints", "delete", parent.id, states[4].id).exit_code == 1
    output(run_cli(live, "checkpoints", "unpin", parent.id, states[4].id))
    assert "1 checkpoint." in output(run_cli(live, "checkpoints", "delete", parent.id, states[4].id))
