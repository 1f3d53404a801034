"""Joining, the list of nodes, and who may use them."""

import json
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from tests.backend.scripted_agent import Agent, Scene, inventory
from trainwright_backend.core.db import now
from trainwright_backend.nodes.service import create_join_token
from trainwright_backend.nodes.tables import JoinToken, Node


@pytest.mark.both_databases
def test_a_join_token_works_once_for_its_name_and_for_15_minutes(scene: Scene) -> None:
    client = scene.site.anonymous()

    def try_join(token: str, name: str) -> int:
        body = {"token": token, "name": name, "inventory": inventory()}
        return client.post("/api/v1/agent/join", json=body).status_code

    made = scene.site.admin.post("/api/v1/join-tokens", json={"name": "node-b"}).json()
    assert try_join(made["token"], "node-c") == 403
    assert try_join("made up", "node-b") == 403
    assert try_join(made["token"], "node-b") == 200
    assert try_join(made["token"], "node-b") == 403
    old = scene.site.admin.post("/api/v1/join-tokens", json={"name": "node-d"}).json()
    with scene.database.write() as session:
        session.execute(update(JoinToken).values(expires=now() - timedelta(seconds=1)))
    assert try_join(old["token"], "node-d") == 403


def test_a_token_for_the_name_of_an_online_node_warns_what_happens_to_it(scene: Scene) -> None:
    def warning(name: str) -> str:
        response = scene.site.admin.post("/api/v1/join-tokens", json={"name": name})
        assert response.status_code == 201
        return response.json()["warning"] or ""

    scene.agent.heartbeat()
    assert "A node named node-a is online" in warning("node-a") and "locked out" in warning("node-a")
    assert "is online" not in warning("node-b")
    with scene.database.write() as session:
        session.execute(update(Node).values(last_heartbeat=now() - timedelta(hours=1)))
    assert "is online" not in warning("node-a"), "an offline node joins again under its name"


@pytest.mark.both_databases
def test_secrets_of_nodes_are_stored_hashed(scene: Scene) -> None:
    token = scene.agent.client.headers["Authorization"].removeprefix("Bearer ")
    made = scene.site.admin.post("/api/v1/join-tokens", json={"name": "node-b"}).json()
    with scene.database.read() as session:
        stored = [*session.scalars(select(Node.token_hash)), *session.scalars(select(JoinToken.token_hash))]
    assert token not in stored
    assert made["token"] not in stored
    assert all(len(value) == 64 for value in stored)


@pytest.mark.both_databases
def test_joining_again_ends_the_old_token(scene: Scene) -> None:
    old = scene.agent.client
    new = Agent.join(scene.site, "node-a", cpu_slots=4)
    assert old.post("/api/v1/agent/heartbeat", json={}).status_code == 401
    assert new.heartbeat() == []
    [shown] = scene.site.admin.get("/api/v1/nodes").json()
    assert (shown["name"], shown["slots"], shown["online"]) == ("node-a", {"cuda": 0, "cpu": 4}, True)


