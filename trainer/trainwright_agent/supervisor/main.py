"""The parent of all processes of one attempt: ``python -m trainwright_agent.supervisor.main FOLDER``.

It fetches the data, starts the launcher and the export, renews the lease, kills its children when it must, and records
the outcome. It starts nothing before a renewal is answered with `go`, and kills its children at its own deadline. So
two trainers never work on one run, even if agent, API or network fail. The agent, not the supervisor, sends data to the
API.

A guard process (`deadline_guard`) kills it and its children if it is stopped past its deadline.

The main thread forks every child (the kernel's parent-death signal follows the *thread*), checks the clock at least
once a second, and does the killing. The threads for renewals and downloads only notify it.

Children are waited for by pid, never with ``waitpid(-1)``. The process is not a subreaper: orphans are found by their
marker.
"""

from __future__ import annotations

import logging
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from trainwright.contracts.agent_protocol import (
    Claim,
    Download,
    ExportJob,
    ExportRequest,
    Phase,
    RenewalOrder,
)
from trainwright.contracts.end_codes import EndClass, EndCode, end_class
from trainwright.contracts.job_spec import (
    JOB_NAME,
    LOGS_FOLDER,
    OUTPUT_FOLDER,
    RESUME_FOLDER,
    STOP_NAME,
    JobKind,
    JobSpec,
    Outcome,
    ResumePoint,
    launcher_log_name,
)
from trainwright.durable_files import SHARED, sync_folder, write_durably
from trainwright.tracing import Attribute, span, start_tracing
from trainwright_agent import processes
from trainwright_agent.client import Client, RefusedError, UnreachableError
from trainwright_agent.identity import Settings, load_identity, load_settings
from trainwright_agent.network_addresses import address_towards, free_port, interface_of
from trainwright_agent.processes import boottime
from trainwright_agent.supervisor import outcomes
from trainwright_agent.supervisor.deadline_guard import start_deadline_guard
from trainwright_agent.supervisor.fetch import Fetcher, FetchError, check_downloads
from trainwright_agent.supervisor.lease import Lease, LeaseEnd
from trainwright_agent.supervisor.stall_reporter import StallReporter
from trainwright_agent.tail import FirstStepWatch
from trainwright_agent.untrusted_files import opened_folder
from trainwright_agent.workspace import AlreadyRunningError, AttemptFolder, DeadlineFile

log = logging.getLogger(__name__)

_MAX_TICK_SECONDS = 1.0
_MIN_TICK_SECONDS = 0.05
_GIVE_UP_LEASES = 10
_ASK_SECONDS = 1.0
"""Time between two requests whether the last checkpoint is committed."""


class EarlyEndError(Exception):
    """The attempt must end now; `outcome` says why."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome


def main(folder: Path) -> None:
    """Supervise the attempt in ``folder``. Exit at once if the attempt has, or ever had, another supervisor.

    A supervisor that was slow to start may find that the agent has started another, which may already be gone. The
    agent then records the end; a second trainer must not start.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    attempt = AttemptFolder(folder)
    start_deadline_guard(attempt)
    try:
        with attempt.lock():
            if not attempt.is_untouched:
                return log.info("the attempt already had a supervisor")
            claim = attempt.granted_claim()
            assert claim is not None, "a supervisor is started after the claim"
            supervisor = Supervisor(attempt, claim, data=folder.parent.parent)
            attempt.write_supervisor()
            _run_traced(supervisor, claim)
    except AlreadyRunningError:
        log.info("another supervisor is running")


def _run_traced(supervisor: Supervisor, claim: Claim) -> None:
    stop_tracing = start_tracing("trainwright-agent")
    job = claim.job
    described: dict[str, Attribute] = {
        "trainwright.run": job.run_id,
        "trainwright.attempt": job.attempt,
        "trainwright.node_rank": job.node_rank,
    }
    with span("attempt", claim.traceparent, described) as traced:
        outcome = supervisor.run()
        traced.describe({"trainwright.end_code": outcome.code.value})
        if end_class(outcome.code) is not EndClass.PLANNED:
            traced.fail(outcome.message)
    stop_tracing()


