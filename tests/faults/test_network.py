"""A run on three nodes in network namespaces of their own, while nodes, processes and connections fail: the attempt ends on all nodes,
and the next one continues bit for bit. And the self-test of a node whose connections are cut."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.live import (
    SCALED_TIMERS,
    Live,
    LiveAgent,
    command_of,
    eventually,
    live_agent,
    live_platform,
    marked_processes,
    parent_of,
    release_nodes,
    series,
    small_spec,
    write_letters,
)
from tests.network_namespaces import Network
from trainwright.contracts.api.datasets import Dataset
from trainwright.contracts.api.nodes import Node
from trainwright.contracts.api.runs import Run
from trainwright.contracts.run_state import FINAL, WITHOUT_TRAINER, RunState

pytestmark = [pytest.mark.slow(target="faults"), pytest.mark.namespaces, pytest.mark.timeout(900)]

NODES = ("a", "b", "c")
STEPS = 60
TIMERS = SCALED_TIMERS | {"hang_seconds": 3.0}
SECONDS = 400.0


@dataclass
class Cluster:
    """A platform outside of the namespaces, and an agent in each."""

    live: Live
    network: Network
    folder: Path
    agents: dict[str, LiveAgent] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    def start_agent(self, name: str) -> None:
        command = self.network.command(name)
        agent = live_agent(self.live, self.folder / name, name, cpu_slots=1, within=command)
        self.agents[name] = self._stack.enter_context(agent)

    def stop(self) -> None:
        self._stack.close()

    def node(self, name: str) -> Node:
        return next(node for node in self.live.client.nodes() if node.name == name)

    def trainers(self) -> set[tuple[int, str]]:
        """Process id and start time of all ranks and launchers on the nodes."""
        found = set()
        for agent in self.agents.values():
            for pid in marked_processes(agent.data):
                if "trainwright_trainer" in command_of(pid):
                    found.add((pid, _started(pid)))
        return found

    def supervisor(self, name: str) -> int:
        """The supervisor on a node, which is the parent of its guard."""
        pids = {
            pid
            for pid in marked_processes(self.agents[name].data)
            if "trainwright_agent.supervisor.main" in command_of(pid)
        }
        (found,) = [pid for pid in pids if parent_of(pid) not in pids]
        return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("nodes")
    data = tmp_path_factory.mktemp("platform") / "data"
    with Network.create(NODES) as network, live_platform(data, TIMERS, host=network.address) as live:
        (own,) = live.client.nodes()
        live.client.set_draining(own.id, True)
        found = Cluster(live, network, folder)
        try:
            for name in NODES:
                found.start_agent(name)
            yield found
        finally:
            network.heal()
            found.stop()


@pytest.fixture(autouse=True)
def healthy(cluster: Cluster) -> Iterator[None]:
    release_nodes(cluster.live)
    yield
    cluster.network.heal()


@pytest.fixture(scope="module")
def dataset(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return cluster.live.team.upload(
        "letters", [write_letters(tmp_path_factory.mktemp("text") / "letters.jsonl")]
    )


@pytest.fixture(scope="module")
def undisturbed(cluster: Cluster, dataset: Dataset) -> dict[int, float]:
    """Loss by step of a run that nothing disturbs."""
    run = _ended(cluster, cluster.live.team.submit(_spec(dataset)).id)
    assert run.attempt_nodes == [*NODES]
    return series(cluster.live.team, run.id, "loss")


def _kill_node(cluster: Cluster) -> None:
    cluster.agents["b"].kill()


def _stop_supervisor(cluster: Cluster) -> None:
    os.kill(cluster.supervisor("b"), signal.SIGSTOP)


def _cut(*directions: tuple[str | None, str | None]) -> Callable[[Cluster], None]:
    def cut(cluster: Cluster) -> None:
        for sender, receiver in directions:
            cluster.network.cut(sender, receiver)

    return cut


FAULTS: dict[str, tuple[Callable[[Cluster], None], set[str]]] = {
    "agent, supervisor and trainer of a node are killed": (_kill_node, {"lease_expired"}),
    "a supervisor is stopped past its lease": (_stop_supervisor, {"lease_expired", "supervisor_lost"}),
    "a node is cut off": (lambda cluster: cluster.network.cut_off("b"), {"lease_expired", "hang"}),
    "two nodes are cut from each other": (_cut(("b", "c"), ("c", "b")), {"hang"}),
    "one node does not reach another": (_cut(("b", "c")), {"hang"}),
    "a node does not reach the server": (_cut(("b", None)), {"lease_expired"}),
    "the server does not reach a node": (_cut((None, "b")), {"lease_expired"}),
}
"""What happens, and why the attempt then ends."""


@pytest.mark.parametrize("fault", FAULTS)
def test_the_attempt_ends_on_all_nodes_and_the_next_one_continues_bit_for_bit(
    cluster: Cluster, dataset: Dataset, undisturbed: dict[int, float], fault: str
) -> None:
    team = cluster.live.team
    run_id = team.submit(_spec(dataset)).id
    eventually(lambda: len(team.checkpoints(run_id)) > 0, "a checkpoint is saved", SECONDS)
    cause, reasons = FAULTS[fault]
    trainers = cluster.trainers()
    assert len(trainers) >= len(NODES)
    cause(cluster)
    eventually(lambda: _has_left_nodes(team.run(run_id)), "the attempt ends", SECONDS)
    alive = {(pid, began) for pid, began in trainers if _started(pid) == began}
    assert not alive, [command_of(pid) for pid, _ in alive]
    cluster.network.heal()
    if fault.startswith("agent"):
        cluster.start_agent("b")
    run = _ended(cluster, run_id)
    assert series(team, run_id, "loss") == undisturbed
    first, *later = [mark.reason for mark in team.metrics(run_id).attempts]
    assert (first in reasons, later) == (True, ["finished"]), (first, later, run.sentence)
    assert team.metrics(run_id).attempts[1].resume_step > 0


def test_a_node_passes_its_self_test_if_it_exchanges_data_with_its_neighbours(cluster: Cluster) -> None:
    node = _tested(cluster, "b")
    assert node.quarantine is None
    assert {check: detail.rpartition(" ")[2] for check, detail in _connections(node).items()} == {
        "connection to a": "MB/s",
        "connection to c": "MB/s",
    }


def test_a_node_that_its_neighbours_do_not_reach_stays_in_quarantine(cluster: Cluster) -> None:
    for other in ("a", "c"):
        cluster.network.cut(other, "b")
    node = _tested(cluster, "b")
    assert node.quarantine is not None
    details = _connections(node)
    assert all("a and c exchange data with" in detail for detail in details.values()), details


def test_a_neighbour_that_cannot_be_reached_does_not_keep_a_node_in_quarantine(cluster: Cluster) -> None:
    for other in ("b", "c"):
        cluster.network.cut("a", other)
    node = _tested(cluster, "b")
    assert node.quarantine is None
    assert _connections(node)["connection to a"].endswith("so a may be at fault")


def _tested(cluster: Cluster, name: str) -> Node:
    """The node after a self-test that a person asked for."""
    began = cluster.live.client.set_quarantined(cluster.node(name).id, True).quarantine
    assert began is not None

    def is_tested() -> bool:
        test = cluster.node(name).self_test
        return test is not None and test.time >= began.since

    eventually(is_tested, f"{name} has tested itself", SECONDS)
    return cluster.node(name)


def _connections(node: Node) -> dict[str, str]:
    assert node.self_test is not None
    return {
        check.name: check.detail for check in node.self_test.checks if check.name.startswith("connection")
    }


def _spec(dataset: Dataset) -> dict[str, Any]:
    return small_spec(
        dataset,
        schedule={"steps": STEPS, "warmup_steps": 5},
        batch={"sequence_tokens": 64, "micro_sequences": 4, "global_sequences": 12},
        resources={"device": "cpu", "nodes": len(NODES), "slots_per_node": 1},
    )


def _has_left_nodes(run: Run) -> bool:
    """Whether the first attempt has ended."""
    return run.attempt > 1 or (run.state in WITHOUT_TRAINER and run.attempt == 1)


def _ended(cluster: Cluster, run_id: str) -> Run:
    def has_ended() -> bool:
        release_nodes(cluster.live)
        return cluster.live.team.run(run_id).state in FINAL

    eventually(has_ended, "the run ends", SECONDS)
    run = cluster.live.team.run(run_id)
    assert run.state is RunState.SUCCEEDED, run.sentence
    return run


def _started(pid: int) -> str:
    """When the process started, in clock ticks; empty if there is none, or it is a zombie."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if words[0] == "Z" else words[19]
