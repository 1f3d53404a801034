"""The agent: says that the node lives, claims what is placed on it, and settles every attempt's folder.

Everything it knows lies in the data folder, so it may be killed at any instruction: the next one looks at each folder
(`workspace.Condition`) and does what is left to do. Two loops:

- *talking*, a thread: heartbeats, claims, starting supervisors; it may hang for seconds on a slow API;
- *settling*, the main thread: looks at the folders at least once a second without waiting for the network, kills what
  a supervisor failed to kill, writes down the end of attempts whose supervisor vanished, and keeps a shipper an attempt.

The agent never kills a healthy attempt: that is its supervisor's, which obeys the API.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from trainwright.contracts.agent_protocol import Heartbeat, Inventory, Timers
from trainwright.contracts.end_codes import EndCode, sentence
from trainwright.contracts.job_spec import Outcome
from trainwright_agent import processes
from trainwright_agent.client import ApiError, ClaimRefusedError, Client, GoneError, StaleFenceError
from trainwright_agent.dispatch import HintListener
from trainwright_agent.identity import Settings, load_identity
from trainwright_agent.inventory import take_inventory
from trainwright_agent.second_killer import SecondKiller
from trainwright_agent.shipping import Shipper
from trainwright_agent.workspace import AlreadyRunningError, AttemptFolder, ClaimRecord, Condition, Workspace

log = logging.getLogger(__name__)

_LONGEST_TICK_SECONDS = 1.0
_SHORTEST_TICK_SECONDS = 0.05

_UNREADABLE = (FileNotFoundError, ValidationError)
"""What reading ``claim.json`` gives when the settling loop has just deleted the folder, or a newer agent wrote it."""

_LOST = {Condition.LOST: EndCode.SUPERVISOR_LOST, Condition.REBOOTED: EndCode.NODE_REBOOTED}


class Agent:
    """One agent on a locked, joined data folder.

    Args:
        data: the data folder.
        settings: the operator's.
    """

    def __init__(self, data: Path, settings: Settings) -> None:
        identity = load_identity(data)
        assert identity is not None, "an agent runs after it has joined"
        self._workspace = Workspace(data)
        self._settings = settings
        self._timers: Timers = identity.timers
        self._look_now = threading.Event()
        self._stopping = threading.Event()
        self._supervisors: dict[str, subprocess.Popen[bytes]] = {}
        self._shippers: dict[str, Shipper] = {}
        self._second_killer = SecondKiller()
        self._inventory: Inventory | None = None
        self._told_inventory: Inventory | None = None
        self._hints = HintListener(identity.name, identity.hints_url, self._look_now.set)

    def run(self) -> None:
        """Work until SIGTERM or SIGINT. Supervisors are left alone."""
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, lambda *_: self._stopping.set())
        self._workspace.prepare()
        talking = threading.Thread(target=self._talk, name="talk", daemon=True)
        talking.start()
        try:
            while not self._stopping.wait(self._tick_seconds()):
                self._settle()
            self._settle()  # what a shipper has just finished must not wait for the next agent
        finally:
            self._hints.stop()
        log.info("the agent ends; supervisors go on")

    # Talking

    def _talk(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                self._beat()
            except ApiError as error:
                log.warning("no heartbeat: %s", error)
            except Exception:
                # Whatever it is, a node that stops talking is worse than a line in the log.
                log.exception("a heartbeat failed")
            rest = self._timers.heartbeat_seconds - (time.monotonic() - began)
            self._look_now.wait(max(rest, _SHORTEST_TICK_SECONDS))
            self._look_now.clear()

    def _beat(self) -> None:
        client = self._connect()
        inventory = self._inventory = self._inventory or take_inventory(self._workspace.data, self._settings)
        news = inventory if inventory != self._told_inventory else None
        reply = client.heartbeat(Heartbeat(inventory=news, busy_slots=self._busy_slots()))
        self._told_inventory = inventory
        self._timers = reply.timers
        if reply.hints_url is not None:  # an older API does not say; the broker may have moved since joining
            self._hints.url = reply.hints_url
        unstarted = self._unstarted()
        for placed in reply.placements:
            if not placed.claimed and placed.run_id not in unstarted:
                unstarted[placed.run_id] = self._workspace.create_attempt(placed.run_id)
        for folder in unstarted.values():
            self._claim_and_start(client, folder)

    def _busy_slots(self) -> dict[str, list[int]]:
        """Slots of attempts of which a process lives."""
        alive = processes.marked()
        busy: dict[str, set[int]] = {}
        for folder in self._workspace.attempts():
            with suppress(*_UNREADABLE):
                claim = folder.granted()
                if claim is not None and folder.marker in alive:
                    busy.setdefault(claim.job.device, set()).update(claim.job.slots)
        return {device: sorted(slots) for device, slots in busy.items()}

    def _unstarted(self) -> dict[str, AttemptFolder]:
        """By run: folders in which no supervisor ever started, those apart whose supervisor is just about to."""
        found = {}
        for folder in self._workspace.attempts():
            if not self._is_coming_up(folder) and folder.condition() is Condition.UNSTARTED:
                with suppress(*_UNREADABLE):
                    found[folder.record().run_id] = folder
        return found

    def _is_coming_up(self, folder: AttemptFolder) -> bool:
        child = self._supervisors.get(folder.claim_id)
        return child is not None and child.poll() is None

    def _claim_and_start(self, client: Client, folder: AttemptFolder) -> None:
        record = folder.record()
        try:
            claim = client.claim(record.run_id, folder.claim_id)
        except (ClaimRefusedError, StaleFenceError, GoneError) as error:
            log.info("%s: not claimed: %s", record.run_id, error)
            folder.delete()
            return
        except ApiError as error:
            log.warning("%s: the claim is repeated later: %s", record.run_id, error)
            return
        folder.write_record(ClaimRecord(run_id=record.run_id, claim_id=folder.claim_id, claim=claim))
        self._supervisors[folder.claim_id] = start_supervisor(folder)
        log.info("%s: claimed as attempt %d, fence %d", record.run_id, claim.attempt, claim.fence)

    # Settling

    def _settle(self) -> None:
        self._hints.keep_alive()
        self._reap()
        for folder in self._workspace.attempts():
            try:
                self._settle_folder(folder)
            except Exception:
                # One folder that cannot be settled must not keep the others from being settled.
                log.exception("%s cannot be settled", folder.claim_id)

    def _settle_folder(self, folder: AttemptFolder) -> None:
        condition = folder.condition()
        if condition is Condition.UNSTARTED:
            return  # the talking thread's
        if condition is Condition.SUPERVISED and self._second_killer.is_due(folder):
            kill_overdue(folder)
        if condition in _LOST and not write_lost_end(folder, _LOST[condition]):
            return
        shipper = self._shippers.get(folder.claim_id)
        if shipper is not None and shipper.is_settled:
            self._discard(folder)
        elif shipper is None or not shipper.is_alive():
            self._start_shipper(folder)

    def _start_shipper(self, folder: AttemptFolder) -> None:
        claim = folder.granted()
        assert claim is not None, "a supervisor is started after the claim"
        shipper = Shipper(folder, claim, self._connect, self._settings.object_store)
        self._shippers[folder.claim_id] = shipper
        shipper.start()

    def _discard(self, folder: AttemptFolder) -> None:
        """Delete a folder that nobody waits for, once nothing of it lives any more."""
        if folder.exit() is None:
            kill_supervisor(folder)  # the run was deleted
        if processes.is_swept(folder.marker):
            folder.delete()
            del self._shippers[folder.claim_id]
            self._look_now.set()  # the slots are free: say so

    def _reap(self) -> None:
        for claim_id, child in list(self._supervisors.items()):
            if child.poll() is not None:
                del self._supervisors[claim_id]

    def _connect(self) -> Client:
        identity = load_identity(self._workspace.data)
        assert identity is not None, "an agent runs after it has joined"
        return Client(identity.api_url, identity.node_token)

    def _tick_seconds(self) -> float:
        return min(_LONGEST_TICK_SECONDS, max(_SHORTEST_TICK_SECONDS, self._timers.heartbeat_seconds / 10))


def start_supervisor(folder: AttemptFolder) -> subprocess.Popen[bytes]:
    """Start the attempt's supervisor, in a session of its own: it outlives the agent."""
    with folder.log_file.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "trainwright_agent.supervisor", str(folder.path)],
            cwd=folder.path,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def kill_overdue(folder: AttemptFolder) -> None:
    """End a supervisor, stopped or not, that let its deadline pass, if children of it are alive."""
    if not processes.pids_of(folder.marker):
        return
    log.error("%s: its supervisor let the deadline pass: killing both", folder.marker)
    kill_supervisor(folder)
    processes.is_swept(folder.marker)


