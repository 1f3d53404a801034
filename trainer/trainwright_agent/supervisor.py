"""The parent of everything that works for one run on this node: ``python -m trainwright_agent.supervisor FOLDER``.

It fetches the data, starts the launcher and the export, renews the lease, kills when it has to, and writes down how the
attempt ended. It starts nothing before a renewal was answered with `go`, and kills at a deadline of its own, so
that whatever happens to agent, API or network, no two trainers work on one run. It ships nothing: that is the agent's.

One thread matters. The main thread forks every child (the kernel's parent-death signal follows the *thread*), looks
at the clock at least once a second, and does the killing. Renewals and downloads have threads that only leave word.

Children are waited for by pid, never with ``waitpid(-1)``, and the process is no subreaper: orphans are found by
their marker.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from trainwright.contracts.agent_protocol import Claim, Order, Phase
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.job_spec import (
    JOB_NAME,
    LOGS_FOLDER,
    OUTPUT_FOLDER,
    STOP_NAME,
    JobKind,
    JobSpec,
    Outcome,
)
from trainwright_agent import endings, processes
from trainwright_agent.client import Client
from trainwright_agent.fetch import Fetcher, FetchError, check_downloads
from trainwright_agent.files import opened_folder, sync_folder, write_durably
from trainwright_agent.identity import Settings, load_identity, load_settings
from trainwright_agent.lease import Lease, Loss
from trainwright_agent.processes import boottime
from trainwright_agent.tail import FirstStepWatch
from trainwright_agent.workspace import AlreadyRunningError, AttemptFolder, DeadlineFile

log = logging.getLogger(__name__)

_LONGEST_TICK_SECONDS = 1.0
_SHORTEST_TICK_SECONDS = 0.05
_PATIENCE_LEASES = 10


class EarlyEndError(Exception):
    """The attempt has to end now; `outcome` says why."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome


