"""Forks: the checkpoint that a claim gets, what is refused at which field, and the protection of the parent."""

from typing import Any

import pytest
from sqlalchemy import select

from tests.backend.datasets.test_delete_races import concurrently, response_after
from tests.backend.scripted_agent import Agent, Scene, Work
from trainwright.contracts.api.actions import NewFork
from trainwright.contracts.run_spec import RunSpec
from trainwright_backend.auth.tables import Account
from trainwright_backend.checkpoints.compatibility import incompatibilities
from trainwright_backend.checkpoints.deletion import delete_checkpoint
from trainwright_backend.checkpoints.fork import fork_run
from trainwright_backend.checkpoints.tables import Checkpoint
from trainwright_backend.core.author import Author
from trainwright_backend.core.db import Write
from trainwright_backend.core.ids import parse_id
from trainwright_backend.datasets.deletion import delete_dataset
from trainwright_backend.datasets.service import lock_dataset
from trainwright_backend.datasets.tables import Preparation
from trainwright_backend.runs.tables import Run

LONGER = {"schedule.steps": 20}


def fork(scene: Scene, run_id: str, checkpoint: str | None = None, **changes: Any) -> Any:
    body = {"name": "fork", "checkpoint": checkpoint, "changes": changes}
    return scene.site.admin.post(f"{scene.runs}/{run_id}/fork", json=body)


