"""Commands for several runs: each run has a line, a refusal does not stop the others, and the exit code reports it."""

import pytest

from tests.backend.runs.conftest import Served
from tests.backend.scripted_agent import Scene
from trainwright.client import Client
from trainwright.contracts.api.actions import MAX_TAGS


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture
def key(scene: Scene) -> str:
    return scene.site.member("editor").headers["Authorization"].removeprefix("Bearer ")


@pytest.fixture
def ended(scene: Scene) -> str:
    run_id = scene.submit()
    scene.cancel(run_id)
    return run_id


@pytest.mark.parametrize(
    ("verb", "state", "refusal"),
    [
        ("pause", "paused", "This run has already succeeded."),
        ("cancel", "cancelled", "This run has already succeeded."),
        ("resume", "queued", "This run has already succeeded: only a paused run can be resumed."),
    ],
)
def test_a_refusal_does_not_stop_the_other_runs_and_each_has_a_line(
    scene: Scene, served: Served, key: str, verb: str, state: str, refusal: str
) -> None:
    work = scene.start()
    assert work.finish(10) == "succeeded"
    ended = work.run_id
    first, last = scene.submit(), scene.submit()
    if verb == "resume":
        assert served.command(key, f"runs pause {first} {last}").exit_code == 0
    done = served.command(key, f"runs {verb} {first} {ended} run_none {last}")
    assert done.exit_code == 1
    assert [scene.state(run_id) for run_id in (first, last)] == [state] * 2
    responses = {
        line.partition("  ")[0]: line.partition("  ")[2] for line in (done.stdout + done.stderr).splitlines()
    }
    assert list(responses) == [first, last, ended, "run_none"], "those that were refused are errors"
    assert responses[first] == scene.show(first)["sentence"] and refusal in responses[ended]
    good = served.command(key, "runs cancel " + " ".join((first, last))) if verb != "cancel" else None
    assert good is None or good.exit_code == 0


def test_delete_reports_the_freed_bytes_of_each_run(
    scene: Scene, served: Served, key: str, ended: str
) -> None:
    work = scene.running(last_step=4)
    work.save(4)
    waiting = scene.submit()
    scene.cancel(work.run_id)
    assert work.ended("cancelled") == "cancelled"
    runs = f"{work.run_id} {waiting} {ended}"
    would = served.command(key, f"runs delete {runs} --dry-run")
    assert would.exit_code == 1 and "cancel it first" in would.stderr
    assert scene.state(work.run_id) == "cancelled", "nothing was deleted"
    done = served.command(key, f"runs delete {runs}")
    assert done.exit_code == 1 and done.stderr == would.stderr
    assert done.stdout == would.stdout.replace("Would free", "Freed")
    first, last = done.stdout.splitlines()
    assert first.startswith(work.run_id) and first.endswith("KiB: 1 checkpoint.")
    assert last == f"{ended}  Freed 0 B: 0 checkpoints."
    left = [item["id"] for item in scene.site.admin.get(scene.runs).json()["items"]]
    assert left == [waiting]
    scene.cancel(waiting)


@pytest.mark.slow(target="databases")
def test_lists_of_checkpoints_show_the_last_validation(scene: Scene, served: Served, key: str) -> None:
    runs = [scene.running(last_step=9, checkpoint={"every_steps": 1, "keep": 5}) for _ in range(2)]
    for step in (2, 4, 6):
        for work in runs:
            work.save(step)
    for work in runs:
        points = {"steps": [4, 5], "series": {"validation_loss": [2.5, 2.25]}}
        work.send(work.batch(metrics=[points]))
    listed = served.command(key, f"runs checkpoints {runs[0].run_id}").stdout
    losses = [("6", "2.250 at step 5"), ("4", "2.500"), ("2", "–")]
    for step, loss in losses:
        assert any(f" {step} " in line and loss in line for line in listed.splitlines()), listed
    ordered = served.command(key, "checkpoints list --order run").stdout
    lines = [line for line in ordered.splitlines() if "ckpt_" in line]
    assert [runs[1].run_id in line for line in lines] == [True] * 3 + [False] * 3
    assert ["2.250 at step 5" in line for line in lines] == [True, False, False] * 2


def test_tags_are_removed_before_others_are_added(scene: Scene, served: Served, key: str) -> None:
    run_id = scene.submit()
    full = [f"t{number:02}" for number in range(MAX_TAGS)]
    scene.site.admin.patch(f"{scene.runs}/{run_id}", json={"tags": full})
    done = served.command(key, f"runs tag {run_id} --add new --remove t00")
    assert (done.exit_code, done.stdout) == (0, f"{run_id}  done\n")
    assert scene.show(run_id)["tags"] == sorted(["new", *full[1:]])
    assert served.command(key, f"runs tag {run_id} --remove t01 --add t01").exit_code == 0
    assert "t01" in scene.show(run_id)["tags"], "a tag in both lists remains"
    refused = served.command(key, f"runs tag {run_id} --add t01 --add more")
    assert refused.exit_code == 1 and "at most 20 tags" in refused.stderr
    with Client(served.url, key) as client:
        both = client.team("acme").change_tags([run_id, "run_none"], remove=["t01"], add=["t01", "t02"])
    assert [(item.run, item.done, item.code) for item in both] == [
        (run_id, True, None),
        ("run_none", False, "not_found"),
    ]
    assert scene.show(run_id)["tags"] == sorted(["new", *full[1:]])


def test_a_join_token_is_shown_with_its_command_and_a_warning_for_an_online_node(
    scene: Scene, served: Served
) -> None:
    key = scene.site.admin.headers["Authorization"].removeprefix("Bearer ")
    scene.agent.heartbeat()
    shown = served.command(key, "nodes join-token node-a")
    assert shown.exit_code == 0 and "A node named node-a is online" in shown.stderr
    command = shown.stdout.split()
    assert command[:2] == ["trainwright-agent", "join"] and "node-a" in command and "--token" in command
    refused = served.command(key, "nodes join-token My_Node")
    assert refused.exit_code == 1 and "such as gpu-07" in refused.stderr
