"""A run on several nodes gets nodes that can reach each other: nodes that joined through a loopback address reach only
each other."""

import pytest
from sqlalchemy import select, update

from tests.backend.scripted_agent import Agent, Scene, inventory
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.tables import Run

LOCAL, OTHER = "127.0.0.1", "10.0.0.1"
TWO = {"resources": {"device": "cpu", "nodes": 2, "slots_per_node": 2}}


@pytest.fixture
def mixed(scene: Scene) -> dict[str, Agent]:
    """Two nodes on the server's machine and one on another."""
    addresses = {"k": LOCAL, "l": OTHER, "m": LOCAL}
    return {
        name: Agent.join(scene.site, name, reported={"peer_address": address})
        for name, address in addresses.items()
    }


def test_a_run_whose_nodes_could_not_reach_each_other_is_refused(scene: Scene) -> None:
    for name, address in {"k": LOCAL, "l": OTHER}.items():
        Agent.join(scene.site, name, reported={"peer_address": address})
    response = scene.site.admin.post(scene.runs, json=scene.spec(**TWO))
    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert error["field"] == "resources.nodes"
    assert "1 joined node qualifies" in error["message"] and "loopback address" in error["message"]


def test_a_run_reserves_only_nodes_that_can_run_it_together(scene: Scene, mixed: dict[str, Agent]) -> None:
    """Otherwise the node on the other machine would be reserved for nothing."""
    busy = scene.submit(**TWO)
    scene.control.sweep()
    assert [mixed[name].heartbeat()[0]["run_id"] for name in ("k", "m")] == [busy, busy]
    waiting = scene.submit(resources={"device": "cpu", "nodes": 2, "slots_per_node": 1})
    small = scene.submit(slots=2)
    scene.control.sweep()
    assert scene.show(waiting)["sentence"] == "needs 2 nodes with 1 slot each; 0 of 2 such nodes are free"
    assert scene.show(small)["sentence"] == "placed on l"


def test_a_run_reports_that_the_online_nodes_cannot_reach_each_other(
    scene: Scene, mixed: dict[str, Agent]
) -> None:
    waiting = scene.submit(**TWO)
    with scene.database.write() as session:
        session.execute(update(Node).where(Node.name == "m").values(draining=True))
    scene.control.sweep()
    assert scene.show(waiting)["sentence"].startswith(
        "needs 2 nodes with 2 slots each; 2 nodes of that size are"
    )
    assert "loopback address" in scene.show(waiting)["sentence"]


def test_a_run_reports_that_nodes_have_no_address(scene: Scene, mixed: dict[str, Agent]) -> None:
    waiting = scene.submit(**TWO)
    for agent in mixed.values():
        agent.heartbeat(inventory=inventory())
    scene.control.sweep()
    sentence = scene.show(waiting)["sentence"]
    assert "reported no address for other nodes" in sentence and "engine" not in sentence


def test_a_run_with_an_unreadable_spec_does_not_block_others(scene: Scene) -> None:
    """After an upgrade, new rules may refuse the spec of a queued run."""
    old, other = scene.submit(slots=1), scene.submit(slots=1)
    spec = scene.show(old)["spec"]
    spec["schedule"]["steps"] = 0
    with scene.database.write() as session:
        first = session.scalars(select(Run.id).order_by(Run.id).limit(1)).one()
        session.execute(update(Run).where(Run.id == first).values(spec=spec))
    scene.control.sweep()
    assert [placed["run_id"] for placed in scene.agent.heartbeat()] == [other]
