"""The agent: sends heartbeats, claims the runs placed on the node, and reconciles every attempt's folder.

All its state is in the data folder, so it may be killed at any instruction: the next agent inspects each folder
(`workspace.Condition`) and does the remaining work. It has three loops:

- the *heartbeat loop*, a thread: heartbeats, claims, starting supervisors; it may block for seconds on a slow API;
- the *reconcile loop*, the main thread: visits the folders at least once a second without waiting for the network,
  kills what a supervisor failed to kill, records the end of attempts whose supervisor died, and runs one shipper per
  attempt;
- the *hardware loop*, a thread: measures the node and the ranks on it twice per heartbeat.

The agent never kills a healthy attempt. That is up to the supervisor, which follows the API's orders.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from trainwright.contracts.agent_protocol import Heartbeat, Inventory, Timers
from trainwright.contracts.job_spec import JobSpec, Peak
from trainwright_agent import processes
from trainwright_agent.client import ApiError, ClaimRefusedError, Client, RunDeletedError, StaleFenceError
from trainwright_agent.daemon.attempts import (
    LOST,
    UNREADABLE,
    kill_and_end_lost_attempt,
    start_supervisor,
)
from trainwright_agent.daemon.cpu_peak import is_machine_calm
from trainwright_agent.daemon.hints import HintListener
from trainwright_agent.daemon.inventory import (
    collect_inventory,
    measure_peak_again,
    note_beaten_peak,
    wants_calm_peak,
    with_present_address,
)
from trainwright_agent.daemon.link_test import LinkTester
from trainwright_agent.daemon.self_test import SelfTester
from trainwright_agent.hardware import HardwareMonitor
from trainwright_agent.identity import Settings, load_identity
from trainwright_agent.shipping.shipper import Shipper
from trainwright_agent.watchdog import Watchdog, kill_overdue, kill_supervisor
from trainwright_agent.workspace import AttemptFolder, ClaimRecord, Condition, Workspace

log = logging.getLogger(__name__)

_MAX_TICK_SECONDS = 1.0
_MIN_TICK_SECONDS = 0.05
_SAMPLES_PER_HEARTBEAT = 2
_PEAK_SECONDS = 600.0
"""Time between two measurements of the CPU's peak."""


