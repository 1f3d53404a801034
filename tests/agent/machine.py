"""A node for tests: a data folder and the processes of its agent. Every process is real."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.agent.api import JOIN_TOKEN, NODE_TOKEN, ScriptedApi
from trainwright_agent.identity import Identity, Settings, save_identity, save_settings
from trainwright_agent.workspace import AttemptFolder, Workspace

TIMEOUT_SECONDS = 60.0


def wait_for(condition: Callable[[], object], what: str, seconds: float = TIMEOUT_SECONDS) -> None:
    """Poll until ``condition`` is true; fail the test on a timeout."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)


class Machine:
    """One node, joined to ``api``."""

    def __init__(self, api: ScriptedApi, folder: Path) -> None:
        self.api = api
        self.data = folder / "node"
        self.workspace = Workspace(self.data)
        self.log = folder / "agent.log"
        self.token_file = folder / "join-token"
        self.token_file.write_text(JOIN_TOKEN)
        self.agents: list[subprocess.Popen[bytes]] = []
        self.supervisors: set[int] = set()

    def agent_command(self, *options: str) -> list[str]:
        command = [sys.executable, "-m", "trainwright_agent.main", "run", "--data", str(self.data)]
        joining = ["--api", self.api.url, "--name", "box", "--token-file", str(self.token_file)]
        return [*command, *joining, "--trainer-module", "tests.agent.standin", *options]

    def start_agent(self, *options: str) -> subprocess.Popen[bytes]:
        root = str(Path(__file__).resolve().parents[2])
        environment = os.environ | {"PYTHONPATH": root, "TRAINWRIGHT_CANARY": NODE_TOKEN}
        with self.log.open("ab") as log:
            agent = subprocess.Popen(self.agent_command(*options), env=environment, stdout=log, stderr=log)
        self.agents.append(agent)
        return agent

    def write_identity(self) -> None:
        """Write the files of a joined node, for tests that start no agent."""
        identity = Identity(
            api_url=self.api.url, name="box", node_id="node_1", node_token=NODE_TOKEN, timers=self.api.timers
        )
        save_identity(self.data, identity)
        save_settings(self.data, Settings(trainer_module="tests.agent.standin"))

    def command(self, *words: str) -> None:
        """Run another command of the agent on the folder. It must succeed."""
        command = [
            sys.executable,
            "-m",
            "trainwright_agent.main",
            words[0],
            "--data",
            str(self.data),
            *words[1:],
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
        for agent in self.agents:
            agent.wait(TIMEOUT_SECONDS)
        assert done.returncode == 0, done.stderr

    def kill_agent(self, signum: signal.Signals = signal.SIGKILL) -> None:
        self.agents[-1].send_signal(signum)
        self.agents[-1].wait()

    def attempt(self) -> AttemptFolder:
        """The only attempt's folder."""
        wait_for(lambda: self.workspace.runs.exists() and self.workspace.attempts(), "a folder")
        (folder,) = self.workspace.attempts()
        return folder

    def supervisor_pid(self) -> int:
        folder = self.attempt()
        wait_for(lambda: folder.supervisor() and folder.is_locked(), "a supervisor")
        record = folder.supervisor()
        assert record is not None
        self.supervisors.add(record.pid)
        return record.pid

    def guard_pid(self) -> int:
        """The process that kills the supervisor after its deadline."""
        supervisor = self.supervisor_pid()
        command = _read(Path(f"/proc/{supervisor}/cmdline"))
        children = [child.pid for child in psutil.Process(supervisor).children()]
        (guard,) = [pid for pid in children if _read(Path(f"/proc/{pid}/cmdline")) == command]
        return guard

    def processes(self) -> dict[int, str]:
        """Live processes that carry the marker of one of this node's claims: pid → command line.

        Unlike the agent, it searches for the claim ids that the API saw.
        """
        claims = [claim.encode() for run in self.api.runs.values() for claim in run.claims]
        found = {}
        for path in Path("/proc").iterdir():
            if path.name.isdigit() and any(claim in _read(path / "environ") for claim in claims):
                found[int(path.name)] = _read(path / "cmdline").replace(b"\0", b" ").decode()
        return found

    def rank_pids(self, ranks: int = 2) -> list[int]:
        """Pids of the ranks, once all have started."""

        def pids() -> list[int]:
            return [pid for pid, command in self.processes().items() if ".standin.rank" in command]

        wait_for(lambda: len(pids()) == ranks, f"{ranks} ranks")
        return pids()

    def launcher_pid(self) -> int:
        (pid,) = [pid for pid, command in self.processes().items() if ".standin.launch" in command]
        return pid

    def wait_until_idle(self) -> None:
        """Wait until every attempt is shipped, reported and deleted, and no process is left."""
        wait_for(lambda: not self.workspace.attempts(), f"no folder left\n{self.log.read_text()}")
        wait_for(lambda: not self.processes(), "no process left")

    def close(self) -> None:
        """Kill the processes of this machine, by pid."""
        for agent in self.agents:
            agent.kill()
            agent.wait()
        for folder in self.workspace.attempts() if self.workspace.runs.exists() else []:
            record = folder.supervisor()
            if record is not None and folder.is_locked():
                self.supervisors.add(record.pid)
        for pid in [*self.supervisors, *self.processes()]:
            if str(self.data).encode() in _read(Path(f"/proc/{pid}/cmdline")):
                os.kill(pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    status = _read(Path(f"/proc/{pid}/stat")).rpartition(b")")[2].split()
    return bool(status) and status[0] != b"Z"


def lines(path: Path) -> list[dict[str, object]]:
    """Complete lines of an events file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
