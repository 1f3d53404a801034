"""The protocol of a run on several nodes: placed, claimed, ended and retried on all of them together."""

from typing import Any

import pytest
from sqlalchemy import select, update

from tests.backend.scripted_agent import Agent, Scene, Upload, Work
from trainwright_backend.attempts.attempt_end import expire_lease
from trainwright_backend.core.db import now
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.tables import Placement

SIX = {"sequence_tokens": 64, "micro_sequences": 1, "global_sequences": 6}
PEERS = {name: f"10.0.0.{n}" for n, name in enumerate(("node-b", "node-c", "node-d"), 1)}


@pytest.fixture
def peers(scene: Scene) -> dict[str, Agent]:
    """Three nodes that can be part of a run on several nodes, and one that cannot."""
    return {
        name: Agent.join(scene.site, name, reported={"peer_address": address})
        for name, address in PEERS.items()
    }


def two_nodes(scene: Scene, slots: int = 2, **sections: Any) -> str:
    resources = {"device": "cpu", "nodes": 2, "slots_per_node": slots}
    return scene.submit(resources=resources, **sections)


def placed_on(peers: dict[str, Agent], run_id: str) -> list[str]:
    return [
        name
        for name, agent in peers.items()
        if any(placed["run_id"] == run_id for placed in agent.heartbeat())
    ]


def claim_all(scene: Scene, peers: dict[str, Agent], run_id: str) -> list[Work]:
    scene.control.sweep()
    return [peers[name].claim(run_id) for name in placed_on(peers, run_id)]


def start(scene: Scene, peers: dict[str, Agent], run_id: str) -> list[Work]:
    """All nodes have fetched their files and make steps."""
    works = claim_all(scene, peers, run_id)
    for work in works:
        assert work.order("starting", peer=f"{work.agent.name}:2000") == "go"
    first = works[0]
    first.begin(first.claim.job.resume.step if first.claim.job.resume else 0)
    for work in works:
        assert work.order("running", peer=f"{work.agent.name}:2000") == "go"
    return works


def test_all_nodes_get_one_attempt(scene: Scene, peers: dict[str, Agent]) -> None:
    run_id = two_nodes(scene)
    scene.control.sweep()
    assert scene.used() == 4, "the slots of both nodes"
    assert placed_on(peers, run_id) == ["node-b", "node-c"]
    first = peers["node-c"].claim(run_id)
    assert scene.state(run_id) == "leased"
    assert first.order() == "wait", "nothing starts before all have claimed"
    second = peers["node-b"].claim(run_id)
    assert scene.state(run_id) == "starting"
    assert first.order() == second.order() == "go"
    assert first.claim.fence == second.claim.fence
    jobs = [second.claim.job, first.claim.job]
    assert [job.node_rank for job in jobs] == [0, 1]
    assert [list(job.local_ranks) for job in jobs] == [[0, 1], [2, 3]]
    assert [job.nodes for job in jobs] == [2, 2]
    assert scene.show(run_id)["nodes"] == ["node-b", "node-c"]
    events = scene.site.admin.get(f"{scene.runs}/{run_id}/events").json()
    assert events[-1]["message"] == "attempt 1 on node-b, node-c"


def test_a_run_names_the_nodes_of_its_ranks(scene: Scene, peers: dict[str, Agent]) -> None:
    run_id = two_nodes(scene)
    works = start(scene, peers, run_id)
    works[0].log(b"rank 1\n", "rank-1.log")
    works[1].log(b"rank 2\n", "rank-2.log")
    works[1].log(b"started\n", "launcher-1.log")
    for work in works:
        work.ended("crashed")
    assert scene.show(run_id)["attempt_nodes"] == ["node-b", "node-c"], "even after it has left them"
    logs = scene.site.admin.get(f"{scene.runs}/{run_id}/logs").json()
    assert {log["file"]: log["node"] for log in logs} == {
        "rank-1.log": "node-b",
        "rank-2.log": "node-c",
        "launcher-1.log": None,
    }


def test_the_launchers_get_a_rendezvous_when_all_nodes_are_ready(
    scene: Scene, peers: dict[str, Agent]
) -> None:
    first, second = claim_all(scene, peers, two_nodes(scene))
    assert first.renew().json()["rendezvous"] is None
    assert first.renew(peer="10.0.0.1:4000").json()["rendezvous"] is None
    assert second.renew().json()["rendezvous"] is None
    assert second.renew(peer="10.0.0.2:5000").json()["rendezvous"] == "10.0.0.1:4000"
    assert first.renew(peer="10.0.0.1:4000").json()["rendezvous"] == "10.0.0.1:4000"