class Agent:
    """One agent on a locked data folder that has joined.

    Args:
        data: the data folder.
        settings: the operator's settings.
    """

    def __init__(self, data: Path, settings: Settings) -> None:
        identity = load_identity(data)
        assert identity is not None, "an agent runs after it has joined"
        self._workspace = Workspace(data)
        self._settings = settings
        self._timers: Timers = identity.timers
        self._heartbeat_now = threading.Event()
        self._stopping = threading.Event()
        self._supervisors: dict[str, subprocess.Popen[bytes]] = {}
        self._shippers: dict[str, Shipper] = {}
        self._watchdog = Watchdog()
        self._inventory: Inventory | None = None
        self._reported_inventory: Inventory | None = None
        self._faster_runs: SimpleQueue[Peak] = SimpleQueue()
        """FLOP/s per CPU slot of runs that exceeded the measured peak; shippers write it."""
        self._next_peak = 0.0
        """When the CPU's peak may be measured again, in seconds of ``time.monotonic``."""
        self._hardware = HardwareMonitor(data)
        self._self_tester = SelfTester(settings, self._heartbeat_now.set)
        self._link_tester = LinkTester(self._heartbeat_now.set)
        self._hints = HintListener(identity.name, identity.hints_url, self._heartbeat_now.set)

    def run(self) -> None:
        """Work until SIGTERM or SIGINT. Supervisors keep running."""
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, lambda *_: self._stopping.set())
        self._workspace.prepare()
        threading.Thread(target=self._heartbeat_loop, name="heartbeat", daemon=True).start()
        threading.Thread(target=self._hardware_loop, name="hardware", daemon=True).start()
        try:
            while not self._stopping.wait(self._tick_seconds()):
                self._reconcile()
            self._reconcile()  # a shipper may just have finished
        finally:
            self._hints.stop()
        log.info("the agent stops; supervisors keep running")

    # The heartbeat loop

    def _heartbeat_loop(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            run_logging_errors(self._heartbeat, "the heartbeat failed")
            rest = self._timers.heartbeat_seconds - (time.monotonic() - began)
            self._heartbeat_now.wait(max(rest, _MIN_TICK_SECONDS))
            self._heartbeat_now.clear()

    def _heartbeat(self) -> None:
        client = self._connect()
        collected = self._inventory or collect_inventory(self._workspace.data, self._settings, client.api_url)
        inventory = self._inventory = with_present_address(collected, self._settings, client.api_url)
        news = inventory if inventory != self._reported_inventory else None
        present = Heartbeat(
            inventory=news,
            busy_slots=self._busy_slots(),
            hardware=self._hardware.present(),
            self_test=self._self_tester.report,
            link_tests=self._link_tester.reports(),
        )
        reply = client.heartbeat(present)
        self._reported_inventory = inventory
        self._timers = reply.timers
        if reply.hints_url is not None:  # older APIs leave it out; the broker may have moved since joining
            self._hints.url = reply.hints_url
        self._self_tester.cancel_unless(reply.self_test)
        self._link_tester.ask(reply.link_tests, inventory.peer_address)
        unstarted = self._unstarted()
        for placed in reply.placements:
            if not placed.claimed and placed.run_id not in unstarted:
                unstarted[placed.run_id] = self._workspace.create_attempt(placed.run_id)
        for folder in unstarted.values():
            self._claim_and_start(client, folder)
        self._self_tester.ask(reply.self_test, inventory, is_idle=not any(self._workspace.attempts()))
        self._improve_peak(inventory)

    def _improve_peak(self, inventory: Inventory) -> None:
        """Discard a peak that a run has exceeded, and measure a doubtful one again while nothing runs."""
        while not self._faster_runs.empty():
            known = note_beaten_peak(self._workspace.data, self._settings, self._faster_runs.get())
            self._inventory = inventory = inventory.model_copy(update={"cpu_peak": known})
        if time.monotonic() < self._next_peak or any(self._workspace.attempts()) or not is_machine_calm():
            return
        if self._self_tester.is_running:  # it also uses all cores
            return
        self._next_peak = time.monotonic() + _PEAK_SECONDS
        if wants_calm_peak(self._workspace.data, self._settings):
            known_again = measure_peak_again(self._workspace.data, self._settings)
            if known_again is not None:
                self._inventory = inventory.model_copy(update={"cpu_peak": known_again})

    def _busy_slots(self) -> dict[str, list[int]]:
        """Slots of attempts that have a live process."""
        alive = processes.marked_pids()
        busy: dict[str, set[int]] = {}
        for marker, job in self._jobs():
            if marker in alive:
                busy.setdefault(job.device, set()).update(job.slots)
        return {device: sorted(slots) for device, slots in busy.items()}

    def _jobs(self) -> Iterator[tuple[str, JobSpec]]:
        """The marker and the job of each claimed attempt."""
        for folder in self._workspace.attempts():
            with suppress(*UNREADABLE):
                claim = folder.granted_claim()
                if claim is not None:
                    yield folder.marker, claim.job

    def _unstarted(self) -> dict[str, AttemptFolder]:
        """Folders by run that never had a supervisor, except those whose supervisor is starting right now."""
        found = {}
        for folder in self._workspace.attempts():
            if not self._is_starting(folder) and folder.condition() is Condition.UNSTARTED:
                with suppress(*UNREADABLE):
                    found[folder.record().run_id] = folder
        return found

    def _is_starting(self, folder: AttemptFolder) -> bool:
        child = self._supervisors.get(folder.claim_id)
        return child is not None and child.poll() is None

    def _claim_and_start(self, client: Client, folder: AttemptFolder) -> None:
        record = folder.record()
        try:
            claim = client.claim(record.run_id, folder.claim_id)
        except (ClaimRefusedError, StaleFenceError, RunDeletedError) as error:
            log.info("%s: not claimed: %s", record.run_id, error)
            folder.delete()
            return
        except ApiError as error:
            log.warning("%s: the claim failed and will be repeated: %s", record.run_id, error)
            return
        folder.write_record(ClaimRecord(run_id=record.run_id, claim_id=folder.claim_id, claim=claim))
        self._supervisors[folder.claim_id] = start_supervisor(folder)
        log.info("%s: claimed as attempt %d, fence %d", record.run_id, claim.attempt, claim.fence)

    # The hardware loop

    def _hardware_loop(self) -> None:
        while not self._stopping.wait(self._timers.heartbeat_seconds / _SAMPLES_PER_HEARTBEAT):
            run_logging_errors(self._sample_hardware, "the hardware could not be measured")

    def _sample_hardware(self) -> None:
        self._hardware.sample(
            {marker: job.slots if job.device == "cuda" else [] for marker, job in self._jobs()}
        )

    # The reconcile loop

    def _reconcile(self) -> None:
        self._hints.keep_alive()
        self._reap()
        for folder in self._workspace.attempts():
            run_logging_errors(
                partial(self._reconcile_attempt, folder), f"{folder.claim_id} cannot be reconciled"
            )

    def _reconcile_attempt(self, folder: AttemptFolder) -> None:
        condition = folder.condition()
        if condition is Condition.UNSTARTED:
            return  # the heartbeat loop claims and starts it
        if condition is Condition.SUPERVISED and self._watchdog.is_due(folder):
            kill_overdue(folder)
        if condition in LOST and not kill_and_end_lost_attempt(folder, LOST[condition]):
            return
        shipper = self._shippers.get(folder.claim_id)
        if shipper is not None and shipper.is_done:
            self._discard(folder)
        elif shipper is None or not shipper.is_alive():
            self._start_shipper(folder)

    def _start_shipper(self, folder: AttemptFolder) -> None:
        claim = folder.granted_claim()
        assert claim is not None, "a supervisor is started after the claim"
        measured = partial(self._hardware.take, folder.marker)
        shipper = Shipper(
            folder, claim, self._connect, self._settings.object_store, self._faster_runs.put, measured
        )
        self._shippers[folder.claim_id] = shipper
        shipper.start()

    def _discard(self, folder: AttemptFolder) -> None:
        """Delete the folder of a completed attempt, once none of its processes is left."""
        if folder.exit() is None:
            kill_supervisor(folder)  # the run was deleted
        if processes.sweep_once(folder.marker):
            folder.delete()
            del self._shippers[folder.claim_id]
            self._heartbeat_now.set()  # reports that the slots are free

    def _reap(self) -> None:
        for claim_id, child in list(self._supervisors.items()):
            if child.poll() is not None:
                del self._supervisors[claim_id]

    def _connect(self) -> Client:
        identity = load_identity(self._workspace.data)
        assert identity is not None, "an agent runs after it has joined"
        return Client(identity.api_url, identity.node_token)

    def _tick_seconds(self) -> float:
        return min(_MAX_TICK_SECONDS, max(_MIN_TICK_SECONDS, self._timers.heartbeat_seconds / 10))


def run_logging_errors(step: Callable[[], None], failure: str) -> None:
    """Run one step of a loop, and log any error with ``failure``.

    An error in one step must stop neither the heartbeats nor the work on other attempts.
    """
    try:
        step()
    except ApiError as error:
        log.warning("%s: %s", failure, error)
    except Exception:
        log.exception(failure)