def _gpus(*indices: int) -> dict[str, Any]:
    return {"gpus": [{"index": index, "name": "a GPU", "memory_bytes": 1} for index in indices]}


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("cpu_slots", {"cpu_slots": 20_000_000}),
        ("cores", {"cores": 0}),
        ("memory_bytes", {"memory_bytes": 2**70}),
        ("hostname", {"hostname": "\ud800"}),
        ("hostname", {"hostname": "h" * 1_000}),
        ("gpus.0.index", _gpus(2**70)),
        ("gpus", _gpus(1, 1)),
    ],
)
def test_an_impossible_inventory_is_refused_and_the_node_is_unchanged(
    scene: Scene, field: str, wrong: dict[str, Any]
) -> None:
    [before] = scene.site.admin.get("/api/v1/nodes").json()
    body = json.dumps({"inventory": inventory() | wrong})  # in ASCII: a lone surrogate has no UTF-8
    response = scene.agent.client.post(
        "/api/v1/agent/heartbeat", content=body, headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 422, response.text
    assert [problem["field"] for problem in response.json()["errors"]] == [f"inventory.{field}"]
    [after] = scene.site.admin.get("/api/v1/nodes").json()
    assert after == before | {"last_heartbeat": after["last_heartbeat"]}


def report(scene: Scene, **differs: Any) -> dict[str, Any]:
    """The node reports another inventory; returns it as site admins see it."""
    body = {"inventory": inventory() | differs}
    assert scene.agent.client.post("/api/v1/agent/heartbeat", json=body).status_code == 200
    return node_of(scene)


def node_of(scene: Scene) -> dict[str, Any]:
    found: dict[str, Any]
    [found] = scene.site.admin.get("/api/v1/nodes").json()
    return found


def test_a_node_gets_more_slots_only_if_a_site_admin_allows(scene: Scene) -> None:
    """A stolen node token could otherwise attract other teams' runs."""
    shown = report(scene, cpu_slots=64, cores=64, **_gpus(0, 1))
    assert shown["slots"] == {"cuda": 0, "cpu": 2}, "as when it joined"
    assert shown["reported_slots"] == {"cuda": 2, "cpu": 64}
    for _ in range(3):
        scene.submit()
    scene.control.sweep()
    assert sum(len(placed["slots"]) for placed in scene.agent.heartbeat()) == 2
    path = f"/api/v1/nodes/{shown['id']}"
    allow = {"allowed_slots": {"cpu": 3}}
    assert scene.site.member("owner").patch(path, json=allow).status_code == 403
    assert scene.site.admin.patch(path, json=allow).json()["slots"] == {"cuda": 0, "cpu": 3}
    scene.control.sweep()
    assert sum(len(placed["slots"]) for placed in scene.agent.heartbeat()) == 3
    assert scene.site.admin.patch(path, json={"draining": True}).json()["slots"]["cpu"] == 3
    assert report(scene, cpu_slots=1)["slots"] == {"cuda": 0, "cpu": 1}
    assert report(scene, cpu_slots=8)["slots"] == {"cuda": 0, "cpu": 3}
    Agent.join(scene.site, "node-a", cpu_slots=8)
    assert node_of(scene)["slots"]["cpu"] == 8, "a join token is issued by a site admin"


def test_a_node_joins_with_no_more_cpu_slots_than_cores(scene: Scene) -> None:
    Agent.join(scene.site, "node-b", cpu_slots=12)
    shown = next(node for node in scene.site.admin.get("/api/v1/nodes").json() if node["name"] == "node-b")
    assert (shown["slots"]["cpu"], shown["reported_slots"]["cpu"]) == (8, 12)
    path, allow = f"/api/v1/nodes/{shown['id']}", {"allowed_slots": {"cpu": 12}}
    assert scene.site.admin.patch(path, json=allow).json()["slots"]["cpu"] == 12


def test_the_server_s_own_node_may_change_its_slots_and_have_more_than_cores(scene: Scene) -> None:
    with scene.database.write() as session:
        made = create_join_token(session, scene.site.app.state.settings, "own", any_slots=True)
    client = scene.site.anonymous()
    joined = client.post(
        "/api/v1/agent/join", json={"token": made.token, "name": "own", "inventory": inventory()}
    ).json()
    client.headers["Authorization"] = f"Bearer {joined['node_token']}"
    body = {"inventory": inventory(cpu_slots=12)}
    assert client.post("/api/v1/agent/heartbeat", json=body).status_code == 200
    nodes = {node["name"]: node["slots"]["cpu"] for node in scene.site.admin.get("/api/v1/nodes").json()}
    assert nodes == {"node-a": 2, "own": 12}


@pytest.mark.parametrize(
    "entry",
    [{"bytes": -1}, {"bytes": 2**70}, {"digest": "x"}, {"digest": "\ud800"}, {"name": "n" * 300}],
)
def test_impossible_files_of_a_checkpoint_are_refused(scene: Scene, entry: dict[str, Any]) -> None:
    work = scene.running()
    listed = {"name": "model.safetensors", "bytes": 1, "digest": "0" * 64} | entry
    body = {"fence": work.claim.fence, "kind": "state", "step": 1, "files": [listed]}
    response = scene.agent.client.post(
        f"/api/v1/agent/runs/{work.run_id}/uploads",
        content=json.dumps(body),
        headers={"Content-Type": "application/json"},
    )
    assert response.status_code == 422, response.text
    assert response.json()["errors"][0]["field"] == f"files.0.{next(iter(entry))}"


def test_only_the_site_admin_sees_nodes_and_agents_are_not_users(scene: Scene) -> None:
    stranger = scene.site.other_team("globex")
    for call in (
        lambda client: client.get("/api/v1/nodes"),
        lambda client: client.post("/api/v1/join-tokens", json={"name": "x"}),
        lambda client: client.delete(f"/api/v1/nodes/node_{'a' * 26}"),
    ):
        assert call(stranger).status_code == 403
        assert call(scene.agent.client).status_code == 401
        assert call(scene.site.anonymous()).status_code == 401
    assert scene.site.admin.post("/api/v1/agent/heartbeat", json={}).status_code == 401
    assert scene.site.anonymous().post("/api/v1/agent/heartbeat", json={}).status_code == 401


def test_a_silent_node_is_offline_and_gets_nothing(scene: Scene) -> None:
    with scene.database.write() as session:
        session.execute(update(Node).values(last_heartbeat=now() - timedelta(hours=1)))
    run_id = scene.submit()
    scene.control.sweep()
    [shown] = scene.site.admin.get("/api/v1/nodes").json()
    assert (shown["online"], shown["slots_free"]["cpu"]) == (False, 2)
    assert (
        scene.show(run_id)["sentence"] == "needs 1 slot on one node; no online node has that many CPU slots"
    )
    assert scene.agent.heartbeat() == []
    scene.control.sweep()
    assert [placed["run_id"] for placed in scene.agent.heartbeat()] == [run_id]
    [shown] = scene.site.admin.get("/api/v1/nodes").json()
    assert (shown["online"], shown["slots_free"]["cpu"]) == (True, 1)


def test_the_job_knows_the_node(scene: Scene) -> None:
    job = scene.start(slots=2, batch={"micro_sequences": 1, "global_sequences": 2}).claim.job
    assert (job.device, job.slots, job.threads_per_rank, job.resume) == ("cpu", (0, 1), 4, None)
    assert job.peak is not None
    assert (job.peak.flops_per_second, job.peak.dtype, job.peak.measured) == (4e11, "bf16", True)
    gpu_node = Agent.join(scene.site, "node-g", gpus=2)
    run_id = scene.site.admin.post(scene.runs, json=scene.spec(resources={"device": "cuda"})).json()["id"]
    scene.control.sweep()
    job = gpu_node.claim(run_id).claim.job
    assert (job.device, job.slots, job.threads_per_rank) == ("cuda", (0,), 4)
    assert job.peak is not None
    assert job.peak.name == "BF16 peak 989 TFLOP/s of NVIDIA H200"
    assert job.bf16_peak is None


def test_an_fp8_job_knows_both_peaks(scene: Scene) -> None:
    gpu_node = Agent.join(scene.site, "node-g", gpus=1)
    spec = scene.spec(resources={"device": "cuda"}, precision={"kind": "fp8"})
    run_id = scene.site.admin.post(scene.runs, json=spec).json()["id"]
    scene.control.sweep()
    work = gpu_node.claim(run_id)
    job = work.claim.job
    assert job.peak is not None and job.bf16_peak is not None
    assert job.peak.name == "FP8 peak 1979 TFLOP/s of NVIDIA H200"
    assert job.bf16_peak.name == "BF16 peak 989 TFLOP/s of NVIDIA H200"
    started = {"type": "attempt_started", "attempt": 1, "resume_step": 0, "ranks": 1, "parameters": 7}
    started |= {"device": "NVIDIA H200", "peak_name": job.peak.name, "bf16_peak_name": job.bf16_peak.name}
    assert work.renew("running").status_code == 200
    assert work.send(work.batch([started])).status_code == 200
    summary = scene.show(run_id)["summary"]
    assert (summary["peak_name"], summary["bf16_peak_name"]) == (job.peak.name, job.bf16_peak.name)


def test_a_node_that_did_not_measure_fp8_shows_no_fraction_of_it(scene: Scene) -> None:
    """The agent is too old to report the measurement."""
    job = scene.start(precision={"kind": "fp8"}).claim.job
    assert job.peak is None
    assert job.bf16_peak is not None
    assert job.bf16_peak.flops_per_second == 4e11


def test_cores_are_shared_by_the_allowed_slots(scene: Scene) -> None:
    """A node with eight cores reports two slots, and one is allowed: its rank has all threads, and their peak."""
    before = scene.submit()
    [node] = scene.site.admin.get("/api/v1/nodes").json()
    allow = {"allowed_slots": {"cpu": 1}}
    assert scene.site.admin.patch(f"/api/v1/nodes/{node['id']}", json=allow).status_code == 200
    scene.control.sweep()
    work = scene.agent.claim(before)
    job = work.claim.job
    assert job.peak is not None
    assert (job.threads_per_rank, job.peak.flops_per_second) == (8, 8e11)
    work.order("starting")
    work.begin()
    work.order("running")
    rates = {"steps": [1, 2, 3, 4, 5], "series": {"tokens_per_second": [50.0] * 5}}
    assert work.send(work.batch(metrics=[rates])).status_code == 200

    def measured() -> object:
        return scene.site.admin.post(f"{scene.runs}/estimate", json=scene.spec()).json()["measured"]

    assert measured() is not None
    allow = {"allowed_slots": {"cpu": 2}}
    assert scene.site.admin.patch(f"/api/v1/nodes/{node['id']}", json=allow).status_code == 200
    assert measured() is None, "a rank with four threads is of another kind"
