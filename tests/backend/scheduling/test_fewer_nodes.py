"""Elastic runs: the next attempt continues with fewer nodes if no other node replaces a lost one."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from tests.backend.attempts.test_several_nodes import expire, placed_on, start, upload_parts
from tests.backend.nodes.test_drain import set_draining
from tests.backend.scripted_agent import Agent, Scene, Work
from trainwright.contracts.run_state import RunState
from trainwright_backend.core.db import now
from trainwright_backend.core.ids import parse_id
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.tables import RunEvent

Peers = dict[str, Agent]


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture
def peers(scene: Scene) -> Peers:
    """The two nodes of a run. No run is placed on the scene's own node."""
    set_draining(scene, "node-a", True)
    return join(scene, "bc")


def join(scene: Scene, letters: str) -> Peers:
    return {
        f"node-{letter}": Agent.join(
            scene.site, f"node-{letter}", reported={"peer_address": f"10.0.0.{ord(letter)}"}
        )
        for letter in letters
    }


def elastic(scene: Scene, nodes: int = 2, least: int | None = 1, batch: int = 4, **sections: Any) -> str:
    """A run on some nodes with two slots each, or on fewer."""
    resources = {"device": "cpu", "nodes": nodes, "slots_per_node": 2, "min_nodes": least}
    sizes = {"sequence_tokens": 64, "micro_sequences": 1, "global_sequences": batch}
    return scene.submit(resources=resources, batch=sizes, **sections)


def lose(scene: Scene, works: list[Work], lost: Work) -> None:
    """The lease of one node expires, and the others stop."""
    expire(scene, lost)
    set_online(scene, lost.agent.name, False)
    states = [work.ended("stopped") for work in works if work is not lost]
    assert states[-1] == "retry_wait"
    scene.end_backoff(works[0].run_id)
    scene.control.sweep()


def set_online(scene: Scene, name: str, online: bool) -> None:
    seen = now() if online else now() - timedelta(days=1)
    with scene.database.write() as session:
        session.execute(update(Node).where(Node.name == name).values(last_heartbeat=seen))


def let_wait(scene: Scene, run_id: str) -> None:
    """The run has been in the queue for an hour."""
    queued = (RunEvent.run_id == parse_id("run", run_id), RunEvent.state == RunState.QUEUED)
    with scene.database.write() as session:
        session.execute(update(RunEvent).where(*queued).values(time=now() - timedelta(hours=1)))
    scene.control.sweep()


def placed(scene: Scene, peers: Peers, run_id: str) -> list[Work]:
    return [peers[name].claim(run_id) for name in placed_on(peers, run_id)]


def shrunk(scene: Scene, peers: Peers, run_id: str) -> Work:
    """The attempt on one node of a run whose other node was lost after step 5."""
    works = start(scene, peers, run_id)
    works[0].step(1, 5)
    assert works[0].commit(upload_parts(works, 5)).status_code == 200
    lose(scene, works, works[1])
    let_wait(scene, run_id)
    (work,) = placed(scene, {works[0].agent.name: works[0].agent}, run_id)
    return work


def events(scene: Scene, run_id: str, kind: str) -> list[str]:
    found = scene.site.admin.get(f"{scene.runs}/{run_id}/events").json()
    return [event["message"] for event in found if event["type"] == kind]


def test_a_run_waits_for_another_node_and_then_goes_on_with_fewer(scene: Scene, peers: Peers) -> None:
    run_id = elastic(scene)
    works = start(scene, peers, run_id)
    works[0].step(1, 5)
    assert works[0].commit(upload_parts(works, 5)).status_code == 200
    lose(scene, works, works[1])
    assert scene.show(run_id)["sentence"] == (
        "needs 2 nodes with 2 slots each; 1 node of that size is online; continues with 1 node or more after 15 s"
    )
    assert scene.used() == 0
    let_wait(scene, run_id)
    assert scene.used() == 2, "the slots of one node"
    (work,) = placed(scene, {"node-b": peers["node-b"]}, run_id)
    job = work.claim.job
    assert (job.nodes, job.ranks, job.spec.resources.nodes) == (1, 2, 1)
    assert (job.spec.degrees.data, job.spec.accumulation_steps) == (2, 2)
    assert job.spec.batch.global_sequences == works[0].claim.job.spec.batch.global_sequences
    assert job.resume is not None and job.resume.step == 5
    assert events(scene, run_id, "fewer_nodes") == [
        "attempt 2 continues with 1 of 2 nodes, because no others were free: data 4 → 2, micro batches per step 1 → 2. "
        "The global batch does not change. The next attempt looks for 2 nodes again"
    ]
    scene.check_invariants()
    assert work.finish(10) == "succeeded"
    assert scene.used() == 0
    shown = scene.show(run_id)
    assert shown["attempt_nodes"] == ["node-b"]
    assert shown["spec"]["resources"]["nodes"] == 2, "the request does not change"


@pytest.mark.slow(target="databases")
def test_other_runs_do_not_take_the_nodes_while_it_waits(scene: Scene, peers: Peers) -> None:
    run_id = elastic(scene)
    works = start(scene, peers, run_id)
    lose(scene, works, works[1])
    other = Agent.join(scene.site, "node-f")
    later = [scene.submit(slots=2) for _ in range(2)]
    scene.control.sweep()
    assert peers["node-b"].heartbeat() == []
    assert [run["run_id"] for run in other.heartbeat()] == later[:1]


