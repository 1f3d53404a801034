"""Quarantine: a node that is suspected to be faulty gets no runs until it passes a self-test or is released."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from tests.backend.attempts.test_hangs import stall
from tests.backend.attempts.test_several_nodes import PEERS, two_nodes
from tests.backend.scripted_agent import Agent, Scene, Work
from trainwright_backend.core.db import now
from trainwright_backend.nodes.tables import Node, NodeFailure


def node(scene: Scene, name: str = "node-a") -> dict[str, Any]:
    shown: list[dict[str, Any]] = scene.site.admin.get("/api/v1/nodes").json()
    return next(item for item in shown if item["name"] == name)


def edit(scene: Scene, **change: Any) -> dict[str, Any]:
    response = scene.site.admin.patch(f"/api/v1/nodes/{node(scene)['id']}", json=change)
    assert response.status_code == 200, response.text
    shown: dict[str, Any] = response.json()
    return shown


def beat(agent: Agent, **fields: Any) -> dict[str, Any]:
    response = agent.client.post("/api/v1/agent/heartbeat", json=fields)
    assert response.status_code == 200, response.text
    reply: dict[str, Any] = response.json()
    return reply


def lose(scene: Scene, work: Work) -> None:
    """The lease of the attempt expires."""
    scene.control.let_pass(1.5 * work.claim.timers.lease_seconds)


def end_backoff_only(scene: Scene, run_id: str) -> None:
    """End the back-off; quarantines remain."""
    with scene.database.read() as session:
        since = {row.id: row.quarantined for row in session.scalars(select(Node))}
    scene.end_backoff(run_id)
    with scene.database.write() as session:
        for node_id, quarantined in since.items():
            session.execute(update(Node).where(Node.id == node_id).values(quarantined=quarantined))


def failed_twice(scene: Scene) -> str:
    """A run that lost node-a twice."""
    work = scene.running()
    lose(scene, work)
    assert node(scene)["quarantine"] is None, "one failure is not enough"
    beat(scene.agent)
    lose(scene, scene.again(work.run_id))
    beat(scene.agent)
    return work.run_id


def test_two_failures_within_a_day_put_a_node_into_quarantine(scene: Scene) -> None:
    run_id = failed_twice(scene)
    shown = node(scene)
    assert "failed 2 times within 24 hours" in shown["quarantine"]["reason"]
    assert [failure["code"] for failure in shown["failures"]] == ["lease_expired"] * 2
    end_backoff_only(scene, run_id)
    scene.control.sweep()
    assert scene.agent.heartbeat() == [], "nothing is placed on it"
    assert "node-a is in quarantine until a self-test passes" in scene.show(run_id)["sentence"]


def test_failures_of_the_previous_day_do_not_count(scene: Scene) -> None:
    work = scene.running()
    lose(scene, work)
    with scene.database.write() as session:
        session.execute(update(NodeFailure).values(time=now() - timedelta(hours=25)))
    beat(scene.agent)
    lose(scene, scene.again(work.run_id))
    assert node(scene)["quarantine"] is None
    assert len(node(scene)["failures"]) == 1


@pytest.mark.parametrize("code", ["crashed", "supervisor_lost", "self_fenced", "disk_full", "out_of_memory"])
def test_failures_of_runs_and_of_the_platform_do_not_count(scene: Scene, code: str) -> None:
    for _ in range(2):
        work = scene.running()
        work.end(code)
        scene.cancel(work.run_id)
    assert node(scene)["quarantine"] is None
    assert node(scene)["failures"] == []


def test_a_node_that_restarts_twice_is_quarantined(scene: Scene) -> None:
    for _ in range(2):
        work = scene.running()
        work.end("node_rebooted")
        scene.cancel(work.run_id)
    assert [failure["code"] for failure in node(scene)["failures"]] == ["node_rebooted"] * 2
    assert node(scene)["quarantine"] is not None


def test_a_node_that_a_hang_names_is_quarantined_immediately(scene: Scene) -> None:
    work = scene.running(slots=2)
    assert work.order("running", stall=stall({0: 7, 1: 6})) == "kill"
    assert "Rank 1 on node-a has not arrived" in node(scene)["quarantine"]["reason"]


def test_a_hang_without_a_culprit_blames_no_node(scene: Scene) -> None:
    work = scene.running(slots=2)
    assert work.order("running", stall=stall({0: 7, 1: 7})) == "kill"
    assert node(scene)["quarantine"] is None


def test_a_self_test_that_passes_ends_the_quarantine(scene: Scene) -> None:
    assert beat(scene.agent)["self_test"] is None
    edit(scene, quarantined=True)
    wanted = beat(scene.agent)["self_test"]
    assert wanted is not None
    failed = {"name": "memory of cpu", "passed": False, "detail": "1 of 8 values had changed"}
    reply = beat(scene.agent, self_test={"id": wanted, "checks": [failed]})
    assert reply["self_test"] == wanted
    shown = node(scene)
    assert shown["self_test"]["passed"] is False
    assert shown["self_test"]["checks"] == [failed]
    assert shown["quarantine"] is not None
    passed = {"name": "memory of cpu", "passed": True}
    assert beat(scene.agent, self_test={"id": wanted, "checks": [passed]})["self_test"] is None
    assert node(scene)["quarantine"] is None
    assert node(scene)["self_test"]["passed"] is True


def test_a_repeated_failed_result_keeps_its_time(scene: Scene) -> None:
    """Agents repeat the result in each heartbeat until the next test."""
    edit(scene, quarantined=True)
    failed = {"name": "memory of cpu", "passed": False, "detail": "1 of 8 values had changed"}
    report = {"id": beat(scene.agent)["self_test"], "checks": [failed]}
    times = []
    for _ in range(2):
        beat(scene.agent, self_test=report)
        times.append(node(scene)["self_test"]["time"])
    assert times[0] == times[1]
    beat(scene.agent, self_test=report | {"checks": [failed | {"detail": "2 of 8 values had changed"}]})
    assert node(scene)["self_test"]["time"] > times[1], "the next test"


def test_a_run_on_several_nodes_names_the_missing_node(scene: Scene) -> None:
    for name, address in PEERS.items():
        Agent.join(scene.site, name, reported={"peer_address": address})
    run_id = two_nodes(scene)
    for name in ("node-b", "node-c"):
        address = f"/api/v1/nodes/{node(scene, name)['id']}"
        assert scene.site.admin.patch(address, json={"quarantined": True}).status_code == 200
    scene.control.sweep()
    sentence = scene.show(run_id)["sentence"]
    assert "1 node of that size is available; node-b, node-c are in quarantine until" in sentence


def test_the_result_of_an_earlier_quarantine_does_not_count(scene: Scene) -> None:
    edit(scene, quarantined=True)
    earlier = beat(scene.agent)["self_test"]
    edit(scene, quarantined=False)
    edit(scene, quarantined=True)
    beat(scene.agent, self_test={"id": earlier, "checks": [{"name": "memory", "passed": True}]})
    assert node(scene)["quarantine"] is not None


def test_a_site_admin_releases_a_node(scene: Scene) -> None:
    run_id = failed_twice(scene)
    assert edit(scene, quarantined=False)["quarantine"] is None
    assert scene.again(run_id).order("starting") == "go"


def test_an_unclaimed_run_is_placed_elsewhere(scene: Scene) -> None:
    run_id = scene.submit()
    scene.control.sweep()
    assert [placed["run_id"] for placed in scene.agent.heartbeat()] == [run_id]
    edit(scene, quarantined=True)
    assert scene.agent.try_claim(run_id).status_code == 409
    scene.control.sweep()
    assert scene.agent.heartbeat() == []


def test_claimed_runs_continue(scene: Scene) -> None:
    work = scene.running()
    edit(scene, quarantined=True)
    scene.control.sweep()
    assert work.order("running") == "go"


def test_the_result_of_a_test_from_before_the_release_changes_nothing(scene: Scene) -> None:
    node = scene.site.admin.get("/api/v1/nodes").json()[0]
    path = f"/api/v1/nodes/{node['id']}"
    assert scene.site.admin.patch(path, json={"quarantined": True}).status_code == 200
    wanted = scene.agent.client.post("/api/v1/agent/heartbeat", json={}).json()["self_test"]
    assert scene.site.admin.patch(path, json={"quarantined": False}).json()["quarantine"] is None
    late = {"id": wanted, "checks": [{"name": "memory", "passed": False, "detail": "lost"}]}
    scene.agent.heartbeat(self_test=late)
    shown = scene.site.admin.get("/api/v1/nodes").json()[0]
    assert shown["quarantine"] is None and shown["self_test"] is None
    assert scene.start().order("starting") == "go"