def test_a_run_on_one_node_has_no_rendezvous(scene: Scene) -> None:
    assert scene.running().renew("running").json()["rendezvous"] is None


def test_a_set_that_is_not_claimed_in_time_is_placed_again(scene: Scene, peers: dict[str, Agent]) -> None:
    run_id = two_nodes(scene)
    scene.control.sweep()
    early = peers["node-b"].claim(run_id)
    with scene.database.write() as session:
        session.execute(
            update(Placement).where(Placement.claim_id.is_(None)).values(placed=now().replace(year=2020))
        )
    scene.control.loop.run_round(sweep=True)
    shown = scene.show(run_id)
    assert shown["state"] == "queued" and shown["attempt"] == 0
    refused = early.renew()
    assert refused.status_code == 404, "as if the node had never claimed it: its supervisor ends"
    works = claim_all(scene, peers, run_id)
    assert len(works) == 2
    assert works[0].claim.fence == early.claim.fence + 1
    assert scene.state(run_id) == "starting"


def test_a_repeated_claim_gets_the_same_response(scene: Scene, peers: dict[str, Agent]) -> None:
    works = claim_all(scene, peers, two_nodes(scene))
    for work in works:
        again = work.agent.claim(work.run_id, work.claim.claim_id)
        assert again.claim.job == work.claim.job and again.claim.fence == work.claim.fence


def upload_parts(works: list[Work], step: int) -> Upload:
    """Each node sends the file that it has, and all send the manifest."""
    upload = Upload.make(step)
    for number, work in enumerate(works):
        response = work.announce(upload)
        assert response.status_code == 200, response.text
        for link in response.json()["links"]:
            if link["name"] in (f"part-{number}.safetensors", "manifest.json"):
                assert (
                    work.agent.client.put(link["url"], content=upload.files[link["name"]]).status_code == 204
                )
        if number == 0 and len(works) > 1:
            waiting = work.commit(upload)
            assert (waiting.status_code, waiting.json()["code"]) == (409, "awaiting_nodes")
    return upload


def test_a_checkpoint_is_committed_when_all_nodes_have_sent_their_files(
    scene: Scene, peers: dict[str, Agent]
) -> None:
    works = start(scene, peers, two_nodes(scene))
    works[0].step(1, 5)
    upload = upload_parts(works, 5)
    assert works[0].commit(upload).status_code == 200


def test_a_checkpoint_of_a_lost_node_is_incomplete(scene: Scene, peers: dict[str, Agent]) -> None:
    works = start(scene, peers, two_nodes(scene))
    works[0].step(1, 5)
    upload = upload_parts(works[:1], 5)
    assert works[0].commit(upload).json()["code"] == "awaiting_nodes"
    assert works[1].ended("crashed") == "stopping"
    assert works[0].commit(upload).json()["code"] == "checkpoint_incomplete"


def test_a_run_succeeds_when_all_nodes_have_ended(scene: Scene, peers: dict[str, Agent]) -> None:
    run_id = two_nodes(scene)
    works = start(scene, peers, run_id)
    works[0].step(1, 10)
    ask = {"claim_id": works[0].claim.claim_id, "fence": works[0].claim.fence}
    early = works[0].agent.post(run_id, "export-job", ask)
    assert (early.status_code, early.json()["code"]) == (409, "not_committed")
    assert works[0].commit(upload_parts(works, 10)).status_code == 200
    granted = works[0].agent.post(run_id, "export-job", ask).json()
    assert granted["job"]["kind"] == "export" and granted["job"]["resume"]["step"] == 10
    assert {file["path"] for file in granted["downloads"]} == {
        "resume/manifest.json",
        "resume/part-0.safetensors",
        "resume/part-1.safetensors",
    }
    assert works[0].order("completing") == "go"
    assert works[1].ended("finished", step=10) == "completing"
    works[0].save(10, "export")
    assert works[0].ended("finished", step=10) == "succeeded"
    assert scene.used() == 0


def test_the_first_node_may_end_before_the_others(scene: Scene, peers: dict[str, Agent]) -> None:
    works = start(scene, peers, two_nodes(scene))
    works[0].step(1, 10)
    assert works[0].commit(upload_parts(works, 10)).status_code == 200
    works[0].save(10, "export")
    assert works[0].ended("finished", step=10) == "running"
    assert works[1].ended("finished", step=10) == "succeeded"


