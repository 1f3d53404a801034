"""A live platform for tests: API, worker, agent and broker as real processes on this machine, with scaled timers.

The trainer runs as it does for users. The processes of a run are found by an environment variable that each of them
has.
"""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.client import Client, TeamClient
from trainwright.contracts.agent_protocol import CpuPeak
from trainwright.contracts.api.actions import RunAction
from trainwright.contracts.api.datasets import Dataset
from trainwright.contracts.api.nodes import JoinToken
from trainwright.contracts.api.people import NewTeam, OneTimeLink, Team
from trainwright.contracts.api.runs import Run
from trainwright.contracts.run_state import FINAL
from trainwright_agent.daemon.cpu_peak import METHOD, PeakRecord, save_record
from trainwright_agent.daemon.inventory import cpu_name
from trainwright_agent.identity import load_settings, save_settings
from trainwright_backend.local.data_folder import DataFolder
from trainwright_backend.local.platform import Platform, bind_socket

TEAM = "crew"
EMAIL = "ada@example.org"
MARKER = "TRAINWRIGHT_ATTEMPT"

SCALED_TIMERS = {
    "heartbeat_seconds": 0.5,
    "renewal_seconds": 0.5,
    "lease_seconds": 6.0,
    "margin_seconds": 1.5,
    "grace_seconds": 0.5,
    "sweep_seconds": 0.5,
    "backoff_seconds": 0.2,
    "start_seconds": 60.0,
}

PATIENT_TIMERS = SCALED_TIMERS | {"lease_seconds": 60.0, "margin_seconds": 15.0, "start_seconds": 300.0}
"""For tests in which no lease expires, not even while the API is away or a browser and four ranks share two cores."""


@dataclass(frozen=True)
class Live:
    """A running platform and a client signed in as its first owner."""

    platform: Platform
    client: Client
    team: TeamClient


