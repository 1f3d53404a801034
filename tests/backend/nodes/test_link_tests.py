"""The connections of a node in quarantine are tested with its neighbours, message by message."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from tests.backend.nodes.test_quarantine import beat, edit, node
from tests.backend.scripted_agent import Agent, Scene
from trainwright_backend.core.db import now
from trainwright_backend.nodes import link_tests
from trainwright_backend.nodes.tables import LinkTest, Node

PASSED = {"name": "memory of cpu", "passed": True, "detail": ""}
GOOD: dict[str, Any] = {"bytes_per_second": 5e8}
BAD: dict[str, Any] = {"problem": "timed out"}


def join(scene: Scene, name: str, location: str = "rack-1", **reported: Any) -> Agent:
    address = {"peer_address": f"10.0.0.{ord(name[-1])}", "location": location, "link_tests": True}
    return Agent.join(scene.site, name, reported=address | reported)


class Suspect:
    """node-a in quarantine, which has passed its own checks."""

    def __init__(self, scene: Scene, others: dict[str, Agent]) -> None:
        self.scene = scene
        self.agents = {"node-a": join(scene, "node-a"), **others}
        edit(scene, quarantined=True)
        self.report = {"id": beat(self.agents["node-a"])["self_test"], "checks": [PASSED]}

    def beat(self, name: str, **fields: Any) -> list[dict[str, Any]]:
        own = {"self_test": self.report} if name == "node-a" else {}
        tests: list[dict[str, Any]] = beat(self.agents[name], **own, **fields)["link_tests"]
        return tests

    def finish(self, results: dict[str, list[dict[str, Any]]]) -> None:
        """All nodes take part. ``results``: of each node, in the order of its tests."""
        self.beat("node-a")
        for name in results:  # those that listen
            ports = [{"id": test["id"], "port": 4_000} for test in self.beat(name) if test["address"] is None]
            self.beat(name, link_tests=ports)
        for name, found in results.items():
            tests = self.beat(name)
            assert len(tests) == len(found), name
            reports = [
                {
                    "id": test["id"],
                    "port": 4_000 if test["address"] is None else None,
                    "result": result,
                }
                for test, result in zip(tests, found, strict=True)
            ]
            self.beat(name, link_tests=reports)
        self.beat("node-a")

    @property
    def shown(self) -> dict[str, Any]:
        return node(self.scene)

    @property
    def details(self) -> dict[str, str]:
        return {check["name"]: check["detail"] for check in self.shown["self_test"]["checks"]}


@pytest.fixture
def three(scene: Scene) -> Suspect:
    return Suspect(scene, {name: join(scene, name) for name in ("node-b", "node-c")})


def test_good_connections_to_two_neighbours_end_the_quarantine(three: Suspect) -> None:
    listening = three.beat("node-a")
    assert three.shown["quarantine"] is not None, "its connections are tested first"
    assert three.shown["self_test"] is None
    assert [(test["address"], test["port"]) for test in listening] == [(None, None)] * 2
    assert len({test["key"] for test in listening}) == 2
    assert [test["address"] for test in three.beat("node-b")] == [None], "it listens for the other neighbour"
    assert three.beat("node-c") == [], "nobody listens yet"
    three.beat("node-a", link_tests=[{"id": test["id"], "port": 4_001} for test in listening])
    (connecting,) = [test for test in three.beat("node-b") if test["address"] is not None]
    assert (connecting["address"], connecting["port"]) == ("10.0.0.97", 4_001)
    assert connecting["key"] == listening[0]["key"]
    three.finish({name: [GOOD, GOOD] for name in three.agents})
    assert three.shown["quarantine"] is None
    assert three.shown["self_test"]["passed"] is True
    assert three.details == {
        "memory of cpu": "",
        "connection to node-b": "500.0 MB/s",
        "connection to node-c": "500.0 MB/s",
    }
    assert three.beat("node-b") == [], "the tests are over"


def test_a_suspect_that_two_neighbours_cannot_reach_stays_in_quarantine(three: Suspect) -> None:
    three.finish({"node-a": [BAD, BAD], "node-b": [BAD, GOOD], "node-c": [BAD, GOOD]})
    assert three.shown["quarantine"] is not None
    assert three.shown["self_test"]["passed"] is False
    assert three.details["connection to node-b"] == (
        "node-a: timed out, node-b: timed out; node-b and node-c exchange data with 500.0 MB/s"
    )
    first = three.shown["self_test"]["time"]
    assert three.beat("node-a") == [], "they are not tested again at once"
    assert three.shown["self_test"]["time"] == first
    with three.scene.database.write() as session:
        row = session.scalars(select(Node).where(Node.name == "node-a")).one()
        began = now() - timedelta(minutes=11)
        row.quarantined = began - timedelta(minutes=1)
        row.self_test = {**(row.self_test or {}), "time": began.isoformat()}
    three.report["id"] = beat(three.agents["node-a"])["self_test"]
    assert len(three.beat("node-a")) == 2, "after ten minutes they are"


def test_a_faulty_neighbour_does_not_convict_the_suspect(three: Suspect) -> None:
    three.finish({"node-a": [BAD, GOOD], "node-b": [BAD, BAD], "node-c": [GOOD, BAD]})
    assert three.shown["quarantine"] is None
    assert "so node-b may be at fault" in three.details["connection to node-b"]


def test_neighbours_that_do_not_answer_do_not_convict_the_suspect(
    three: Suspect, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = three.beat("node-a")
    timed_out = {"problem": "nobody connected within 60 s"}
    three.beat("node-a", link_tests=[{"id": test["id"], "port": 1, "result": timed_out} for test in tests])
    assert three.shown["quarantine"] is not None, "they may still answer"
    with three.scene.database.write() as session:
        late = timedelta(seconds=link_tests.link_test_seconds(three.scene.site.app.state.settings.timers) + 1)
        session.execute(update(LinkTest).values(begun=now() - late))
    three.beat("node-a")
    assert three.shown["quarantine"] is None
    assert "node-b has not reported a result in time" in three.details["connection to node-b"]


@pytest.mark.parametrize(
    ("others", "chosen"),
    [
        ({"node-b": {}, "node-c": {"location": "rack-2"}, "node-d": {}}, ["node-b", "node-d"]),
        ({"node-b": {"location": "rack-2"}}, ["node-b"]),
        ({"node-b": {"link_tests": False}}, []),
        ({"node-b": {"peer_address": None}}, []),
        ({"node-b": {"peer_address": "127.0.0.1"}}, []),
    ],
)
def test_healthy_nodes_in_reach_are_chosen_those_nearby_first(
    scene: Scene, others: dict[str, dict[str, Any]], chosen: list[str]
) -> None:
    suspect = Suspect(scene, {name: join(scene, name, **reported) for name, reported in others.items()})
    tests = suspect.beat("node-a")
    suspect.beat("node-a", link_tests=[{"id": test["id"], "port": 1} for test in tests])
    found = [name for name in others if any(test["address"] for test in suspect.beat(name))]
    assert found == chosen
    if not chosen:
        assert suspect.shown["quarantine"] is None
        assert suspect.details["neighbours"] == link_tests.NO_NEIGHBOUR


def test_a_drained_node_is_no_neighbour(scene: Scene) -> None:
    suspect = Suspect(scene, {"node-b": join(scene, "node-b")})
    path = f"/api/v1/nodes/{node(scene, 'node-b')['id']}"
    assert scene.site.admin.patch(path, json={"draining": True}).status_code == 200
    assert suspect.beat("node-a") == []
    assert suspect.details["neighbours"] == link_tests.NO_NEIGHBOUR


def test_a_node_that_is_released_ends_its_tests(three: Suspect) -> None:
    assert len(three.beat("node-a")) == 2
    edit(three.scene, quarantined=False)
    assert [three.beat(name) for name in three.agents] == [[], [], []]


def test_a_node_reports_only_its_own_tests(three: Suspect) -> None:
    (first, _) = three.beat("node-a")
    stranger = join(three.scene, "node-d")
    beat(stranger, link_tests=[{"id": first["id"], "port": 9, "result": BAD}, {"id": "unknown", "port": 9}])
    with three.scene.database.read() as session:
        rows = session.scalars(select(LinkTest)).all()
        assert [(row.port, row.listener_result, row.connector_result) for row in rows] == [(None,) * 3] * 3


@pytest.mark.parametrize(
    "report",
    [
        {"id": "1", "port": 0},
        {"id": "1", "port": 65_536},
        {"id": "1", "result": {"bytes_per_second": -1}},
        {"id": "1", "result": {"problem": "x" * 1_001}},
        {"id": "x" * 256},
    ],
)
def test_reports_out_of_bounds_are_refused(scene: Scene, report: dict[str, Any]) -> None:
    response = scene.agent.client.post("/api/v1/agent/heartbeat", json={"link_tests": [report]})
    assert response.status_code == 422


def test_an_agent_of_an_older_version_needs_its_own_checks_only(scene: Scene) -> None:
    join(scene, "node-b")
    edit(scene, quarantined=True)
    report = {"id": beat(scene.agent)["self_test"], "checks": [PASSED]}
    assert beat(scene.agent, self_test=report)["self_test"] is None
    assert node(scene)["self_test"]["checks"] == [PASSED]
