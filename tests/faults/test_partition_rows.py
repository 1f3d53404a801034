"""Row F8 of the fault table: a node that is cut off from the server ends its processes before the server gives their lease up."""

import itertools
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.disturbed_run import (
    LEASE_SECONDS,
    LONG_FAULTS,
    PATIENCE_SECONDS,
    TIMERS,
    DisturbedRun,
    check_equal,
    reference_losses,
)
from tests.faults.rows import FaultRow
from tests.live import (
    Live,
    LiveAgent,
    command_of,
    end_runs,
    live_agent,
    live_platform,
    marked_processes,
    release_nodes,
    write_letters,
)
from tests.network_namespaces import Network
from trainwright.contracts.api.datasets import Dataset
from trainwright.contracts.run_state import WITHOUT_TRAINER

pytestmark = pytest.mark.namespaces

NODE = "a"
SEED = 20
FLAPS = 6


@dataclass(frozen=True)
class Cluster:
    """A platform outside of the namespaces, and the agent of a node in one."""

    live: Live
    network: Network
    agent: LiveAgent

    def trainers(self) -> list[int]:
        """Processes of the run's launcher and ranks."""
        return [pid for pid in marked_processes(self.agent.data) if "trainwright_trainer" in command_of(pid)]

    def supervisors(self) -> list[int]:
        """The supervisor and its guard."""
        return [
            pid
            for pid in marked_processes(self.agent.data)
            if "trainwright_agent.supervisor.main" in command_of(pid)
        ]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    data = tmp_path_factory.mktemp("platform") / "data"
    with Network.create([NODE]) as network, live_platform(data, TIMERS, host=network.address) as live:
        (own,) = live.client.nodes()
        live.client.set_draining(own.id, True)
        folder = tmp_path_factory.mktemp("nodes") / NODE
        with live_agent(live, folder, NODE, within=network.command(NODE)) as agent:
            yield Cluster(live, network, agent)
            network.heal()


@pytest.fixture(scope="module")
def dataset(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    letters: Path = write_letters(tmp_path_factory.mktemp("text") / "letters.jsonl")
    return cluster.live.team.upload("letters", [letters])


def _cut_off(network: Network) -> None:
    network.cut_off(NODE)


def _cut_to_server(network: Network) -> None:
    network.cut(NODE, None)


def _cut_from_server(network: Network) -> None:
    network.cut(None, NODE)


def _flap(network: Network) -> None:
    """Cut and heal again and again, each time for less than half a lease."""
    for _ in range(FLAPS):
        network.cut_off(NODE)
        time.sleep(LEASE_SECONDS / 4)
        network.heal()
        time.sleep(LEASE_SECONDS / 10)


@dataclass(frozen=True)
class Partition:
    cut: Callable[[Network], None]
    leases: float
    """How long it lasts."""

    @property
    def ends_the_attempt(self) -> bool:
        return self.leases > 1


PARTITIONS = {
    "half a lease": Partition(_cut_off, 0.5),
    "one and a half leases": Partition(_cut_off, 1.5),
    "five leases": Partition(_cut_off, 5.0),
    "to the server, two leases": Partition(_cut_to_server, 2.0),
    "from the server, two leases": Partition(_cut_from_server, 2.0),
    "flapping": Partition(_flap, 0.0),
}


@pytest.mark.fault_row(name="F8", trials=15, long=200)
def test_a_node_that_is_cut_off_ends_its_processes_before_the_server_gives_up(
    row: FaultRow, cluster: Cluster, dataset: Dataset
) -> None:
    live, drawn = cluster.live, random.Random(SEED)
    undisturbed = reference_losses(live.team, dataset)
    for kind in itertools.islice(itertools.cycle(PARTITIONS), row.count):
        partition = PARTITIONS[kind]
        run = DisturbedRun.submit(live.team, dataset, LONG_FAULTS)
        run.wait_for_step(1, drawn)
        with row.trial(kind):
            partition.cut(cluster.network)
            cut = time.monotonic()
            if partition.ends_the_attempt:
                check_ended_before_reaped(cluster, run)
            time.sleep(max(0.0, cut + partition.leases * LEASE_SECONDS - time.monotonic()))
            cluster.network.heal()
            release_nodes(live)
            healed = time.monotonic()
            run.wait_until_it_trains(2 if partition.ends_the_attempt else 1, run.show().summary.step)
            row.recovered(healed)
            check_equal(run.losses_so_far(), undisturbed)
            assert all(mark.resume_step < max(undisturbed) for mark in live.team.metrics(run.id).attempts)
        cluster.network.heal()
        end_runs(live.team)

    run = DisturbedRun.submit(live.team, dataset, LONG_FAULTS)
    run.wait_for_step(1, drawn)
    cluster.network.cut_off(NODE)
    stopped = [*cluster.supervisors(), cluster.agent.process.pid]  # each of them alone would end the trainer
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    with row.control():
        check_ended_before_reaped(cluster, run)
    for pid in stopped:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    cluster.network.heal()
    end_runs(live.team)


def check_ended_before_reaped(cluster: Cluster, run: DisturbedRun) -> None:
    """Fail if a process of the trainer is alive when the server ends the attempt."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    alive = cluster.trainers()
    while (found := run.show()).attempt == 1 and found.state not in WITHOUT_TRAINER:
        alive = cluster.trainers()
        if time.monotonic() > deadline:
            raise TimeoutError("the server did not end the attempt")
        time.sleep(0.02)
    assert not alive, f"alive when the server gave up: {[command_of(pid) for pid in alive]}"
