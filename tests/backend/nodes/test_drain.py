"""A drained node gets no new runs and keeps its claimed ones, unless they are moved off; and every node lists its runs."""

from typing import Any

import pytest
from httpx import Response

from tests.backend.scripted_agent import Agent, Scene


def nodes(scene: Scene) -> dict[str, Any]:
    """As the site's admin sees them, by name."""
    return {node["name"]: node for node in scene.site.admin.get("/api/v1/nodes").json()}


def set_draining(scene: Scene, name: str, draining: bool) -> dict[str, Any]:
    response = scene.site.admin.patch(
        f"/api/v1/nodes/{nodes(scene)[name]['id']}", json={"draining": draining}
    )
    assert response.status_code == 200, response.text
    shown: dict[str, Any] = response.json()
    return shown


def test_a_drained_node_gets_nothing_until_it_takes_runs_again(scene: Scene) -> None:
    assert set_draining(scene, "node-a", True)["draining"]
    run_id = scene.submit()
    scene.control.sweep()
    assert scene.agent.heartbeat() == []
    assert scene.show(run_id)["sentence"] == "needs 1 slot; node-a is drained"
    assert not set_draining(scene, "node-a", False)["draining"]
    scene.control.sweep()
    assert [placed["run_id"] for placed in scene.agent.heartbeat()] == [run_id]


def test_other_nodes_get_the_runs_of_a_drained_one(scene: Scene) -> None:
    other = Agent.join(scene.site, "node-b")
    set_draining(scene, "node-a", True)
    runs = [scene.submit() for _ in range(3)]
    scene.control.sweep()
    assert [placed["run_id"] for placed in other.heartbeat()] == runs[:2]
    assert scene.show(runs[2])["sentence"] == "needs 1 slot, 0 free on 1 node"


def test_claimed_runs_of_a_drained_node_continue_and_the_rest_is_placed_elsewhere(scene: Scene) -> None:
    work = scene.running()
    unclaimed = scene.submit()
    scene.control.sweep()
    assert len(scene.agent.heartbeat()) == 2
    other = Agent.join(scene.site, "node-b")
    set_draining(scene, "node-a", True)
    scene.control.sweep()
    assert [placed["run_id"] for placed in scene.agent.heartbeat()] == [work.run_id]
    assert [placed["run_id"] for placed in other.heartbeat()] == [unclaimed]
    work.step(4, 10)
    work.save(10)
    assert work.order("completing") == "go"
    work.save(10, "export")
    assert work.ended("finished", step=10) == "succeeded"


def test_a_run_placed_before_draining_is_no_longer_claimed(scene: Scene) -> None:
    run_id = scene.submit()
    scene.control.sweep()
    assert [placed["run_id"] for placed in scene.agent.heartbeat()] == [run_id]
    set_draining(scene, "node-a", True)
    refused = scene.agent.client.post(f"/api/v1/agent/runs/{run_id}/claim", json={"claim_id": "c" * 32})
    assert (refused.status_code, refused.json()["code"]) == (409, "claim_refused")
    assert scene.state(run_id) == "queued"
    other = Agent.join(scene.site, "node-b")
    scene.control.sweep()
    assert [placed["run_id"] for placed in other.heartbeat()] == [run_id]


def empty(scene: Scene, name: str = "node-a") -> dict[str, Any]:
    """Drain a node and move its runs off."""
    response = edit(scene, name, {"draining": True, "move_runs": True})
    assert response.status_code == 200, response.text
    scene.control.sweep()
    shown: dict[str, Any] = response.json()
    return shown


def edit(scene: Scene, name: str, change: dict[str, Any]) -> Response:
    return scene.site.admin.patch(f"/api/v1/nodes/{nodes(scene)[name]['id']}", json=change)


def test_runs_of_an_emptied_node_save_leave_and_resume_elsewhere(scene: Scene) -> None:
    works = [scene.running(name=name) for name in ("one", "two")]
    other = Agent.join(scene.site, "node-b")
    shown = empty(scene)
    assert (shown["draining"], shown["move_runs"]) == (True, True)
    for work in works:
        run = scene.show(work.run_id)
        assert (run["state"], run["verdict"]) == ("stopping", "move")
        assert run["sentence"] == "Moved off node-a, which is being emptied"
        assert work.order("running") == "save"
        work.save(3)
        assert work.ended("saved", step=3) == "queued"
    scene.control.sweep()
    assert nodes(scene)["node-a"]["runs"] == [] == scene.agent.heartbeat()
    for work in works:
        again = other.claim(work.run_id)
        assert again.claim.job.resume is not None and again.claim.job.resume.step == 3
        assert again.finish(10) == "succeeded"


