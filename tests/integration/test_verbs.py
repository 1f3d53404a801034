"""What people do with runs that exist, by the command line and the client, against a live platform and a real trainer."""

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from tests.live import TEAM, Live, live_platform, series, small_spec, write_letters
from trainwright.cli import app
from trainwright.contracts.api.runs import Run
from trainwright.contracts.api.verbs import BulkVerb
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright.contracts.run_state import RunState

pytestmark = pytest.mark.timeout(600)

STEPS = 12


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_platform(tmp_path_factory.mktemp("platform") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def parent(live: Live, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of 12 steps with a checkpoint after each fourth."""
    letters = write_letters(tmp_path_factory.mktemp("letters") / "l.jsonl")
    dataset = live.team.upload("letters", [letters])
    spec = small_spec(dataset, schedule={"steps": STEPS, "warmup_steps": 2})
    spec["checkpoint"] = {"every_steps": 4, "keep": 10}
    ended = live.team.wait(live.team.submit(spec).id)
    assert ended.state is RunState.SUCCEEDED, ended.sentence
    return ended


def run_cli(live: Live, *words: object) -> Result:
    key = live.client.create_key("cli").secret
    environment = {"TRAINWRIGHT_SERVER": live.platform.url, "TRAINWRIGHT_KEY": key, "TRAINWRIGHT_TEAM": TEAM}
    return CliRunner().invoke(app, [str(word) for word in words], env=environment)


def said(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def test_a_fork_without_changes_goes_on_bitwise_as_its_parent_did(live: Live, parent: Run) -> None:
    state = next(one for one in live.team.checkpoints(parent.id) if one.step == 4)
    before = live.team.run(parent.id), live.team.checkpoints(parent.id)
    same = said(run_cli(live, "runs", "fork", parent.id, "same", "--checkpoint", state.id))
    other = said(
        run_cli(
            live,
            "runs",
            "fork",
            parent.id,
            "other",
            "--checkpoint",
            state.id,
            "--set",
            "optimizer.learning_rate=0.02",
        )
    )
    assert live.team.wait(same).state is live.team.wait(other).state is RunState.SUCCEEDED
    parents = series(live.team, parent.id, "loss")
    assert series(live.team, same, "loss") == {step: loss for step, loss in parents.items() if step > 4}
    went = series(live.team, other, "loss")
    assert went[5] == parents[5] and went[6] != parents[6]
    assert (live.team.run(parent.id), live.team.checkpoints(parent.id)) == before
    begun = live.team.run(same).forked_from
    assert begun is not None and (begun.run, begun.step) == (parent.id, 4)


def test_the_command_line_edits_tags_copies_and_deletes(live: Live, parent: Run) -> None:
    assert said(run_cli(live, "runs", "edit", parent.id, "--name", "first", "--notes", "the one")) == "first"
    assert said(run_cli(live, "runs", "tag", parent.id, "--add", "a", "--add", "b"))
    assert said(run_cli(live, "runs", "tag", parent.id, "--add", "a", "--remove", "b", "--remove", "a"))
    shown = live.team.run(parent.id)
    assert (shown.name, shown.notes, shown.tags) == ("first", "the one", ["a"])
    assert [run.id for run in live.team.runs(tag="a")] == [parent.id]
    refused = run_cli(live, "runs", "clone", parent.id, "copy", "--set", "model.layer=2")
    assert refused.exit_code == 1 and "model.layer" in refused.output
    copy = said(run_cli(live, "runs", "clone", parent.id, "copy", "--set", "schedule.steps=1000000"))
    assert live.team.run(copy).spec.schedule.steps == 1_000_000
    assert run_cli(live, "runs", "delete", copy).exit_code == 1
    (result,) = live.team.act(BulkVerb.CANCEL, [copy])
    assert result.done
    live.team.wait(copy)
    assert "Would free" in said(run_cli(live, "runs", "delete", copy, "--dry-run"))
    assert "Freed" in said(run_cli(live, "runs", "delete", copy))


def test_the_command_line_keeps_and_deletes_checkpoints(live: Live, parent: Run) -> None:
    states = {one.step: one for one in live.team.checkpoints(parent.id) if one.kind is CheckpointKind.STATE}
    assert sorted(states) == [4, 8, 12]
    holds = states[12].holds
    assert holds is not None and holds.ranks == 2 and holds.resumed_from_step is None
    shown = json.loads(said(run_cli(live, "runs", "show", parent.id)))
    assert holds.dtypes.keys() == {"float32"}
    assert holds.dtypes["float32"] == 3 * holds.parameters, "weights and two moments"
    assert shown["id"] == parent.id
    said(run_cli(live, "checkpoints", "pin", parent.id, states[4].id))
    assert [one.id for one in live.team.all_checkpoints(pinned=True)] == [states[4].id]
    assert states[4].id in said(run_cli(live, "checkpoints", "list", "--pinned"))
    keep = ("--keep-last", 1, "--run", parent.id)
    would = said(run_cli(live, "checkpoints", "retain", *keep))
    assert "pinned" in would and "1 checkpoint." in would.splitlines()[-1]
    done = said(run_cli(live, "checkpoints", "retain", *keep, "--delete"))
    assert done == would.replace("Would free", "Freed")
    left = [(one.step, one.kind.value) for one in live.team.checkpoints(parent.id)]
    assert sorted(left) == [(4, "state"), (12, "export"), (12, "state")]
    assert run_cli(live, "checkpoints", "delete", parent.id, states[4].id).exit_code == 1
    said(run_cli(live, "checkpoints", "unpin", parent.id, states[4].id))
    assert "1 checkpoint." in said(run_cli(live, "checkpoints", "delete", parent.id, states[4].id))