def main(folder: Path) -> None:
    """Supervise the attempt in ``folder``; leave at once when another supervisor does, or ever did.

    One that took long to come up may find that the agent has started another in its place, and that this one is gone
    already: its end is the agent's to settle, and a second trainer would be one too many.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    attempt = AttemptFolder(folder)
    try:
        with attempt.lock():
            if not attempt.is_fresh:
                return log.info("the folder had a supervisor before")
            claim = attempt.granted()
            assert claim is not None, "a supervisor is started after the claim"
            supervisor = Supervisor(attempt, claim, data=folder.parent.parent)
            attempt.write_supervisor()
            supervisor.run()
    except AlreadyRunningError:
        log.info("another supervisor is at work")


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
        self._awake, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._terminated = False
        self._child: subprocess.Popen[bytes] | None = None
        self._starting_since: float | None = None
        """CLOCK_BOOTTIME of the last progress while starting; None once there is a first step."""
        self._trains = False
        """A launcher lives that has made a step: it can save and leave by itself."""
        self._stop_is_written = False
        self._nothing_to_save = _before_its_first_step(claim.job)
        """How the attempt ends when it is asked to save and no trainer is there that could."""
        deadline_file = DeadlineFile(attempt.deadline_file)
        self._lease = Lease(self._connect, claim.job.run_id, claim, deadline_file, self._poke)

    def run(self) -> None:
        """Work, clean up, write ``exit.json``, and renew until nobody waits for the end any more."""
        signal.signal(signal.SIGTERM, self._on_sigterm)
        self._lease.start()
        grace_seconds = self._lease.timers.grace_seconds
        try:
            outcome = self._work()
            grace_seconds = 0.0
        except EarlyEndError as end:
            outcome = end.outcome
        except OSError as error:
            log.exception("the node's disk or kernel refused something")
            outcome = endings.node_end(error)
        log.info("ends: %s: %s", outcome.code, outcome.message)
        processes.stop_marked(self._marker, grace_seconds, self._reap)
        self._tell_end(outcome)

    def _work(self) -> Outcome:
        self._await_go()
        self._starting_since = boottime()
        self._fetch()
        job = self._claim.job
        write_durably(self._attempt.path / JOB_NAME, job.model_dump_json(indent=1).encode(), mode=0o644)
        (self._attempt.path / OUTPUT_FOLDER / LOGS_FOLDER).mkdir(parents=True, exist_ok=True)
        sync_folder(self._attempt.path)
        if job.kind is JobKind.EXPORT:
            return self._export(None)
        trained = self._train()
        if trained.code is not EndCode.FINISHED:
            return trained
        self._nothing_to_save = _before_its_export(trained)
        return self._export(trained.step)

    def _await_go(self) -> None:
        self._wait_until(lambda: self._lease.order is Order.GO)

    def _fetch(self) -> None:
        """Fetch in a thread, so that the clock is watched meanwhile."""
        failures: list[FetchError | OSError] = []
        fetched, stopped = threading.Event(), threading.Event()
        fetcher = Fetcher(
            client=self._connect(),
            cache=self._data / "cache",
            cache_limit_bytes=self._settings.cache_limit_bytes,
            object_store=self._settings.object_store,
            on_progress=self._lease.tell_progress,
            on_bytes=self._note_progress,
            stopped=stopped,
        )

        def work() -> None:
            try:
                check_downloads(self._claim.downloads)
                fetcher.fetch_all(self._claim.downloads, self._attempt.path)
                fetched.set()
            except (FetchError, OSError) as failure:
                failures.append(failure)
            finally:
                self._poke()

        thread = threading.Thread(target=work, name="fetch", daemon=True)
        thread.start()
        try:
            self._wait_until(lambda: not thread.is_alive())
        finally:
            stopped.set()
        for failure in failures:
            if isinstance(failure, OSError):
                raise failure
            resume = self._claim.job.resume
            step = resume.step if resume and failure.code is EndCode.CHECKPOINT_INVALID else None
            raise EarlyEndError(Outcome(code=failure.code, message=str(failure), step=step))
        if not fetched.is_set():  # threading has written the traceback into this process's log
            raise _early(EndCode.FETCH_FAILED, "Fetching broke off. The reason is in the supervisor's log.")

    def _train(self) -> Outcome:
        ranks = self._claim.job.ranks
        self._lease.tell_progress(f"starting {ranks} rank{'s' if ranks > 1 else ''}")
        launcher = self._start("launch", log_name="launcher.log")
        watch = FirstStepWatch(self._attempt.path)

        def look() -> None:
            if self._starting_since is None or not watch.has_grown():
                return
            self._note_progress()
            if watch.has_step:
                self._starting_since, self._trains = None, True
                self._lease.tell_phase(Phase.RUNNING)

        self._wait_until(lambda: launcher.poll() is not None, look)
        self._trains = False
        return endings.training_end(self._attempt.path, launcher.returncode)

    def _export(self, step: int | None) -> Outcome:
        self._starting_since = None
        self._lease.tell_phase(Phase.COMPLETING)
        self._lease.tell_progress("exporting")
        endings.forget_failures(self._attempt.path)
        export = self._start("main", "export", log_name="export.log")
        self._wait_until(lambda: export.poll() is not None)
        return endings.export_end(self._attempt.path, export.returncode, step)

    def _start(self, module: str, *arguments: str, log_name: str) -> subprocess.Popen[bytes]:
        """Start a module of the trainer; the job's file is its last argument."""
        folder = self._attempt.path
        # -P: the attempt's folder, which is the child's, is no place to import from.
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

    def _wait_until(self, done: Callable[[], bool], look: Callable[[], None] = lambda: None) -> None:
        """Wait, with an eye on the clock and the API's orders.

        Raises:
            EarlyEndError: the attempt has to end first.
        """
        while True:
            self._check()
            look()
            if done():
                return
            self._doze()

    def _doze(self) -> None:
        """Sleep until a child ends, somebody pokes, or a tick has passed."""
        tick = min(
            _LONGEST_TICK_SECONDS, max(_SHORTEST_TICK_SECONDS, self._lease.timers.renewal_seconds / 10)
        )
        child = os.pidfd_open(self._child.pid) if self._child and self._child.returncode is None else None
        try:
            watched = [self._awake] if child is None else [self._awake, child]
            select.select(watched, [], [], tick)
        finally:
            if child is not None:
                os.close(child)
        with suppress(BlockingIOError):
            os.read(self._awake, 4_096)

    def _check(self) -> None:
        loss = self._lease.loss()
        if loss is Loss.EXPIRED:
            raise _early(EndCode.SELF_FENCED, f"The node stopped the run by itself: {loss}.")
        if loss is not None:
            raise _early(EndCode.LEASE_LAPSED, f"The node stopped the run: {loss}.")
        if self._terminated:
            raise _early(EndCode.STOPPED, "The node's operator stopped it.")
        if self._lease.order is Order.KILL:
            raise _early(EndCode.STOPPED, "Stopped, as the platform asked.")
        if self._lease.order is Order.SAVE:
            self._save()
        self._check_start()

    def _save(self) -> None:
        """Ask the trainer to save and leave, and wait for it; a save has no time limit but the lease.

        Raises:
            EarlyEndError: there is nothing to save: no step has been made, or all have.
        """
        if not self._trains:
            raise EarlyEndError(self._nothing_to_save)
        if not self._stop_is_written:
            write_durably(self._attempt.path / STOP_NAME, b"{}", mode=0o644)
            self._stop_is_written = True

    def _check_start(self) -> None:
        limit = self._lease.timers.start_seconds
        if self._starting_since is not None and boottime() > self._starting_since + limit:
            raise _early(EndCode.START_TIMEOUT, f"No step and no progress in {limit:g} s of starting.")

    def _tell_end(self, outcome: Outcome) -> None:
        self._lease.tell_phase(Phase.ENDED, outcome)
        while self._attempt.path.exists() and not self._is_told(outcome):
            self._doze()

    def _is_told(self, outcome: Outcome) -> bool:
        if not self._attempt.exit_file.exists():
            try:
                self._attempt.write_exit(outcome)
            except OSError as error:
                log.error("exit.json cannot be written, trying again: %s", error)
                return False
        # An expired lease goes on renewing: the API may still take the end.
        lost_for_good = self._lease.loss() not in (None, Loss.EXPIRED)
        return self._terminated or lost_for_good or self._lease.silence_seconds() > self._patience_seconds()

    def _patience_seconds(self) -> float:
        """An API that was silent for so many leases is gone, or has let this one lapse: exit.json is for the agent."""
        return _PATIENCE_LEASES * self._lease.timers.lease_seconds

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

    def _poke(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._wake, b".")

    def _on_sigterm(self, *_: object) -> None:
        self._terminated = True
        self._poke()


def _before_its_first_step(job: JobSpec) -> Outcome:
    step = job.resume.step if job.resume is not None else 0
    return Outcome(code=EndCode.STOPPED, message="Stopped, as asked, with nothing new to save.", step=step)


def _before_its_export(trained: Outcome) -> Outcome:
    message = "Trained to its last step and stopped, as asked, before the export was complete."
    return Outcome(code=EndCode.SAVED, message=message, step=trained.step)


def _early(code: EndCode, message: str) -> EarlyEndError:
    return EarlyEndError(Outcome(code=code, message=message))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
