"""Attempts that hang: they end once all nodes report a stall, and the message names the rank that the others wait for."""

from typing import Any

import pytest

from tests.backend.attempts.test_several_nodes import PEERS, start, two_nodes
from tests.backend.scripted_agent import Agent, Scene, Work


@pytest.fixture
def peers(scene: Scene) -> dict[str, Agent]:
    return {
        name: Agent.join(scene.site, name, reported={"peer_address": address})
        for name, address in PEERS.items()
    }


def stall(entered: dict[int, int], stopped: tuple[int, ...] = ()) -> dict[str, Any]:
    """A node's report: for each rank, the number of collectives of the data axis that it has entered."""
    ranks = [
        {
            "rank": rank,
            "stopped": rank in stopped,
            "position": {
                "step": 3,
                "activity": "step",
                "sections": 1,
                "axes": [{"axis": "data", "entered": count, "left": 6, "operations": ["all_reduce"]}],
            },
        }
        for rank, count in entered.items()
    ]
    return {"seconds": 31.0, "limit_seconds": 30.0, "ranks": ranks}


def events(scene: Scene, run_id: str) -> list[str]:
    return [item["message"] for item in scene.site.admin.get(f"{scene.runs}/{run_id}/events").json()]


def hang(works: list[Work]) -> None:
    works[0].order("running", stall=stall({0: 7, 1: 7}))
    works[1].order("running", stall=stall({2: 6, 3: 7}))


def test_the_attempt_ends_on_all_nodes_and_names_rank_node_axis_and_collective(
    scene: Scene, peers: dict[str, Agent]
) -> None:
    run_id = two_nodes(scene)
    first, second = start(scene, peers, run_id)
    assert first.order("running", stall=stall({0: 7, 1: 7})) == "go", (
        "the other node has not reported anything"
    )
    assert second.order("running", stall=stall({2: 6, 3: 7})) == "kill"
    assert first.order("running", stall=stall({0: 7, 1: 7})) == "kill"
    shown = scene.show(run_id)
    assert (shown["state"], shown["reason"]) == ("stopping", "hang")
    for words in (
        "Rank 2 on node-c has not arrived at all_reduce 7 of the data axis",
        "31 s; the limit was 30 s",
    ):
        assert words in shown["sentence"]
    for work in (first, second):
        work.end("stopped")
    shown = scene.show(run_id)
    assert (shown["state"], shown["reason"]) == ("retry_wait", "hang")


def test_all_nodes_learn_that_a_rank_of_one_node_is_stopped(scene: Scene, peers: dict[str, Agent]) -> None:
    first, second = start(scene, peers, two_nodes(scene))
    waiting, stopped = stall({0: 7, 1: 7}), stall({0: 7, 1: 7}, stopped=(1,))
    told = []
    for reported in (None, waiting, stopped, None):
        assert first.order("running", stall=reported) == "go"
        told.append(second.renew("running").json()["rank_stopped"])
    assert told == [False, False, True, False]


def test_a_node_that_makes_progress_withdraws_its_report(scene: Scene, peers: dict[str, Agent]) -> None:
    run_id = two_nodes(scene)
    first, second = start(scene, peers, run_id)
    assert first.order("running", stall=stall({0: 7, 1: 7})) == "go"
    assert first.order("running") == "go"
    assert second.order("running", stall=stall({2: 6, 3: 7})) == "go"
    assert scene.state(run_id) == "running"


def test_a_node_cannot_report_ranks_of_other_nodes(scene: Scene, peers: dict[str, Agent]) -> None:
    run_id = two_nodes(scene)
    first, second = start(scene, peers, run_id)
    first.order("running", stall=stall({0: 7, 1: 7, 3: 1}, stopped=(3,)))
    second.order("running", stall=stall({2: 6, 3: 7}))
    assert "Rank 2 on node-c" in scene.show(run_id)["sentence"]
    assert "Rank 3" not in scene.show(run_id)["sentence"]


@pytest.mark.slow(target="databases")
def test_a_run_that_hangs_three_times_without_a_checkpoint_fails(
    scene: Scene, peers: dict[str, Agent]
) -> None:
    run_id = two_nodes(scene)
    for attempt in range(1, 4):
        works = start(scene, peers, run_id)
        hang(works)
        for work in works:
            work.end("stopped")
        assert scene.state(run_id) == ("failed" if attempt == 3 else "retry_wait")
        if attempt < 3:
            scene.end_backoff(run_id)
    assert scene.show(run_id)["reason"] == "hang"


def test_a_pause_that_hangs_while_it_saves_is_stopped(scene: Scene, peers: dict[str, Agent]) -> None:
    run_id = two_nodes(scene)
    works = start(scene, peers, run_id)
    assert scene.site.admin.post(f"{scene.runs}/{run_id}/pause").status_code == 202
    assert works[0].order("running", stall=stall({0: 7, 1: 7})) == "save"
    assert works[1].order("running", stall=stall({2: 6, 3: 7})) == "kill"
    assert works[0].order("running", stall=stall({0: 7, 1: 7})) == "kill"
    for work in works:
        work.end("stopped")
    assert scene.state(run_id) == "paused"
    told = [message for message in events(scene, run_id) if message.startswith("The attempt hung")]
    assert len(told) == 1
    assert "Rank 2 on node-c has not arrived at all_reduce 7" in told[0]


def test_a_run_on_one_node_needs_one_report(scene: Scene) -> None:
    work = scene.running(slots=2)
    assert work.order("running", stall=stall({0: 7, 1: 6}, stopped=(1,))) == "kill"
    assert "Rank 1 on node-a" in scene.show(work.run_id)["sentence"]
    assert "Its process is stopped." in scene.show(work.run_id)["sentence"]


def test_a_node_is_blamed_if_its_first_report_is_that_of_the_hang(scene: Scene) -> None:
    """The renewal that reported the first step was lost."""
    work = scene.start()
    assert work.order("starting") == "go"
    assert work.order("running", stall=stall({0: 7}, stopped=(0,))) == "kill"
    assert scene.show(work.run_id)["reason"] == "hang"
    (node,) = scene.site.admin.get("/api/v1/nodes").json()
    assert [failure["code"] for failure in node["failures"]] == ["hang"]