class Supervisor:
    """One attempt on this node, from the first renewal to the last.

    Args:
        attempt: its folder, locked.
        claim: what the API granted.
        data: the agent's data folder.
    """

    def __init__(self, attempt: AttemptFolder, claim: Claim, data: Path) -> None:
        self._attempt = attempt
        self._claim = claim
        self._data = data
        self._settings: Settings = load_settings(data)
        self._marker = attempt.marker
        self._wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._terminated = False
        self._child: subprocess.Popen[bytes] | None = None
        self._starting_since: float | None = None
        """CLOCK_BOOTTIME of the last progress while starting; None after the first step."""
        self._trains = False
        """The trainer is running and has completed a step, so it can save a checkpoint."""
        self._stop_is_written = False
        self._stall_reporter: StallReporter | None = None
        self._nothing_to_save = _nothing_new_to_save(claim.job)
        """The outcome if the attempt is ordered to save and no trainer can."""
        deadline_file = DeadlineFile(attempt.deadline_file)
        self._lease = Lease(self._connect, claim.job.run_id, claim, deadline_file, self._wake_up)

    def run(self) -> Outcome:
        """Work, clean up, write ``exit.json``, and renew until the platform has taken the outcome, which is returned."""
        signal.signal(signal.SIGTERM, self._on_sigterm)
        self._lease.start()
        grace_seconds = self._lease.timers.grace_seconds
        try:
            outcome = self._work()
            grace_seconds = 0.0
        except EarlyEndError as end:
            outcome = end.outcome
            if self._stall_reporter is not None:
                self._stall_reporter.wait_for_stacks()
        except OSError as error:
            log.exception("the node's disk or kernel returned an error")
            outcome = outcomes.node_failure(error)
        log.info("ends: %s: %s", outcome.code, outcome.message)
        processes.stop_marked(self._marker, grace_seconds, self._reap)
        self._report_end(outcome)
        return outcome

    def _work(self) -> Outcome:
        self._await_go()
        job = self._claim.job
        if job.kind is JobKind.EXPORT and not job.is_first_node:
            return _exports_elsewhere(job.spec.schedule.steps)
        self._starting_since = boottime()
        with span("fetch"):
            self._fetch(lambda _: self._claim.downloads, self._renew_claimed_links, job.resume)
        if job.nodes > 1 and job.kind is JobKind.TRAIN:
            job = self._meet_other_nodes(job)
        self._write_job(job)
        (self._attempt.path / OUTPUT_FOLDER / LOGS_FOLDER).mkdir(parents=True, exist_ok=True)
        sync_folder(self._attempt.path)
        if job.kind is JobKind.EXPORT:
            return self._export(None)
        with span("train"):
            trained = self._train()
        if trained.code is not EndCode.FINISHED or not job.is_first_node:
            return trained
        self._nothing_to_save = _stopped_before_export(trained)
        return self._export(trained.step)

    def _write_job(self, job: JobSpec) -> None:
        write_durably(self._attempt.path / JOB_NAME, job.model_dump_json(indent=1).encode(), SHARED)

    def _meet_other_nodes(self, job: JobSpec) -> JobSpec:
        """Report that this node is ready, wait for the others, and return the job with the place where they meet."""
        address = self._settings.peer_address or address_towards(self._connect().api_url)
        interface = None if address is None else interface_of(address)
        if address is None or interface is None:
            raise _early(
                EndCode.RANK_LOST,
                f"This node has no network interface with the address {address}, at which other nodes are to reach it."
                " Start its agent with --peer-address.",
            )
        self._lease.set_ready(f"{address}:{free_port(address)}")
        self._lease.set_progress("waiting for the other nodes to fetch their data")
        self._wait_until(lambda: self._lease.rendezvous is not None, self._note_progress)
        return job.model_copy(update={"rendezvous": self._lease.rendezvous, "interface": interface})

    def _await_go(self) -> None:
        self._wait_until(lambda: self._lease.order is RenewalOrder.GO)

    def _renew_claimed_links(self) -> Sequence[Download]:
        return self._connect().claim(self._claim.job.run_id, self._claim.claim_id).downloads

    def _fetch(
        self,
        downloads: Callable[[threading.Event], Sequence[Download]],
        renew_links: Callable[[], Sequence[Download]],
        resume: ResumePoint | None,
    ) -> None:
        """Fetch in a thread, while this one watches the clock.

        Args:
            downloads: returns what to fetch; called in the thread, with an event that asks it to return early.
            renew_links: returns the same with new links; called in the thread when one has expired.
            resume: the checkpoint among it.
        """
        failures: list[FetchError | OSError] = []
        fetched, stopped = threading.Event(), threading.Event()
        fetcher = Fetcher(
            client=self._connect(),
            cache=self._data / "cache",
            cache_limit_bytes=self._settings.cache_limit_bytes,
            object_store=self._settings.object_store,
            on_progress=self._lease.set_progress,
            on_bytes=self._note_progress,
            renew_links=renew_links,
            stopped=stopped,
        )

        def work() -> None:
            try:
                wanted = downloads(stopped)
                check_downloads(wanted)
                fetcher.fetch_all(wanted, self._attempt.path)
                fetched.set()
            except (FetchError, OSError) as failure:
                failures.append(failure)
            finally:
                self._wake_up()

        thread = threading.Thread(target=work, name="fetch", daemon=True)
        thread.start()
        try:
            self._wait_until(lambda: not thread.is_alive())
        finally:
            stopped.set()
        for failure in failures:
            if isinstance(failure, OSError):
                raise failure
            step = resume.step if resume and failure.code is EndCode.CHECKPOINT_INVALID else None
            raise EarlyEndError(Outcome(code=failure.code, message=str(failure), step=step))
        if not fetched.is_set():  # threading has printed the traceback to this log
            raise _early(EndCode.FETCH_FAILED, "Fetching failed. The reason is in the supervisor's log.")

    def _train(self) -> Outcome:
        ranks = self._claim.job.ranks
        self._lease.set_progress(f"starting {ranks} rank{'s' if ranks > 1 else ''}")
        launcher = self._start("launch", log_name=launcher_log_name(self._claim.job.node_rank))
        watch = FirstStepWatch(self._attempt.path)
        stall_reporter = self._stall_reporter = StallReporter(self._attempt, self._claim.job, self._lease)

        def check_progress() -> None:
            if self._starting_since is None:
                stall_reporter.look()
            elif watch.has_grown():
                self._note_progress()
                if watch.has_step:
                    self._starting_since, self._trains = None, True
                    self._lease.set_phase(Phase.RUNNING)

        self._wait_until(lambda: launcher.poll() is not None, check_progress)
        stall_reporter.close()
        self._trains, self._stall_reporter = False, None
        return outcomes.training_outcome(self._attempt.path, launcher.returncode)

    def _export(self, step: int | None) -> Outcome:
        with span("export"):
            return self._export_checkpoint(step)

    def _export_checkpoint(self, step: int | None) -> Outcome:
        self._starting_since = None
        self._lease.set_phase(Phase.COMPLETING)
        if self._claim.job.nodes > 1 and step is not None:
            self._fetch_last_checkpoint()
        self._lease.set_progress("exporting")
        outcomes.clear_failures(self._attempt.path)
        export = self._start("main", "export", log_name="export.log")
        self._wait_until(lambda: export.poll() is not None)
        return outcomes.export_outcome(self._attempt.path, export.returncode, step)

    def _fetch_last_checkpoint(self) -> None:
        """Fetch the last checkpoint, whose files are on all nodes, once all of them have shipped theirs."""
        self._lease.set_progress("waiting for the other nodes to upload the last checkpoint")
        granted: list[ExportJob] = []

        def downloads(stopped: threading.Event) -> Sequence[Download]:
            last = self._claim.job.spec.schedule.steps
            while not granted and not stopped.wait(_ASK_SECONDS):
                is_shipped = last in self._attempt.shipped_steps()  # committed, or given up
                granted.extend(self._ask_for_export_job())
                if not granted and is_shipped:
                    message = "The last checkpoint was not stored completely. Read the agent's log."
                    raise FetchError(EndCode.EXPORT_FAILED, message)
            return granted[0].downloads if granted else ()

        shutil.rmtree(self._attempt.path / RESUME_FOLDER)
        self._fetch(downloads, lambda: self._request_export_job().downloads, None)
        self._write_job(granted[0].job)

    def _ask_for_export_job(self) -> list[ExportJob]:
        """The export's job; empty while the last checkpoint is not committed.

        Raises:
            FetchError: the platform refuses it.
        """
        try:
            return [self._request_export_job()]
        except RefusedError as error:
            if not error.is_temporary:
                message = f"The last checkpoint is not available: {error}"
                raise FetchError(EndCode.EXPORT_FAILED, message) from error
        except UnreachableError as error:
            log.warning("asking for the last checkpoint failed: %s", error)
        return []

    def _request_export_job(self) -> ExportJob:
        request = ExportRequest(claim_id=self._claim.claim_id, fence=self._claim.fence)
        return self._connect().export_job(self._claim.job.run_id, request)

    def _start(self, module: str, *arguments: str, log_name: str) -> subprocess.Popen[bytes]:
        """Start a module of the trainer with the job file as its last argument."""
        folder = self._attempt.path
        # -P: do not import from the attempt's folder, which is the child's working directory.
        command = [sys.executable, "-P", "-m", f"{self._settings.trainer_module}.{module}", *arguments]
        with opened_folder(folder, OUTPUT_FOLDER, LOGS_FOLDER) as logs:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            output = os.open(log_name, flags, 0o644, dir_fd=logs)
        try:
            self._check()
            self._child = subprocess.Popen(
                [*command, str(folder / JOB_NAME)],
                cwd=folder,
                env=processes.child_environment(self._marker),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        finally:
            os.close(output)
        return self._child

    def _wait_until(self, done: Callable[[], bool], on_tick: Callable[[], None] = lambda: None) -> None:
        """Wait until ``done``, checking the clock and the API's orders.

        Raises:
            EarlyEndError: the attempt must end first.
        """
        while True:
            self._check()
            on_tick()
            if done():
                return
            self._sleep()

    def _sleep(self) -> None:
        """Sleep until the child exits, another thread wakes this one, or a tick has passed."""
        tick = min(_MAX_TICK_SECONDS, max(_MIN_TICK_SECONDS, self._lease.timers.renewal_seconds / 10))
        child = os.pidfd_open(self._child.pid) if self._child and self._child.returncode is None else None
        try:
            watched = [self._wake_reader] if child is None else [self._wake_reader, child]
            select.select(watched, [], [], tick)
        finally:
            if child is not None:
                os.close(child)
        with suppress(BlockingIOError):
            os.read(self._wake_reader, 4_096)

    def _check(self) -> None:
        end = self._lease.end()
        if end is LeaseEnd.EXPIRED:
            raise _early(EndCode.SELF_FENCED, f"The node stopped the run by itself: {end}.")
        if end is not None:
            raise _early(EndCode.LEASE_EXPIRED, f"The node stopped the run: {end}.")
        if self._terminated:
            raise _early(EndCode.STOPPED, "The node's operator stopped it.")
        if self._lease.order is RenewalOrder.KILL:
            raise _early(EndCode.STOPPED, "Stopped by order of the platform.")
        if self._lease.order is RenewalOrder.SAVE:
            self._save()
        self._check_start()

    def _save(self) -> None:
        """Ask the trainer to save and exit, and wait for it. Only the lease limits the time.

        Raises:
            EarlyEndError: there is nothing to save, because no step was completed, or all were.
        """
        if not self._trains:
            raise EarlyEndError(self._nothing_to_save)
        if not self._stop_is_written:
            write_durably(self._attempt.path / STOP_NAME, b"{}", SHARED)
            self._stop_is_written = True

    def _check_start(self) -> None:
        limit = self._lease.timers.start_seconds
        if self._starting_since is not None and boottime() > self._starting_since + limit:
            raise _early(EndCode.START_TIMEOUT, f"No step and no progress within {limit:g} s of starting.")

    def _report_end(self, outcome: Outcome) -> None:
        self._lease.set_phase(Phase.ENDED, outcome)
        while self._attempt.path.exists() and not self._may_leave(outcome):
            self._sleep()

    def _may_leave(self, outcome: Outcome) -> bool:
        if not self._attempt.exit_file.exists():
            try:
                self._attempt.write_exit(outcome)
            except OSError as error:
                log.error("cannot write exit.json, trying again: %s", error)
                return False
        # An expired lease keeps renewing: the API may still accept the end.
        is_final = self._lease.end() not in (None, LeaseEnd.EXPIRED)
        return self._terminated or is_final or self._lease.silence_seconds() > self._give_up_seconds()

    def _give_up_seconds(self) -> float:
        """After this silence the API is gone or has ended the lease; the agent then reports exit.json."""
        return _GIVE_UP_LEASES * self._lease.timers.lease_seconds

    def _connect(self) -> Client:
        identity = load_identity(self._data)
        assert identity is not None, "an agent that claims has joined"
        return Client(identity.api_url, identity.node_token)

    def _note_progress(self) -> None:
        if self._starting_since is not None:
            self._starting_since = boottime()

    def _reap(self) -> None:
        if self._child is not None:
            self._child.poll()

    def _wake_up(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._wake_writer, b".")

    def _on_sigterm(self, *_: object) -> None:
        self._terminated = True
        self._wake_up()


def _nothing_new_to_save(job: JobSpec) -> Outcome:
    step = job.resume.step if job.resume is not None else 0
    return Outcome(code=EndCode.STOPPED, message="Stopped on request, with nothing new to save.", step=step)


def _exports_elsewhere(step: int) -> Outcome:
    message = "The run was already trained to the last step; its first node exports it."
    return Outcome(code=EndCode.FINISHED, message=message, step=step)


def _stopped_before_export(trained: Outcome) -> Outcome:
    message = "Trained to the last step and stopped on request before the export was complete."
    return Outcome(code=EndCode.SAVED, message=message, step=trained.step)


def _early(code: EndCode, message: str) -> EarlyEndError:
    return EarlyEndError(Outcome(code=code, message=message))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