def test_a_run_that_fits_no_other_node_leaves_and_waits(scene: Scene) -> None:
    """The machine is going to be switched off."""
    work = scene.running()
    empty(scene)
    assert work.order("running") == "save"
    work.save(3)
    assert work.ended("saved", step=3) == "queued"
    scene.control.sweep()
    assert scene.show(work.run_id)["sentence"] == "needs 1 slot; node-a is drained"
    assert not set_draining(scene, "node-a", False)["move_runs"]
    scene.control.sweep()
    assert scene.agent.claim(work.run_id).claim.job.resume is not None


def test_the_runs_of_a_drained_node_are_moved_later_if_wanted(scene: Scene) -> None:
    work = scene.running()
    assert not set_draining(scene, "node-a", True)["move_runs"]
    scene.control.sweep()
    assert work.order("running") == "go"
    assert edit(scene, "node-a", {"move_runs": True}).json()["draining"]
    scene.control.sweep()
    assert work.order("running") == "save"


def test_a_run_that_stops_for_another_reason_does_so_on_an_emptied_node(scene: Scene) -> None:
    work = scene.running()
    assert scene.site.admin.post(f"{scene.runs}/{work.run_id}/pause").status_code == 202
    empty(scene)
    assert scene.show(work.run_id)["verdict"] == "pause"
    work.order("running")
    work.save(3)
    assert work.ended("saved", step=3) == "paused"


def test_a_run_on_several_nodes_leaves_all_of_them_if_one_is_emptied(scene: Scene) -> None:
    peers = {
        f"node-{letter}": Agent.join(
            scene.site, f"node-{letter}", reported={"peer_address": f"10.0.0.{ord(letter)}"}
        )
        for letter in "bcd"
    }
    resources = {"device": "cpu", "nodes": 2, "slots_per_node": 2}
    run_id = scene.submit(resources=resources)
    scene.control.sweep()
    works = [peers[name].claim(run_id) for name in ("node-b", "node-c")]
    assert [work.order("running") for work in works] == ["go", "go"]
    empty(scene, "node-c")
    assert [work.order("running") for work in works] == ["save", "save"]
    assert [work.ended("saved", step=0) for work in works] == ["stopping", "queued"]
    scene.control.sweep()
    on = [name for name, agent in peers.items() if agent.heartbeat()]
    assert on == ["node-b", "node-d"]


def test_only_a_drained_node_is_emptied(scene: Scene) -> None:
    refused = edit(scene, "node-a", {"draining": False, "move_runs": True})
    assert refused.status_code == 422
    [error] = refused.json()["errors"]
    assert error["field"] == "move_runs" and "leave draining out" in error["message"]


@pytest.mark.both_databases
def test_draining_survives_a_restart_of_the_agent(scene: Scene) -> None:
    set_draining(scene, "node-a", True)
    Agent.join(scene.site, "node-a")
    assert nodes(scene)["node-a"]["draining"]


def test_a_node_lists_the_runs_of_all_teams_on_it(scene: Scene) -> None:
    work = scene.running(slots=2, name="pilot")
    (placement,) = nodes(scene)["node-a"]["runs"]
    shown = {name: placement[name] for name in ("team", "run", "name", "device", "state")}
    assert shown == {"team": "acme", "run": work.run_id, "name": "pilot", "device": "cpu", "state": "running"}
    assert sorted(placement["slots"]) == [0, 1]
    scene.cancel(work.run_id)
    assert nodes(scene)["node-a"]["runs"][0]["state"] == "stopping"
    work.ended("stopped")
    assert nodes(scene)["node-a"]["runs"] == []


def test_only_a_site_admin_drains_and_only_a_node_that_exists(scene: Scene) -> None:
    address = f"/api/v1/nodes/{nodes(scene)['node-a']['id']}"
    assert scene.site.member("owner").patch(address, json={"draining": True}).status_code == 403
    unknown = scene.site.admin.patch("/api/v1/nodes/node_" + "a" * 26, json={"draining": True})
    assert unknown.status_code == 404
    refused = scene.site.admin.patch(address, json={"drained": True})
    assert refused.status_code == 422
    assert not nodes(scene)["node-a"]["draining"]
