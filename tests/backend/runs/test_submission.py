"""Submissions that are refused, stored once, or accepted to wait."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import event, func, select

from tests.backend.conftest import Site
from tests.backend.scripted_agent import Agent, Scene
from trainwright_backend.core.db import Write
from trainwright_backend.runs.tables import Run


def count_runs(app: FastAPI) -> int:
    with app.state.database.read() as session:
        return session.scalar(select(func.count()).select_from(Run)) or 0


@pytest.mark.both_databases
def test_the_same_key_and_body_give_the_same_run(scene: Scene) -> None:
    headers = {"Idempotency-Key": "a key"}
    first = scene.site.admin.post(scene.runs, json=scene.spec(), headers=headers)
    again = scene.site.admin.post(scene.runs, json=scene.spec(), headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]


@pytest.mark.both_databases
def test_the_same_key_with_another_body_is_refused(scene: Scene) -> None:
    headers = {"Idempotency-Key": "a key"}
    assert scene.site.admin.post(scene.runs, json=scene.spec(), headers=headers).status_code == 201
    other = scene.site.admin.post(scene.runs, json=scene.spec(steps=11), headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert count_runs(scene.site.app) == 1


def test_a_key_whose_run_was_deleted_starts_nothing(scene: Scene) -> None:
    headers = {"Idempotency-Key": "a key"}
    run_id = scene.site.admin.post(scene.runs, json=scene.spec(), headers=headers).json()["id"]
    scene.cancel(run_id)
    assert scene.site.admin.delete(f"{scene.runs}/{run_id}").status_code == 200
    late = scene.site.admin.post(scene.runs, json=scene.spec(), headers=headers)
    assert (late.status_code, late.json()["code"]) == (410, "run_deleted")
    assert count_runs(scene.site.app) == 0


def test_a_key_belongs_to_its_team(scene: Scene) -> None:
    headers = {"Idempotency-Key": "a key"}
    assert scene.site.admin.post(scene.runs, json=scene.spec(), headers=headers).status_code == 201
    stranger = scene.site.other_team("globex")
    response = stranger.post("/api/v1/teams/globex/runs", json=scene.spec(), headers=headers)
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "data.dataset"


@pytest.mark.both_databases
def test_concurrent_requests_with_one_key_create_one_run(scene: Scene) -> None:
    def submit(_: int) -> str:
        response = scene.site.admin.post(scene.runs, json=scene.spec(), headers={"Idempotency-Key": "a key"})
        assert response.status_code in (200, 201), response.text
        return str(response.json()["id"])

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(submit, range(8)))) == 1
    assert count_runs(scene.site.app) == 1


@pytest.mark.both_databases
def test_a_run_that_can_never_fit_the_team_s_limit_is_refused_at_its_field(scene: Scene) -> None:
    assert scene.site.admin.put(f"{scene.site.path}/quota/cpu", json={"limit": 1}).status_code == 200
    response = scene.site.admin.post(scene.runs, json=scene.spec(slots=2))
    assert response.status_code == 422
    [found] = response.json()["errors"]
    assert (found["field"], found["value"]) == ("resources.slots_per_node", 2)
    assert found["message"] == (
        "This run needs 2 CPU slots; your team may use 1 CPU slot at once. Request 1 or fewer, or ask a site admin to raise "
        "the limit."
    )
    check = scene.site.admin.post(f"{scene.runs}/validate", json=scene.spec(slots=2)).json()
    assert [problem["field"] for problem in check["problems"]] == ["resources.slots_per_node"]
    scene.submit(slots=1)


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"optimiser": {}}, "optimiser", "Did you mean 'optimizer'?"),
    ({"batch": {"global_sequences": 7}}, "batch.global_sequences", "multiple"),
    ({"data": {"dataset": "ds_unknown"}}, "data.dataset", "no dataset"),
    (
        {"resources": {"device": "cpu", "slots_per_node": 3}, "batch": {"global_sequences": 24}},
        "resources.slots_per_node",
        "3 CPU slots are more than any node has: the largest that ever joined, node-a, has 2",
    ),
    ({"resources": {"device": "cuda"}}, "resources.device", "No node has a GPU."),
]


@pytest.mark.both_databases
def test_a_wrong_spec_is_refused_at_its_field(scene: Scene) -> None:
    for sections, field, hint in WRONG:
        spec = scene.spec() | sections
        response = scene.site.admin.post(scene.runs, json=spec)
        assert response.status_code == 422
        [problem] = response.json()["errors"]
        assert problem["field"] == field
        assert hint in problem["message"]
        spec_check = scene.site.admin.post(f"{scene.runs}/validate", json=spec).json()
        assert spec_check["valid"] is False
        assert [found["field"] for found in spec_check["problems"]] == [field]


def test_a_check_of_too_many_slots_checks_the_rest_with_as_many_as_there_are(scene: Scene) -> None:
    def check(**sections: Any) -> dict[str, Any]:
        found: dict[str, Any] = scene.site.admin.post(
            f"{scene.runs}/validate", json=scene.spec() | sections
        ).json()
        return found | {"problems": {problem["field"]: problem["message"] for problem in found["problems"]}}

    nine = {"device": "cpu", "slots_per_node": 9}
    batch = {"micro_sequences": 4, "global_sequences": 64}
    found = check(resources=nine, batch=batch)
    assert list(found["problems"]) == ["resources.slots_per_node"], "64 sequences fit 2 ranks, and not 9"
    assert "node-a, has 2" in found["problems"]["resources.slots_per_node"] and found["spec"] is None
    found = check(resources=nine, batch=batch, data={"dataset": "nothing"})
    assert list(found["problems"]) == ["resources.slots_per_node", "data.dataset"]
    found = check(resources=nine, batch=batch | {"global_sequences": 7})
    assert list(found["problems"]) == ["resources.slots_per_node", "batch.global_sequences"]
    found = check(schedule={"steps": 0}, data={"dataset": "nothing"})
    assert list(found["problems"]) == ["schedule.steps", "data.dataset"]
    large = {"layers": 96, "width": 12288, "heads": 96}
    found = check(data={"dataset": "nothing"}, model=large)
    assert list(found["problems"]) == ["data.dataset", "model.layers"]
    large = {"layers": 96, "width": 12288, "heads": 96}
    found = check(resources=nine, batch=batch | {"global_sequences": 72}, model=large)
    assert list(found["problems"]) == ["resources.slots_per_node", "model.layers"]
    assert found["spec"]["resources"]["slots_per_node"] == 9, "its plan is for what was asked"
    found = check(
        resources=nine,
        parallelism={"pipeline": 9},
        model={"layers": 9},
        batch={"micro_sequences": 1, "global_sequences": 9},
    )
    assert list(found["problems"]) == ["resources.slots_per_node"] and found["spec"] is not None
    assert "resources.slots_per_node" not in check(resources={"slots_per_node": 2})["problems"]
    assert "resources.slots_per_node" in check(resources={"slots_per_node": 0})["problems"]


@pytest.mark.both_databases
def test_data_can_be_named(scene: Scene, upload: Any) -> None:
    def checked(client: TestClient, team: str, data: dict[str, Any]) -> dict[str, Any]:
        body = scene.spec(data=data)
        found: dict[str, Any] = client.post(f"/api/v1/teams/{team}/runs/validate", json=body).json()
        return found

    admin, slug = scene.site.admin, scene.site.path.rpartition("/")[2]
    name = admin.get(f"{scene.site.path}/datasets/{scene.dataset}").json()["name"]
    by_name = {"dataset": name, "tokenizer": {"kind": "dataset", "source": name}}
    run = admin.post(scene.runs, json=scene.spec(data={"dataset": name, "tokenizer": {"kind": "bytes"}}))
    assert run.json()["spec"]["data"]["dataset"] == scene.dataset
    assert checked(admin, slug, by_name)["spec"]["data"]["tokenizer"]["source"] == scene.dataset
    [problem] = checked(scene.site.other_team("globex"), "globex", {"dataset": name})["problems"]
    assert problem["field"] == "data.dataset" and "no dataset with this id or name" in problem["message"]
    other = upload(name, ready=False)["id"]
    [problem] = checked(admin, slug, {"dataset": name})["problems"]
    assert problem["field"] == "data.dataset" and "Several datasets have this name" in problem["message"]
    assert scene.dataset in problem["message"] and other in problem["message"]


def test_a_check_returns_the_tokens_and_warns_of_a_validation_split_that_is_too_short(scene: Scene) -> None:
    def check(tokens: int) -> dict[str, Any]:
        spec = scene.spec(batch={"sequence_tokens": tokens, "micro_sequences": 1, "global_sequences": 2})
        return dict(scene.site.admin.post(f"{scene.runs}/validate", json=spec).json())

    short = check(64)
    assert (short["valid"], short["warnings"]) == (True, [])
    assert short["train_tokens"] > 64
    long = check(2_048)
    assert long["valid"] is True and long["train_tokens"] == short["train_tokens"]
    [warning] = long["warnings"]
    assert warning.startswith("There will be no validation loss: the validation split has ")
    assert "one sequence of 2,048 needs 2,049" in warning


@pytest.mark.both_databases
def test_validation_shows_the_resolved_spec_and_stores_nothing(scene: Scene) -> None:
    spec = scene.spec(resources={"device": "auto"})
    spec_check = scene.site.admin.post(f"{scene.runs}/validate", json=spec).json()
    assert spec_check["valid"] is True
    assert (spec_check["spec"]["resources"]["device"], spec_check["spec"]["data"]["version"]) == ("cpu", 1)
    assert spec_check["parameters"] > 100_000
    assert count_runs(scene.site.app) == 0


def test_an_unset_warmup_is_resolved_at_submission_and_copied_to_later_runs(scene: Scene) -> None:
    schedule = {"steps": 200, "warmup_steps": None}
    checked = scene.site.admin.post(f"{scene.runs}/validate", json=scene.spec(schedule=schedule)).json()
    work = scene.start(schedule=schedule)
    assert checked["spec"]["schedule"]["warmup_steps"] == work.claim.job.spec.schedule.warmup_steps == 20
    longer = {"name": "longer", "changes": {"schedule.steps": 400}}
    clone = scene.site.admin.post(f"{scene.runs}/{work.run_id}/clone", json=longer).json()
    assert clone["spec"]["schedule"]["warmup_steps"] == 20
    emptied = {"name": "emptied", "changes": {"schedule.steps": 400, "schedule.warmup_steps": None}}
    clone = scene.site.admin.post(f"{scene.runs}/{work.run_id}/clone", json=emptied).json()
    assert clone["spec"]["schedule"]["warmup_steps"] == 40


def test_auto_takes_cuda_when_a_joined_node_has_it(scene: Scene) -> None:
    spec = scene.spec(resources={"device": "auto"})
    assert scene.site.admin.post(scene.runs, json=spec).json()["spec"]["resources"]["device"] == "cpu"
    Agent.join(scene.site, "node-g", gpus=1)
    assert scene.site.admin.post(scene.runs, json=spec).json()["spec"]["resources"]["device"] == "cuda"


def test_before_any_node_has_joined_every_size_waits(site: Site, upload: Any) -> None:
    spec = {
        "name": "early",
        "data": {"dataset": upload(ready=False)["id"]},
        "batch": {"micro_sequences": 1, "global_sequences": 64},
        "resources": {"device": "cuda", "slots_per_node": 8},
    }
    response = site.admin.post(f"{site.path}/runs", json=spec)
    assert response.status_code == 201, response.text
    assert response.json()["sentence"] == "no node has joined yet"


@pytest.mark.both_databases
def test_a_commit_that_fails_is_a_server_error_and_leaves_no_run(scene: Scene) -> None:
    def fail(session: object) -> None:
        raise RuntimeError("the disk failed")

    patient = TestClient(scene.site.app, base_url="http://localhost", raise_server_exceptions=False)
    patient.headers.update(scene.site.admin.headers)
    event.listen(Write, "before_commit", fail)
    try:
        response = patient.post(scene.runs, json=scene.spec())
    finally:
        event.remove(Write, "before_commit", fail)
    assert response.status_code >= 500
    assert count_runs(scene.site.app) == 0
    assert scene.used() == 0


def test_viewers_can_read_and_other_teams_see_nothing(scene: Scene) -> None:
    run_id = scene.submit()
    viewer, stranger = scene.site.member("viewer"), scene.site.other_team("globex")
    assert viewer.get(f"{scene.runs}/{run_id}").status_code == 200
    assert viewer.post(scene.runs, json=scene.spec()).status_code == 403
    assert viewer.post(f"{scene.runs}/{run_id}/cancel").status_code == 403
    assert viewer.delete(f"{scene.runs}/{run_id}").status_code == 403
    places = (
        "",
        "/events",
        "/logs",
        "/metrics",
        "/metrics/names",
        "/checkpoints",
        "/events/stream",
        "/metrics/stream",
    )
    for path in (f"{scene.runs}/{run_id}", f"/api/v1/teams/globex/runs/{run_id}"):
        for place in places:
            assert stranger.get(path + place).status_code == 404, place
    assert stranger.post(f"/api/v1/teams/globex/runs/{run_id}/cancel").status_code == 404
    assert stranger.delete(f"/api/v1/teams/globex/runs/{run_id}").status_code == 404


def test_the_list_is_paged_and_filtered(scene: Scene) -> None:
    ids = [scene.submit(), scene.submit(), scene.submit()]
    scene.cancel(ids[1])
    first = scene.site.admin.get(scene.runs, params={"limit": 2}).json()
    rest = scene.site.admin.get(scene.runs, params={"limit": 2, "cursor": first["next_cursor"]}).json()
    assert [run["id"] for run in first["items"] + rest["items"]] == ids[::-1]
    assert rest["next_cursor"] is None
    cancelled = scene.site.admin.get(scene.runs, params={"state": "cancelled"}).json()
    assert [run["id"] for run in cancelled["items"]] == [ids[1]]


def test_data_shorter_than_one_sequence_is_refused(scene: Scene) -> None:
    spec = scene.spec(batch={"sequence_tokens": 65_536, "micro_sequences": 1, "global_sequences": 1})
    response = scene.site.admin.post(scene.runs, json=spec)
    (problem,) = response.json()["errors"]
    assert (response.status_code, problem["field"], problem["value"]) == (
        422,
        "batch.sequence_tokens",
        65_536,
    )
    assert "one sequence of 65,536 needs 65,537" in problem["message"]
    spec_check = scene.site.admin.post(f"{scene.runs}/validate", json=spec).json()
    assert spec_check["problems"] == [problem]
    assert count_runs(scene.site.app) == 0 and scene.used() == 0
