"""Nodes that train on one machine, and the faults that a test injects into them and into their server at random.

Each fault is one that a row of the fault table injects by itself. All of them are real: signals to processes, a locked database,
connections that fall silent. When a fault's function returns, what it stopped is starting again.
"""

import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.bad_network import BadNetwork, Quality
from tests.live import (
    Live,
    LiveAgent,
    command_of,
    eventually,
    live_agent,
    marked_processes,
    parent_of,
    using_trainer,
)

STOPPED_SECONDS = (1.0, 4.0)
"""How long a process, the database or the network stands still: less than the limits for hangs and leases."""


@dataclass
class Node:
    """A node whose agent is restarted after it died, and the network between it and the server."""

    live: Live
    data: Path
    slots: int
    network: BadNetwork
    opened: ExitStack
    agent: LiveAgent = field(init=False)

    def start_agent(self) -> None:
        starting = live_agent(self.live, self.data, self.data.name, self.slots, api=self.network.url)
        self.agent = self.opened.enter_context(starting)

    def ranks(self) -> list[int]:
        return [pid for pid in marked_processes(self.data) if _name(pid).startswith("tw-rank-")]

    def supervisors(self) -> list[int]:
        """Without their guards."""
        found = [
            pid
            for pid in marked_processes(self.data)
            if "trainwright_agent.supervisor.main" in command_of(pid)
        ]
        return [pid for pid in found if parent_of(pid) not in found]


@contextmanager
def nodes_of(live: Live, folder: Path, count: int, slots: int, trainer: str) -> Iterator[list[Node]]:
    """Some nodes with so many CPU slots each, which use this trainer, for the block."""
    with ExitStack() as opened:
        nodes = []
        for number in range(count):
            network = opened.enter_context(BadNetwork(live.platform.url, seed=number).running())
            nodes.append(Node(live, folder / f"node-{number}", slots, network, opened))
            nodes[-1].start_agent()
            opened.enter_context(using_trainer(nodes[-1].data, trainer))
        yield nodes


@dataclass(frozen=True)
class Chaos:
    """The faults, drawn one after another."""

    live: Live
    nodes: list[Node]
    drawn: random.Random

    def kill_rank(self) -> None:
        self._signal(Node.ranks, signal.SIGKILL)

    def kill_supervisor(self) -> None:
        self._signal(Node.supervisors, signal.SIGKILL)

    def stop_rank(self) -> None:
        """For seconds."""
        stopped = self._signal(Node.ranks, signal.SIGSTOP)
        self._wait()
        with suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGCONT)

    def kill_agent(self) -> None:
        node = self.drawn.choice(self.nodes)
        node.agent.process.kill()
        node.agent.process.wait()
        self._wait()
        node.start_agent()

    def kill_node(self) -> None:
        """All processes on it, as in a power failure."""
        node = self.drawn.choice(self.nodes)
        node.agent.kill()
        node.start_agent()

    def silence_network(self) -> None:
        """Of one node."""
        network = self.drawn.choice(self.nodes).network
        network.quality = Quality(silent=1.0)
        self._wait()
        network.quality = Quality()

    def kill_api(self) -> None:
        self._kill("api")
        self.live.platform.start_api()

    def kill_worker(self) -> None:
        self._kill("worker")
        self.live.platform.restart("worker")

    def kill_broker(self) -> None:
        self._kill("broker")
        self._wait()
        self.live.platform.restart("broker")

    def lock_database(self) -> None:
        """Hold SQLite's only write lock."""
        (file,) = self.live.platform.folder.path.glob("*.sqlite3")
        with closing(sqlite3.connect(file, timeout=60, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            self._wait()
            connection.execute("ROLLBACK")

    def _wait(self) -> None:
        time.sleep(self.drawn.uniform(*STOPPED_SECONDS))

    def _kill(self, part: str) -> None:
        os.kill(self.live.platform.pid(part), signal.SIGKILL)
        eventually(lambda: self.live.platform.exit_code(part) is not None, f"{part} is dead")

    def _signal(self, of: Callable[[Node], list[int]], signum: signal.Signals) -> int:
        """Send a signal to one of these processes, on any node; wait until there is one."""
        while True:
            found = [pid for node in self.nodes for pid in of(node)]
            with suppress(ProcessLookupError, IndexError):
                victim = self.drawn.choice(found)
                os.kill(victim, signum)
                return victim
            time.sleep(0.1)


FAULTS: Mapping[str, Callable[[Chaos], None]] = {
    "a rank is killed": Chaos.kill_rank,
    "a rank is stopped for seconds": Chaos.stop_rank,
    "a supervisor is killed": Chaos.kill_supervisor,
    "an agent is killed": Chaos.kill_agent,
    "a node is killed": Chaos.kill_node,
    "the network of a node is silent for seconds": Chaos.silence_network,
    "the API is killed": Chaos.kill_api,
    "the worker is killed": Chaos.kill_worker,
    "the broker is killed": Chaos.kill_broker,
    "the database is locked for seconds": Chaos.lock_database,
}


def _name(pid: int) -> str:
    with suppress(OSError):  # it may have ended
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""
