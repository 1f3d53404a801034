"""Watching for ranks that make no progress: the supervisor reports them to the platform at once, and saves their
stacks.

It does not end the attempt. Only the platform receives the reports of all nodes of a run, and its reply has the order
to stop.
"""

from __future__ import annotations

import logging
import threading
import time

from trainwright.contracts.job_spec import JobSpec, stacks_log_name
from trainwright.contracts.rank_progress import Stall
from trainwright_agent.supervisor import stacks
from trainwright_agent.supervisor.lease import Lease
from trainwright_agent.supervisor.stall_detection import StallDetector
from trainwright_agent.workspace import AttemptFolder

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.05


class StallReporter:
    """Watches the ranks of an attempt while they train.

    Args:
        attempt: its folder.
        job: its job on this node.
        lease: its renewals carry the reports to the platform.
    """

    def __init__(self, attempt: AttemptFolder, job: JobSpec, lease: Lease) -> None:
        self._attempt = attempt
        self._log_name = stacks_log_name(job.node_rank)
        self._lease = lease
        self._stall: Stall | None = None
        self._reader: threading.Thread | None = None
        marker = attempt.marker
        self._marker = marker
        self._progress = StallDetector(
            attempt.path, job.local_ranks, lambda: stacks.stopped_ranks(marker), time.monotonic
        )

    def look(self) -> None:
        """Check the ranks once. The main thread calls this on each tick."""
        stall = self._progress.look(self._lease.timers.hang_seconds, self._lease.rank_stopped)
        if (stall is None) == (self._stall is None):
            return
        self._stall = stall
        self._lease.set_stall(stall)
        if stall is None:
            log.info("the ranks make progress again")
            return
        log.warning("no progress for %.0f s: %s", stall.seconds, stall.model_dump_json())
        if self._reader is None:
            self._reader = threading.Thread(target=self._keep_stacks, name="stacks", daemon=True)
            self._reader.start()

    def close(self) -> None:
        """Withdraw the last report, because the ranks have ended. Otherwise each renewal during the export would repeat it."""
        if self._stall is not None:
            self._stall = None
            self._lease.set_stall(None)

    def wait_for_stacks(self) -> None:
        """Wait until the stacks are saved, before the ranks are killed; not past the end of the lease."""
        until = time.monotonic() + stacks.DUMP_SECONDS
        while self._reader is not None and self._reader.is_alive():
            if self._lease.end() is not None or time.monotonic() > until:
                return
            self._reader.join(_POLL_SECONDS)

    def _keep_stacks(self) -> None:
        try:
            stacks.keep_stacks(self._attempt.path, self._log_name, self._marker)
        except OSError as error:
            log.error("the stacks of the ranks could not be kept: %s", error)