def test_a_node_that_is_lost_after_the_training_does_not_end_the_export(
    scene: Scene, peers: dict[str, Agent]
) -> None:
    run_id = two_nodes(scene)
    works = start(scene, peers, run_id)
    works[0].step(1, 10)
    assert works[0].commit(upload_parts(works, 10)).status_code == 200
    assert works[0].order("completing") == "go"
    expire(scene, works[1])
    assert scene.state(run_id) == "completing"
    works[0].save(10, "export")
    assert works[0].ended("finished", step=10) == "succeeded"


def expire(scene: Scene, silent: Work) -> None:
    """Let the lease of one node run out."""
    with scene.database.read() as session:
        found = session.scalars(select(Placement).where(Placement.claim_id == silent.claim.claim_id)).one()
        placement_id, renewal = found.id, found.renewal
    with scene.database.write() as session:
        assert expire_lease(session, placement_id, renewal, silent.claim.timers)


def test_a_node_that_is_lost_explains_one_that_lost_contact(scene: Scene, peers: dict[str, Agent]) -> None:
    """Therefore ten such losses in a row fail the run as unreachable, instead of three as rank_lost."""
    run_id = two_nodes(scene)
    works = start(scene, peers, run_id)
    assert works[0].ended("rank_lost") == "stopping"
    expire(scene, works[1])
    shown = scene.show(run_id)
    assert (shown["state"], shown["reason"]) == ("retry_wait", "lease_expired")


def test_a_user_error_explains_a_crash_elsewhere(scene: Scene, peers: dict[str, Agent]) -> None:
    """Some libraries end the process that notices the loss of a rank."""
    run_id = two_nodes(scene)
    works = start(scene, peers, run_id)
    assert works[0].ended("crashed") == "stopping"
    assert works[1].ended("out_of_memory") == "failed"
    assert scene.show(run_id)["reason"] == "out_of_memory"


def test_a_step_that_is_not_finite_explains_a_crash_elsewhere(scene: Scene, peers: dict[str, Agent]) -> None:
    """The next attempt then skips the data instead of diverging on it again."""
    run_id = two_nodes(scene)
    works = start(scene, peers, run_id)
    works[0].step(1, 5)
    assert works[0].commit(upload_parts(works, 5)).status_code == 200
    assert works[1].ended("crashed") == "stopping"
    assert works[0].ended("diverged", "Step 8", step=7, sequences_read=64) == "retry_wait"
    assert scene.show(run_id)["reason"] == "diverged"
    scene.end_backoff(run_id)
    resume = claim_all(scene, peers, run_id)[0].claim.job.resume
    assert resume is not None and (resume.step, resume.sequences_read) == (5, 64)


def test_nodes_of_one_attempt_count_once_as_reports_of_a_damaged_parent_checkpoint(
    scene: Scene, peers: dict[str, Agent]
) -> None:
    parent = scene.running(last_step=5)
    parent.save(5)
    changes = {"resources.nodes": 2, "resources.slots_per_node": 1}
    body = {"name": "fork", "changes": changes}
    forked = scene.site.admin.post(f"{scene.runs}/{parent.run_id}/fork", json=body)
    assert forked.status_code == 201, forked.text
    run_id = forked.json()["id"]
    works = claim_all(scene, peers, run_id)
    assert scene.site.admin.post(f"{scene.runs}/{run_id}/pause").status_code == 202
    for work in works:
        state = work.ended("checkpoint_invalid", step=5)
    assert state == "paused"
    (checkpoint,) = scene.site.admin.get(f"{scene.runs}/{parent.run_id}/checkpoints").json()
    assert checkpoint["valid"]


@pytest.mark.parametrize("first_ends", [True, False])
def test_a_node_that_fails_after_the_training_does_not_end_the_export(
    scene: Scene, peers: dict[str, Agent], first_ends: bool
) -> None:
    works = start(scene, peers, two_nodes(scene))
    works[0].step(1, 10)
    assert works[0].commit(upload_parts(works, 10)).status_code == 200
    assert works[0].order("completing") == "go"
    works[0].save(10, "export")
    ends = [(works[0], "finished"), (works[1], "supervisor_lost")]
    for work, code in ends if first_ends else reversed(ends):
        state = work.ended(code, step=10)
    assert state == "succeeded"