def test_the_next_attempt_is_on_all_nodes_again_once_they_are_back(scene: Scene, peers: Peers) -> None:
    run_id = elastic(scene)
    work = shrunk(scene, peers, run_id)
    set_online(scene, "node-c", True)
    scene.control.sweep()
    assert scene.show(run_id)["nodes"] == ["node-b"], "the attempt does not grow"
    assert work.ended("crashed") == "retry_wait"
    scene.end_backoff(run_id)
    scene.control.sweep()
    assert placed_on(peers, run_id) == ["node-b", "node-c"]
    assert scene.used() == 4


def test_a_lost_node_that_comes_back_in_time_is_used(scene: Scene, peers: Peers) -> None:
    run_id = elastic(scene)
    works = start(scene, peers, run_id)
    lose(scene, works, works[1])
    set_online(scene, "node-c", True)
    let_wait(scene, run_id)
    assert placed_on(peers, run_id) == ["node-b", "node-c"]


@pytest.mark.parametrize("case", ["not elastic", "new"])
def test_a_run_that_may_not_shrink_waits(scene: Scene, peers: Peers, case: str) -> None:
    run_id = elastic(scene, least=None if case == "not elastic" else 1)
    if case == "new":
        set_online(scene, "node-c", False)
        scene.control.sweep()
    else:
        works = start(scene, peers, run_id)
        lose(scene, works, works[1])
    let_wait(scene, run_id)
    assert placed_on({"node-b": peers["node-b"]}, run_id) == []
    assert scene.show(run_id)["sentence"] == "needs 2 nodes with 2 slots each; 1 node of that size is online"


@pytest.mark.slow(target="databases")
def test_only_numbers_of_nodes_that_divide_the_batch_are_used(scene: Scene) -> None:
    set_draining(scene, "node-a", True)
    peers = join(scene, "bcde")
    run_id = elastic(scene, nodes=4, least=1, batch=8)
    works = start(scene, peers, run_id)
    lose(scene, works, works[3])
    let_wait(scene, run_id)
    again = placed(scene, {name: peers[name] for name in ("node-b", "node-c", "node-d")}, run_id)
    assert [work.claim.job.nodes for work in again] == [2, 2], "6 ranks would not divide 8 sequences"
    assert scene.state(run_id) == "starting"


def test_an_attempt_on_fewer_nodes_that_makes_no_step_does_not_fail_the_run(
    scene: Scene, peers: Peers
) -> None:
    """Each rank has a larger share of a sharded state, which may not fit its memory."""
    run_id = elastic(scene, parallelism={"zero_stage": 1})
    work = shrunk(scene, peers, run_id)
    assert work.order("starting") == "go"
    work.begin(5)
    assert work.ended("out_of_memory", "Rank 0 needs more memory.") == "retry_wait"
    assert scene.show(run_id)["sentence"] == "Rank 0 needs more memory; continues on 2 nodes."
    (told,) = events(scene, run_id, "layout_rolled_back")
    assert told == (
        "attempt 2 ended before its first step on 1 of 2 nodes (Rank 0 needs more memory). The next attempt waits for 2 nodes: "
        "resources.min_nodes is empty now. Read the logs of attempt 2."
    )
    scene.end_backoff(run_id)
    let_wait(scene, run_id)
    assert placed_on({"node-b": peers["node-b"]}, run_id) == []
    set_online(scene, "node-c", True)
    scene.control.sweep()
    assert placed_on(peers, run_id) == ["node-b", "node-c"]


@pytest.mark.slow(target="databases")
def test_an_attempt_on_fewer_nodes_that_made_steps_fails_as_usual(scene: Scene, peers: Peers) -> None:
    run_id = elastic(scene)
    work = shrunk(scene, peers, run_id)
    assert work.order("starting") == "go"
    work.begin(5)
    assert work.order("running") == "go"
    work.step(6, 7)
    assert work.ended("out_of_memory") == "failed"
    assert scene.used() == 0


def test_a_run_leaves_a_node_if_it_can_go_on_without_it(scene: Scene, peers: Peers) -> None:
    run_id = elastic(scene)
    works = start(scene, peers, run_id)
    response = scene.site.admin.post(f"{scene.runs}/{run_id}/move", json={"node": "node-c"})
    assert response.status_code == 202, response.text
    for work in works:
        assert work.order("running") == "save"
        state = work.ended("saved", step=1)
    assert state == "queued"
    let_wait(scene, run_id)
    assert placed_on(peers, run_id) == ["node-b"]


def test_a_placement_on_fewer_nodes_that_is_not_claimed_asks_for_all_nodes_again(
    scene: Scene, peers: Peers
) -> None:
    run_id = elastic(scene)
    works = start(scene, peers, run_id)
    lose(scene, works, works[1])
    let_wait(scene, run_id)
    assert scene.used() == 2
    set_draining(scene, "node-b", True)
    scene.control.sweep()
    assert scene.used() == 0
    set_online(scene, "node-c", True)
    set_draining(scene, "node-b", False)
    scene.control.sweep()
    assert placed_on(peers, run_id) == ["node-b", "node-c"]
    assert scene.used() == 4