def checkpoints(scene: Scene, run_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = scene.site.admin.get(f"{scene.runs}/{run_id}/checkpoints").json()
    return found


def refusal(response: Any) -> tuple[int, str]:
    assert response.status_code == 422, response.text
    return response.json()["errors"][0]["field"], response.json()["errors"][0]["message"]


@pytest.fixture
def parent(scene: Scene) -> Work:
    """A run that has ended, with checkpoints at steps 4 and 10."""
    work = scene.running(last_step=4)
    work.save(4)
    work.step(5, 10)
    work.save(10)
    assert work.order("completing") == "go"
    work.save(10, "export")
    assert work.ended("finished", step=10) == "succeeded"
    return work


def claimed(scene: Scene, run_id: str) -> Work:
    scene.control.sweep()
    return scene.agent.claim(run_id)


def test_a_fork_starts_from_its_parents_checkpoint_until_it_has_its_own(scene: Scene, parent: Work) -> None:
    state = checkpoints(scene, parent.run_id)[-1]
    before = scene.show(parent.run_id), checkpoints(scene, parent.run_id)
    made = fork(scene, parent.run_id, state["id"], **{"optimizer.learning_rate": 0.5})
    assert made.status_code == 201, made.text
    assert made.json()["forked_from"] == {"run": parent.run_id, "name": "pilot", "step": 4}
    assert made.json()["flops"] == pytest.approx(before[0]["flops"] * 6 / 10), "of the six steps after it"
    (event,) = [
        item
        for item in scene.site.admin.get(f"{scene.runs}/{made.json()['id']}/events").json()
        if item["type"] == "forked"
    ]
    assert event["message"] == "forked from pilot at step 4, with other optimizer.learning_rate"
    work = claimed(scene, made.json()["id"])
    resume = work.claim.job.resume
    assert resume is not None and (resume.step, resume.forked, resume.data_from_start) == (4, True, False)
    names = {download.path for download in work.claim.downloads}
    assert "resume/manifest.json" in names
    assert all(scene.agent.client.get(download.url).status_code == 200 for download in work.claim.downloads)
    assert work.order() == "go"
    work.begin(4)
    assert work.order("running") == "go"
    work.step(5, 6)
    work.save(6)
    work.ended("crashed")
    again = scene.again(work.run_id).claim.job.resume
    assert again is not None and (again.step, again.forked) == (6, False)
    assert (scene.show(parent.run_id), checkpoints(scene, parent.run_id)) == before


def test_the_mean_speed_of_a_fork_begins_at_its_first_step(scene: Scene, parent: Work) -> None:
    work = claimed(scene, fork(scene, parent.run_id, **LONGER).json()["id"])
    assert work.order("starting") == "go"
    work.begin(10)
    assert work.order("running") == "go"
    for step, seconds in ((11, 9.0), (12, 1.0), (13, 2.0)):  # the first step compiles
        block = {"steps": [step], "series": {"seconds": [seconds]}}
        assert work.send(work.batch(metrics=[block])).status_code == 200
    assert scene.show(work.run_id)["summary"]["values"]["seconds"] == pytest.approx(4.0)


def test_a_fork_over_the_same_data_has_its_parent_s_shards(scene: Scene, parent: Work) -> None:
    """Another version of the platform would prepare different shards, so their digest would differ."""
    with scene.database.write() as session:
        run = session.get_one(Run, parse_id("run", parent.run_id))
        preparation = run.preparation_id
        session.get_one(Preparation, preparation).digest = "0" * 64
        before = set(session.scalars(select(Preparation.id)))
    response = fork(scene, parent.run_id, **LONGER)
    assert response.status_code == 201, response.text
    with scene.database.read() as session:
        assert session.get_one(Run, parse_id("run", response.json()["id"])).preparation_id == preparation
        assert set(session.scalars(select(Preparation.id))) == before, "no other preparation was started"


def test_the_same_dataset_by_name_is_no_change_of_the_data(scene: Scene, parent: Work, upload: Any) -> None:
    name = scene.site.admin.get(f"{scene.site.path}/datasets/{scene.dataset}").json()["name"]
    added = upload("more", ready=False)["id"]
    forked = fork(scene, parent.run_id, **LONGER, **{"data.dataset": name}).json()
    copied = scene.site.admin.post(
        f"{scene.runs}/{parent.run_id}/clone", json={"name": "copy", "changes": {"data.dataset": name}}
    ).json()
    own = scene.show(parent.run_id)["spec"]["data"]
    assert forked["spec"]["data"] == copied["spec"]["data"] == own
    assert "the data starts at its beginning" not in str(
        scene.site.admin.get(f"{scene.runs}/{forked['id']}/events").json()
    )
    moved = fork(scene, parent.run_id, **LONGER, **{"data.dataset": "more"}).json()
    assert moved["spec"]["data"]["dataset"] == added


def test_a_fork_without_a_checkpoint_uses_the_newest_valid_state(scene: Scene, parent: Work) -> None:
    made = fork(scene, parent.run_id, **LONGER)
    assert made.json()["forked_from"]["step"] == 10
    assert refusal(fork(scene, parent.run_id))[0] == "schedule.steps"
    export = next(
        checkpoint for checkpoint in checkpoints(scene, parent.run_id) if checkpoint["kind"] == "export"
    )
    assert refusal(fork(scene, parent.run_id, export["id"], **LONGER))[0] == "checkpoint"
    assert fork(scene, parent.run_id, f"ckpt_{'a' * 26}", **LONGER).status_code == 404
    bare = scene.submit()
    assert fork(scene, bare, **LONGER).json()["code"] == "no_checkpoint"


def test_an_incompatible_change_is_refused_by_field(scene: Scene, parent: Work) -> None:
    for field, value in (
        ("model.layers", 7),
        ("model.rope_theta", 500.0),
        ("model.tied_embeddings", False),
        ("data.tokenizer.vocabulary", 300),
        ("precision.kind", "fp8"),
        ("optimizer.kind", "muon"),
        ("schedule.steps", 10),
    ):
        blamed, why = refusal(fork(scene, parent.run_id, **(LONGER | {field: value})))
        assert blamed == field and why.endswith("."), (field, why)
    for changes in ({"precision.kind": "fp32"}, {"model.rope_scaling": {"factor": 4.0}}):
        assert fork(scene, parent.run_id, **(LONGER | changes)).status_code == 201, changes


@pytest.mark.parametrize(("positions", "fields"), [("learned", ["batch.sequence_tokens"]), ("rotary", [])])
def test_learned_positions_keep_their_number(positions: str, fields: list[str]) -> None:
    base = {"name": "x", "data": {"dataset": "d"}, "model": {"positions": positions}}
    before, after = (
        RunSpec.model_validate(base | {"batch": {"sequence_tokens": tokens}}) for tokens in (128, 256)
    )
    assert [problem.field for problem in incompatibilities(before, after, 0)] == fields


def test_other_data_starts_at_its_beginning_and_an_event_reports_it(
    scene: Scene, parent: Work, upload: Any
) -> None:
    other = upload("other")["id"]
    for changes in ({"data.dataset": other}, {"seed": 3}, {"batch.sequence_tokens": 128}):
        made = fork(scene, parent.run_id, **(LONGER | changes))
        assert made.status_code == 201, made.text
        run_id = made.json()["id"]
        events = scene.site.admin.get(f"{scene.runs}/{run_id}/events").json()
        assert events[1]["message"].endswith("; the data starts at its beginning"), changes
        scene.site.prepare()
        work = claimed(scene, run_id)
        assert work.claim.job.resume is not None and work.claim.job.resume.data_from_start
        scene.cancel(run_id)
        work.ended("stopped")


def test_other_data_needs_the_parent_s_own_tokenizer(scene: Scene, upload: Any) -> None:
    other = upload("other")["id"]
    bpe = {"dataset": scene.dataset, "tokenizer": {"kind": "bpe", "vocabulary": 300}}
    run_id = scene.submit(data=bpe)
    scene.site.prepare()
    work = claimed(scene, run_id)
    assert work.finish(10) == "succeeded"
    blamed, why = refusal(fork(scene, run_id, **(LONGER | {"data.dataset": other})))
    assert blamed == "data.tokenizer.kind"
    assert f"source {scene.dataset}, vocabulary 300" in why
    taken = {"kind": "dataset", "source": scene.dataset}
    for tokenizer in (taken | {"vocabulary": 300}, taken, taken | {"vocabulary": None}):
        made = fork(scene, run_id, **(LONGER | {"data.dataset": other, "data.tokenizer": tokenizer}))
        assert made.status_code == 201, made.text
        assert made.json()["spec"]["data"]["tokenizer"]["vocabulary"] == 300


def test_a_fork_without_any_checkpoint_left_fails_with_the_reason(scene: Scene, parent: Work) -> None:
    made = fork(scene, parent.run_id, **LONGER).json()["id"]
    waiting = fork(scene, parent.run_id, **LONGER).json()["id"]
    work = claimed(scene, made)
    assert work.order() == "go"
    assert work.ended("checkpoint_invalid", step=10) == "retry_wait"
    assert all(checkpoint["valid"] for checkpoint in checkpoints(scene, parent.run_id)), (
        "one attempt may be mistaken"
    )
    work = scene.again(made)
    assert work.order() == "go"
    assert work.ended("checkpoint_invalid", step=10) == "failed"
    assert "which is damaged, and has no valid" in scene.show(made)["sentence"]
    assert [
        checkpoint["valid"] for checkpoint in checkpoints(scene, parent.run_id) if checkpoint["step"] == 10
    ] == [True, False]
    scene.control.sweep()
    assert scene.state(waiting) == "failed", "it must not start at step 0 instead"
    event = scene.site.admin.get(f"{scene.runs}/{parent.run_id}/events").json()[-1]
    assert (event["type"], event["step"]) == ("note", 10)
    assert (
        "step 10 is damaged: fork, forked from it, could not read it on node-a in 2 attempts"
        in event["message"]
    )


def test_a_report_without_the_forked_step_does_not_mark_the_parents_checkpoint(
    scene: Scene, parent: Work
) -> None:
    made = fork(scene, parent.run_id, **LONGER).json()["id"]
    before = checkpoints(scene, parent.run_id)
    work = claimed(scene, made)
    for step, becomes in ((None, "retry_wait"), (4, "retry_wait"), (None, "failed")):
        assert work.order() == "go"
        assert work.ended("checkpoint_invalid", step=step) == becomes
        work = scene.again(made) if becomes == "retry_wait" else work
    assert checkpoints(scene, parent.run_id) == before


@pytest.mark.parametrize("second", ["node-a", "node-b"])
def test_two_nodes_must_report_a_parents_checkpoint_as_damaged(
    scene: Scene, parent: Work, second: str
) -> None:
    agents = {"node-a": scene.agent, "node-b": Agent.join(scene.site, "node-b")}
    made = fork(scene, parent.run_id, **LONGER).json()["id"]
    for node in ("node-a", second):
        only(scene, node)
        scene.end_backoff(made)
        scene.control.sweep()
        work = agents[node].claim(made)
        assert work.order() == "go"
        work.ended("checkpoint_invalid", step=10)
    (state,) = [
        checkpoint
        for checkpoint in checkpoints(scene, parent.run_id)
        if (checkpoint["kind"], checkpoint["step"]) == ("state", 10)
    ]
    assert state["valid"] is (second == "node-a")
    assert scene.state(made) == ("retry_wait" if second == "node-a" else "failed")


def test_a_damaged_own_state_does_not_mark_the_parents_checkpoint(scene: Scene, parent: Work) -> None:
    made = fork(scene, parent.run_id, **LONGER).json()["id"]
    work = claimed(scene, made)
    assert work.order() == "go"
    work.begin(10)
    assert work.order("running") == "go"
    work.step(11, 12)
    work.save(12)
    assert work.ended("node_rebooted") == "retry_wait"
    for step in (12, 10):
        work = scene.again(made)
        assert work.claim.job.resume is not None and work.claim.job.resume.step == step
        assert work.order() == "go"
        assert work.ended("checkpoint_invalid", step=step) == "retry_wait"
    assert all(checkpoint["valid"] for checkpoint in checkpoints(scene, parent.run_id))


def only(scene: Scene, name: str) -> None:
    """Allow runs to be placed on this node only."""
    for node in scene.site.admin.get("/api/v1/nodes").json():
        drained = {"draining": node["name"] != name}
        assert scene.site.admin.patch(f"/api/v1/nodes/{node['id']}", json=drained).status_code == 200


def test_a_fork_shows_the_name_of_its_deleted_parent(scene: Scene, parent: Work) -> None:
    made = fork(scene, parent.run_id, **LONGER).json()["id"]
    refused = scene.site.admin.delete(f"{scene.runs}/{parent.run_id}")
    assert (refused.status_code, refused.json()["code"]) == (409, "checkpoint_forked")
    assert refused.json()["fork"] == "fork" and "step 10" in refused.json()["detail"]
    work = claimed(scene, made)
    assert work.order() == "go"
    work.begin(10)
    assert work.order("running") == "go"
    for step in (11, 12):
        assert scene.site.admin.delete(f"{scene.runs}/{parent.run_id}").status_code == 409
        work.step(step, step)
        work.save(step)
    assert scene.site.admin.delete(f"{scene.runs}/{parent.run_id}").status_code == 200
    assert scene.show(made)["forked_from"] == {"run": None, "name": "pilot", "step": 10}


@pytest.mark.slow(target="databases")
@pytest.mark.both_databases
def test_one_of_a_concurrent_fork_and_delete_is_refused(scene: Scene, parent: Work) -> None:
    state = checkpoints(scene, parent.run_id)[-1]["id"]
    path = f"{scene.runs}/{parent.run_id}/checkpoints/{state}"

    def begin(session: Write) -> None:
        by = Author(session.scalars(select(Account.id)).one(), "Ada")
        team = session.get_one(Run, parse_id("run", parent.run_id)).team_id
        fork_run(session, team, by, parent.run_id, NewFork(name="fork", checkpoint=state), None)

    assert response_after(scene.site, begin, lambda: scene.site.admin.delete(path)) == (
        409,
        "checkpoint_forked",
    )


@pytest.mark.slow(target="databases")
@pytest.mark.both_databases
def test_a_fork_of_a_checkpoint_during_its_deletion_is_refused(scene: Scene, parent: Work) -> None:
    state = checkpoints(scene, parent.run_id)[-1]["id"]

    def remove(session: Write) -> None:
        team = session.get_one(Run, parse_id("run", parent.run_id)).team_id
        delete_checkpoint(session, team, parent.run_id, state, dry_run=False)

    assert response_after(scene.site, remove, lambda: fork(scene, parent.run_id, state)) == (404, "not_found")
    with scene.database.read() as session:
        assert session.get(Checkpoint, parse_id("ckpt", state)) is None


@pytest.mark.slow(target="databases")
@pytest.mark.both_databases
def test_a_fork_during_the_deletion_of_its_dataset_is_refused_without_a_deadlock(
    scene: Scene, parent: Work
) -> None:
    """The deletion locks the dataset first and the parent's row last; the fork needs both."""
    with scene.database.read() as session:
        team_id = session.get_one(Run, parse_id("run", parent.run_id)).team_id
    response = concurrently(
        scene.site,
        lambda session: lock_dataset(session, team_id, scene.dataset),
        lambda: fork(scene, parent.run_id, **LONGER),
        lambda session: delete_dataset(session, team_id, scene.dataset),
    )
    assert refusal(response)[0] == "data.dataset"
    assert scene.site.admin.get(f"{scene.site.path}/datasets/{scene.dataset}").status_code == 404


@pytest.mark.parametrize(
    ("checkpoint", "changes", "fields"),
    [
        (0, LONGER, []),
        (0, {}, ["schedule.steps"]),
        (1, {}, []),
        (0, LONGER | {"model.width": 384, "model.layers": 3}, ["model.layers", "model.width"]),
        (0, LONGER | {"batch.micro_sequences": 0}, ["batch.micro_sequences"]),
    ],
)
def test_validation_reports_why_a_fork_would_be_refused(
    scene: Scene, parent: Work, checkpoint: int, changes: dict[str, Any], fields: list[str]
) -> None:
    """The parent has ended at step 10; its checkpoints are of steps 10 and 4."""
    states = [item for item in checkpoints(scene, parent.run_id) if item["kind"] == "state"]
    chosen = states[checkpoint]["id"]
    spec = scene.show(parent.run_id)["spec"]
    for field, value in changes.items():
        section, _, key = field.rpartition(".")
        inner = spec
        for name in section.split("."):
            inner = inner[name]
        inner[key] = value
    checked = scene.site.admin.post(f"{scene.runs}/validate", params={"checkpoint": chosen}, json=spec).json()
    assert (checked["valid"], sorted(problem["field"] for problem in checked["problems"])) == (
        not fields,
        fields,
    )
    made = fork(scene, parent.run_id, chosen, **changes)
    assert (made.status_code == 201) is checked["valid"], made.text
    if fields:
        assert sorted(problem["field"] for problem in made.json()["errors"]) == fields


def test_validation_does_not_find_a_checkpoint_of_another_team(scene: Scene, parent: Work) -> None:
    [chosen, *_] = [item["id"] for item in checkpoints(scene, parent.run_id)]
    stranger = scene.site.other_team("globex")
    spec = scene.show(parent.run_id)["spec"]
    path = "/api/v1/teams/globex/runs/validate"
    assert stranger.post(path, params={"checkpoint": chosen}, json=spec).status_code == 404