def test_a_pause_after_the_export_of_a_run_on_several_nodes_succeeds(
    scene: Scene, peers: dict[str, Agent]
) -> None:
    run_id = two_nodes(scene)
    works = start(scene, peers, run_id)
    works[0].step(1, 10)
    assert works[0].commit(upload_parts(works, 10)).status_code == 200
    works[0].save(10, "export")
    assert works[0].ended("finished", step=10) == "running"
    assert scene.site.admin.post(f"{scene.runs}/{run_id}/pause").status_code == 202
    assert works[1].ended("stopped") == "succeeded"


def test_the_export_does_not_wait_for_an_agent_that_is_gone(scene: Scene, peers: dict[str, Agent]) -> None:
    run_id = two_nodes(scene)
    works = start(scene, peers, run_id)
    ask = {"claim_id": works[0].claim.claim_id, "fence": works[0].claim.fence}
    with scene.database.write() as session:
        session.execute(update(Node).where(Node.name == "node-b").values(last_heartbeat=None))
    gone = works[0].agent.post(run_id, "export-job", ask)
    assert (gone.status_code, gone.json()["code"]) == (409, "agent_silent")
    other = {"claim_id": works[1].claim.claim_id, "fence": works[1].claim.fence}
    refused = works[1].agent.post(run_id, "export-job", other)
    assert (refused.status_code, refused.json()["code"]) == (409, "other_node")


def test_a_node_sends_only_its_own_files(scene: Scene, peers: dict[str, Agent]) -> None:
    works = start(scene, peers, two_nodes(scene))
    other = works[1]
    refused = [
        other.send(other.batch(metrics=[])),
        other.log(b"text", "rank-1.log"),
        works[0].log(b"text", "rank-2.log"),
    ]
    assert [(response.status_code, response.json()["code"]) for response in refused] == [
        (409, "other_node")
    ] * 3
    assert other.log(b"text", "rank-3.log").status_code == 200


@pytest.mark.parametrize("peer", ["", "node-b", "node b:1", "node-b:1\n", "http://node-b:1", "a:123456"])
def test_a_peer_address_without_host_and_port_is_refused(
    scene: Scene, peers: dict[str, Agent], peer: str
) -> None:
    (first, _) = claim_all(scene, peers, two_nodes(scene))
    assert first.renew(peer=peer).status_code == 422


def test_a_run_that_can_never_fit_reserves_nothing(scene: Scene, peers: dict[str, Agent]) -> None:
    large = scene.submit(resources={"device": "cpu", "nodes": 3, "slots_per_node": 2}, batch=SIX)
    with scene.database.write() as session:
        session.execute(update(Node).where(Node.name == "node-d").values(draining=True))
    small = two_nodes(scene, slots=1)
    scene.control.sweep()
    assert placed_on(peers, small) == ["node-b", "node-c"]
    assert scene.show(large)["sentence"].startswith("needs 3 nodes with 2 slots each; 2 nodes of that size")


def test_nodes_on_loopback_addresses_are_not_mixed_with_others(scene: Scene) -> None:
    agents = {
        name: Agent.join(scene.site, name, reported={"peer_address": address})
        for name, address in {"k": "127.0.0.1", "l": "10.0.0.1", "m": "127.0.0.1"}.items()
    }
    run_id = two_nodes(scene)
    scene.control.sweep()
    assert placed_on(agents, run_id) == ["k", "m"]


@pytest.mark.parametrize("code", ["crashed", "disk_full"])
def test_the_failure_of_one_node_stops_the_others(scene: Scene, peers: dict[str, Agent], code: str) -> None:
    run_id = two_nodes(scene)
    works = start(scene, peers, run_id)
    assert works[1].ended(code) == "stopping"
    assert works[0].order("running") == "kill"
    assert works[0].ended("stopped") == "retry_wait"
    assert scene.show(run_id)["reason"] == code
    scene.end_backoff(run_id)
    assert len(claim_all(scene, peers, run_id)) == 2
    assert scene.show(run_id)["attempt"] == 2


def test_a_lost_node_stops_the_others(scene: Scene, peers: dict[str, Agent]) -> None:
    run_id = two_nodes(scene)
    works = start(scene, peers, run_id)
    expire(scene, works[1])
    assert scene.show(run_id)["sentence"].startswith("node-c was silent")
    assert works[0].order("running") == "kill"
    assert works[0].ended("rank_lost") == "retry_wait"
    assert scene.show(run_id)["reason"] == "lease_expired"


