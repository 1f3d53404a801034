"""Moving a run off a node: it saves, leaves, and is placed without that node, at its earlier place in the queue."""

from typing import Any

import pytest
from httpx import Response

from tests.backend.attempts.test_several_nodes import placed_on, start, two_nodes
from tests.backend.scripted_agent import Agent, Scene, Work


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture
def other(scene: Scene) -> Agent:
    """A second node of the same size."""
    return Agent.join(scene.site, "node-b")


def move(scene: Scene, work: Work, node: str = "node-a") -> Response:
    return scene.site.admin.post(f"{scene.runs}/{work.run_id}/move", json={"node": node})


def moved(scene: Scene, work: Work, step: int = 3) -> None:
    """The run saves and leaves its node."""
    assert move(scene, work).status_code == 202
    assert work.order("running") == "save"
    work.save(step)
    assert work.ended("saved", step=step) == "queued"


def test_a_run_saves_leaves_its_node_and_resumes_on_another(scene: Scene, other: Agent) -> None:
    work = scene.running()
    response = move(scene, work)
    assert response.status_code == 202
    shown = response.json()
    assert (shown["state"], shown["verdict"]) == ("stopping", "move")
    assert shown["sentence"] == "Moved off node-a by Ada"
    assert work.order("running") == "save"
    work.save(3)
    assert work.ended("saved", step=3) == "queued"
    assert scene.used() == 0, "it waits like any other run"
    scene.control.sweep()
    again = other.claim(work.run_id)
    assert again.claim.job.resume is not None and again.claim.job.resume.step == 3
    assert again.claim.attempt == 2
    assert again.finish(10) == "succeeded"


def test_a_run_that_was_moved_is_first_in_the_queue_again(scene: Scene, other: Agent) -> None:
    work = scene.running(slots=2)
    blocker = scene.submit(slots=2)
    scene.control.sweep()
    taken = other.claim(blocker)
    later = scene.submit(slots=2)
    moved(scene, work)
    scene.control.sweep()
    assert scene.show(work.run_id)["sentence"].endswith("not on node-a, which it was moved off")
    assert [placed["run_id"] for placed in scene.agent.heartbeat()] == [later], "it may use the free node"
    assert taken.ended("bad_job") == "failed"
    scene.control.sweep()
    assert [placed["run_id"] for placed in other.heartbeat()] == [work.run_id]


def test_the_node_is_avoided_once(scene: Scene, other: Agent) -> None:
    work = scene.running()
    moved(scene, work)
    scene.control.sweep()
    again = other.claim(work.run_id)
    assert again.ended("crashed") == "retry_wait"
    site = scene.site.admin
    nodes = {node["name"]: node["id"] for node in site.get("/api/v1/nodes").json()}
    assert site.patch(f"/api/v1/nodes/{nodes['node-b']}", json={"draining": True}).status_code == 200
    assert scene.again(work.run_id).claim.attempt == 3, "on the node that it was previously moved off"


def test_a_paused_run_that_was_moved_is_resumed_anywhere(scene: Scene, other: Agent) -> None:
    work = scene.running()
    assert move(scene, work).status_code == 202
    path = f"{scene.runs}/{work.run_id}"
    assert scene.site.admin.post(f"{path}/pause").json()["verdict"] == "pause", "a stronger request"
    work.order("running")
    work.save(3)
    assert work.ended("saved", step=3) == "paused"
    assert scene.site.admin.post(f"{path}/resume").status_code == 202
    scene.control.sweep()
    assert "moved off" not in scene.show(work.run_id)["sentence"]


def test_a_run_on_two_nodes_leaves_one_of_them(scene: Scene) -> None:
    peers = {
        f"node-{name}": Agent.join(scene.site, f"node-{name}", reported={"peer_address": f"10.0.0.{n}"})
        for n, name in enumerate("bcd", 1)
    }
    run_id = two_nodes(scene)
    works = start(scene, peers, run_id)
    left = works[1].agent.name
    assert move(scene, works[0], left).status_code == 202
    for work in works:
        assert work.order("running") == "save"
    for work in works:
        state = work.ended("saved", step=1)
    assert state == "queued"
    scene.control.sweep()
    again = placed_on(peers, run_id)
    assert left not in again and len(again) == 2


def test_a_run_that_fails_while_it_saves_is_moved_anyway(scene: Scene, other: Agent) -> None:
    work = scene.running()
    move(scene, work)
    assert work.ended("crashed") == "queued"
    events = scene.site.admin.get(f"{scene.runs}/{work.run_id}/events").json()
    assert any("ended while saving" in event["message"] for event in events)
    scene.control.sweep()
    assert other.claim(work.run_id).claim.job.resume is None


def test_repeating_is_harmless(scene: Scene, other: Agent) -> None:
    work = scene.running()
    assert [move(scene, work).json()["verdict"] for _ in range(2)] == ["move", "move"]
    events = scene.site.admin.get(f"{scene.runs}/{work.run_id}/events").json()
    assert [event["message"] for event in events].count("Moved off node-a by Ada") == 1


@pytest.mark.parametrize("case", ["alone", "elsewhere", "queued", "final", "cancelled"])
def test_a_run_that_cannot_be_moved_is_refused_with_the_reason(scene: Scene, case: str) -> None:
    expected: dict[str, tuple[str, Any]] = {
        "alone": ("no_other_node", "no node other than node-a can run it. Add a node, or pause the run."),
        "elsewhere": ("not_on_node", "It is on node-a."),
        "queued": ("not_on_node", "It is queued, on no node."),
        "final": ("run_is_final", "This run has already "),
        "cancelled": ("run_is_stopping", "to cancel"),
    }
    if case != "alone":
        Agent.join(scene.site, "node-b")
    work = scene.running()
    node = "node-b" if case == "elsewhere" else "node-a"
    if case == "queued":
        moved(scene, work)
        node = "node-c"
    if case in ("final", "cancelled"):
        scene.cancel(work.run_id)
    if case == "final":
        assert work.ended("stopped") == "cancelled"
    response = move(scene, work, node)
    code, words = expected[case]
    assert (response.status_code, response.json()["code"]) == (409, code)
    assert words in response.json()["detail"]