@contextmanager
def live_platform(
    folder: Path,
    timers: Mapping[str, float] = SCALED_TIMERS,
    cpu_slots: int = 2,
    *,
    host: str = "127.0.0.1",
    measures_cpu: bool = False,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Live]:
    """Run a platform in ``folder`` for the block; its supervisors are killed at the end. It listens at ``host``.

    Its node takes the CPU's peak from a file, as after its first start, unless it ``measures_cpu``. ``settings`` are variables of its
    environment.
    """
    data = DataFolder.acquire(folder)
    if not measures_cpu:
        store_cpu_peak(folder / "agent", cpu_slots)
    platform = Platform(
        data,
        bind_socket(host, 0),
        cpu_slots=cpu_slots,
        environment=live_environment(timers) | dict(settings or {}),
    )
    try:
        with platform, Client(platform.url) as client:
            link = platform.command("link", "first-owner").strip().rsplit("/", 1)[-1]
            password = secrets.token_urlsafe(16)
            client.use_link(OneTimeLink(token=link, name="Ada", email=EMAIL, password=password, team=TEAM))
            with Client(platform.url, client.create_key("tests").secret) as keyed:
                eventually(lambda: any(node.online for node in keyed.nodes()), "the node joins", 300)
                yield Live(platform, keyed, keyed.team(TEAM))
    finally:
        for pid in marked_processes(folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        data.release()


@dataclass(frozen=True)
class LiveAgent:
    """The agent of one more node on this machine."""

    data: Path
    name: str
    process: subprocess.Popen[bytes]

    def is_online(self, live: Live) -> bool:
        assert self.process.poll() is None, "the agent has ended"
        return any(node.online and node.name == self.name for node in live.client.nodes())

    def kill(self) -> None:
        """SIGKILL the agent, its supervisors and all processes that they started, like a power failure."""
        self.process.kill()
        self.process.wait()
        for pid in marked_processes(self.data):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def live_agent(
    live: Live,
    data: Path,
    name: str,
    cpu_slots: int = 2,
    within: Sequence[str] = (),
    api: str | None = None,
) -> Iterator[LiveAgent]:
    """Run an agent in addition to the platform's own for the block. A folder that has joined before is used again.

    ``within``: the beginning of its command, such as for a network namespace. ``api``: the server's address, if it is not the platform's.
    """
    store_cpu_peak(data, cpu_slots)
    token_file = data.with_name(f"{data.name}.token")
    if not (data / "agent.json").exists():
        token_file.write_text(live.client.post("/join-tokens", JoinToken, json={"name": name}).token)
    command = [*within, sys.executable, "-m", "trainwright_agent.main", "run", "--data", data, "--name", name]
    command += ["--api", api or live.platform.url, "--token-file", token_file]
    agent = LiveAgent(data, name, subprocess.Popen([*map(str, command), "--cpu-slots", str(cpu_slots)]))
    try:
        eventually(lambda: agent.is_online(live), f"{name} joins", 120)
        yield agent
    finally:
        agent.kill()


@contextmanager
def using_trainer(data: Path, module: str) -> Iterator[None]:
    """Attempts that start in this block on the node with this data folder use another trainer."""
    settings = load_settings(data)
    save_settings(data, settings.model_copy(update={"trainer_module": module}))
    try:
        yield
    finally:
        save_settings(data, settings)


def store_cpu_peak(data: Path, cpu_slots: int) -> None:
    """Write a CPU peak to an agent's folder, because measuring it takes many seconds of all cores.

    No test's training reaches it. Every CPU reaches a third of it, so the self-test of a node in quarantine passes, also
    where bfloat16 is a tenth as fast as float32, for lack of instructions.
    """
    data.mkdir(exist_ok=True, mode=0o700)
    peak = CpuPeak(fp32=8e10, bf16=1.2e10, fp8=8e10)
    cores = len(os.sched_getaffinity(0))
    record = PeakRecord(cpu_name=cpu_name(), cpu_slots=cpu_slots, cores=cores, method=METHOD, peak=peak)
    save_record(data, record.model_copy(update={"is_calm": True}))


def release_nodes(live: Live) -> None:
    """Release all nodes from quarantine: one that failed twice must not make a test wait for its self-test."""
    for node in live.client.nodes():
        if node.quarantine is not None:
            live.client.set_quarantined(node.id, False)


def new_team(live: Live, slug: str) -> TeamClient:
    """Create a team for one test, so that tests can share a platform. The first owner owns it."""
    live.client.post("/teams", Team, json=NewTeam(slug=slug, name=slug).model_dump(mode="json"))
    return live.client.team(slug)


def end_runs(team: TeamClient) -> None:
    """Cancel the team's runs and wait until their slots are free."""
    running = [run.id for run in team.runs() if run.state not in FINAL]
    if running:
        team.act(RunAction.CANCEL, running)  # one that has ended meanwhile refuses alone
    for run in team.runs():
        finished(team, run.id)


def live_environment(timers: Mapping[str, float]) -> dict[str, str]:
    """The server's settings for these timers, as environment variables."""
    return {f"TRAINWRIGHT_TIMERS__{name.upper()}": str(value) for name, value in timers.items()}


def eventually(check: Callable[[], object], claim: str, seconds: float = 30.0) -> None:
    """Poll until ``check`` is true; fail with ``claim`` if it is not in time. After a long wait, the polls become rarer: the
    requests of twenty polls a second take a third of a core from what they wait for."""
    start = time.monotonic()
    while not check():
        waited = time.monotonic() - start
        assert waited < seconds, f"not within {seconds} s: {claim}"
        time.sleep(min(max(0.05, waited / 50), 0.25))


def small_spec(dataset: Dataset, **sections: Any) -> dict[str, Any]:
    """A run of a tiny model over bytes, on two CPU slots."""
    return {
        "name": "tiny",
        "data": {"dataset": dataset.id, "tokenizer": {"kind": "bytes"}, "validation_fraction": 0.1},
        "model": {"layers": 2, "width": 64, "heads": 4, "kv_heads": 2},
        "batch": {"sequence_tokens": 64, "micro_sequences": 4, "global_sequences": 8},
        "schedule": {"steps": 30, "warmup_steps": 5},
        "validation": {"every_steps": 10, "sequences": 8},
        "precision": {"kind": "fp32"},
        "checkpoint": {"every_steps": 10},
        "resources": {"device": "cpu", "slots_per_node": 2},
    } | sections


def write_letters(file: Path, documents: int = 200) -> Path:
    """A small text dataset that a tiny model learns from quickly."""
    lines = (
        f'{{"text": "Letter {n}: the ship sailed at dawn with {n % 7} sails."}}\n' for n in range(documents)
    )
    file.write_text("".join(lines))
    return file


def finished(team: TeamClient, run_id: str, seconds: float = 120.0) -> Run:
    """Wait for the end of the run, and return it."""
    eventually(lambda: team.run(run_id).state in FINAL, "the run ends", seconds)
    return team.run(run_id)


def series(team: TeamClient, run_id: str, name: str) -> dict[int, float]:
    """One metric by step; fails if a step occurs twice."""
    found = next(item for item in team.metrics(run_id).series if item.name == name)
    assert len(set(found.steps)) == len(found.steps), f"duplicates in {name}: {found.steps}"
    return dict(zip(found.steps, found.values, strict=True))


def marked_processes(folder: Path | None = None) -> list[int]:
    """Running processes that work for a run; with ``folder``, only those of the platform in it."""
    found = []
    for process in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            pid = int(process.name)
            words = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
            ours = MARKER.encode() in words or b"trainwright_agent.supervisor.main" in words
            in_folder = folder is None or str(folder).encode() in words or _works_in(process, folder)
            if ours and in_folder and not _is_zombie(process):
                found.append(pid)
    return found


def rank_processes(folder: Path) -> dict[int, int]:
    """The processes of runs' ranks on the node with this data folder, by rank."""
    found: dict[int, int] = {}
    for pid in sorted(marked_processes(folder), reverse=True):  # a rank is older than what it forks
        with suppress(OSError):  # it may end meanwhile
            number = Path(f"/proc/{pid}/comm").read_text().strip().removeprefix("tw-rank-")
            if number.isdecimal():
                found[int(number)] = pid
    return found


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _works_in(process: Path, folder: Path) -> bool:
    return (process / "cwd").readlink().is_relative_to(folder)


def _is_zombie(process: Path) -> bool:
    return (process / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