@pytest.mark.parametrize(
    ("cause", "state"), [("out_of_memory", "failed"), ("disk_full", "retry_wait"), ("stopped", "retry_wait")]
)
def test_a_node_with_the_cause_explains_one_that_lost_contact(
    scene: Scene, peers: dict[str, Agent], cause: str, state: str
) -> None:
    run_id = two_nodes(scene)
    works = start(scene, peers, run_id)
    assert works[0].ended("rank_lost") == "stopping"
    assert works[1].ended(cause, "the message of the cause") == state
    shown = scene.show(run_id)
    assert shown["reason"] == ("rank_lost" if cause == "stopped" else cause)


def test_a_pause_saves_on_all_nodes(scene: Scene, peers: dict[str, Agent]) -> None:
    run_id = two_nodes(scene)
    works = start(scene, peers, run_id)
    works[0].step(1, 4)
    assert scene.site.admin.post(f"{scene.runs}/{run_id}/pause").status_code == 202
    assert [work.order("running") for work in works] == ["save", "save"]
    assert works[0].commit(upload_parts(works, 4)).status_code == 200
    assert works[1].ended("saved", step=4) == "stopping"
    assert works[0].order("running") == "save", "a node that has saved does not stop the other immediately"
    assert works[0].ended("saved", step=4) == "paused"
    assert scene.used() == 0
    assert scene.site.admin.post(f"{scene.runs}/{run_id}/resume").status_code == 202
    resumed = claim_all(scene, peers, run_id)
    assert [work.claim.job.resume and work.claim.job.resume.step for work in resumed] == [4, 4]


def test_a_cancelled_run_ends_when_all_nodes_have(scene: Scene, peers: dict[str, Agent]) -> None:
    run_id = two_nodes(scene)
    works = start(scene, peers, run_id)
    assert scene.cancel(run_id).status_code == 202
    exit = {"code": "stopped", "message": "stopped"}
    assert works[0].order("ended", exit=exit) == "leave"
    assert scene.state(run_id) == "stopping"
    assert works[1].order("ended", exit=exit) == "leave"
    assert scene.state(run_id) == "cancelled"


def test_a_run_cancelled_between_two_claims_ends(scene: Scene, peers: dict[str, Agent]) -> None:
    run_id = two_nodes(scene)
    scene.control.sweep()
    early = peers["node-b"].claim(run_id)
    assert scene.cancel(run_id).status_code == 202
    assert peers["node-c"].try_claim(run_id).status_code == 409
    assert early.order("ended", exit={"code": "stopped", "message": "stopped"}) == "leave"
    assert scene.state(run_id) == "cancelled"


def test_more_nodes_than_joined_are_refused(scene: Scene, peers: dict[str, Agent]) -> None:
    response = scene.site.admin.post(
        scene.runs, json=scene.spec(resources={"device": "cpu", "nodes": 4, "slots_per_node": 2})
    )
    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert error["field"] == "resources.nodes"
    assert "3 joined nodes qualify. node-a reported no address" in error["message"]


def test_a_waiting_run_reports_how_many_nodes_it_needs(scene: Scene, peers: dict[str, Agent]) -> None:
    busy = two_nodes(scene)
    scene.control.sweep()
    waiting = two_nodes(scene, slots=1)
    scene.control.sweep()
    assert scene.show(waiting)["sentence"] == ("needs 2 nodes with 1 slot each; 1 of 3 such nodes is free")
    small = scene.submit(slots=2)
    scene.control.sweep()
    assert scene.show(small)["sentence"].startswith("placed on node-a"), "it is not reserved"
    for run_id in (busy, waiting, small):
        assert scene.cancel(run_id).status_code == 202


def test_nodes_of_one_location_are_preferred(scene: Scene) -> None:
    agents = {
        name: Agent.join(scene.site, name, reported={"peer_address": "10.0.0.9", "location": rack})
        for name, rack in {"k": "east", "l": "west", "m": "east", "n": "west", "o": "west"}.items()
    }
    run_id = two_nodes(scene)
    scene.control.sweep()
    assert placed_on(agents, run_id) == ["k", "m"], "the smallest rack with enough nodes"
    three = scene.submit(resources={"device": "cpu", "nodes": 3, "slots_per_node": 1}, batch=SIX)
    scene.control.sweep()
    assert placed_on(agents, three) == ["l", "n", "o"]
    for item in (run_id, three):
        assert scene.cancel(item).status_code == 202