def kill_supervisor(folder: AttemptFolder) -> None:
    """SIGKILL the process that holds the folder's lock, if one does."""
    supervisor = folder.supervisor()
    if supervisor is not None and supervisor.boot_id == processes.boot_id():
        processes.send_signal(supervisor.pid, signal.SIGKILL, folder.is_locked)


def write_lost_end(folder: AttemptFolder, code: EndCode) -> bool:
    """End an attempt whose supervisor vanished; false while processes of it are left.

    Under the folder's lock: a supervisor that comes up late must not begin between the sweep and the end.
    """
    try:
        with folder.lock():
            if not processes.is_swept(folder.marker):
                return False
            folder.write_exit(Outcome(code=code, message=sentence(code)))
            return True
    except AlreadyRunningError:
        return False


def stop_attempts(workspace: Workspace) -> int:
    """End every attempt on a node without an agent: its supervisor by SIGTERM, or in place of one that is to come up.

    Returns:
        How many supervisors still lived: call it again until there are none.
    """
    living = 0
    for folder in workspace.attempts():
        with suppress(*_UNREADABLE):
            living += not _is_stopped(folder)
    return living


def _is_stopped(folder: AttemptFolder) -> bool:
    condition = folder.condition()
    if condition is Condition.SUPERVISED:
        supervisor = folder.supervisor()
        if supervisor is not None:
            processes.send_signal(supervisor.pid, signal.SIGTERM, folder.is_locked)
        return False
    if condition in _LOST:
        return write_lost_end(folder, _LOST[condition])
    return condition is Condition.ENDED or folder.granted() is None or _end_unstarted(folder)


def _end_unstarted(folder: AttemptFolder) -> bool:
    """A supervisor that comes up after this finds the end and leaves."""
    try:
        with folder.lock():
            if folder.is_fresh:
                folder.write_exit(Outcome(code=EndCode.STOPPED, message="The node's operator stopped it."))
            return True
    except AlreadyRunningError:
        return False
