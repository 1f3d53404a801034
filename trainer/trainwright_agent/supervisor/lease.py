"""The supervisor's lease: renewed by a thread, measured with CLOCK_BOOTTIME.

The deadline counts from the time at which the last acknowledged renewal was *sent*. The API started its own count at an
unknown time, but not before that. An expired lease stays expired: a reply after the deadline changes nothing. The
thread makes no decisions; it notifies the main thread, which owns the children.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from enum import StrEnum

from trainwright.contracts.agent_protocol import Claim, Phase, Renewal, RenewalOrder, RenewalReply, Timers
from trainwright.contracts.job_spec import Outcome
from trainwright.contracts.rank_progress import Stall
from trainwright_agent.client import Client, RefusedError, RunDeletedError, UnreachableError
from trainwright_agent.processes import boot_id, boottime
from trainwright_agent.workspace import Deadline, DeadlineFile

log = logging.getLogger(__name__)

WATCHDOG_SLACK_SECONDS = 5.0
"""Time after deadline and grace before the agent kills the supervisor; less if short timers leave less."""

_WAITING_RENEWAL_SECONDS = 2.0
"""Renewal period while the supervisor waits for the platform: to accept the end, or to report that all nodes are
ready."""

_MIN_TIMEOUT_SECONDS = 1.0


class LeaseEnd(StrEnum):
    """Why a lease ended."""

    EXPIRED = "the deadline passed without an acknowledged renewal"
    REFUSED = "the platform refused a renewal, because the attempt is no longer the run's newest"
    DELETED = "the run was deleted"
    RELEASED = "the platform no longer needs the attempt"


class Lease:
    """Renews one placement. Invariant: `order` and `deadline` change only while the lease is valid.

    Args:
        connect: returns a client; called again after a failure, since the API may have moved.
        run_id: the placement's run.
        claim: the granted claim.
        deadline_file: where the agent reads the deadline.
        on_change: called in the lease's thread after each reply.
    """

    def __init__(
        self,
        connect: Callable[[], Client],
        run_id: str,
        claim: Claim,
        deadline_file: DeadlineFile,
        on_change: Callable[[], None],
    ) -> None:
        self._connect = connect
        self._client = connect()
        self._run_id = run_id
        self._claim = claim
        self._deadline_file = deadline_file
        self._on_change = on_change
        self._boot_id = boot_id()
        self._condition = threading.Condition()
        self._phase = Phase.STARTING
        self._progress = ""
        self._stall: Stall | None = None
        self._exit: Outcome | None = None
        self._due_now = True
        self._order: RenewalOrder | None = None
        self._peer: str | None = None
        self._rendezvous: str | None = None
        self._rank_stopped = False
        self._deadline: float | None = None
        self._heard = boottime()
        self._failing = False
        self._end: LeaseEnd | None = None
        self._timers = claim.timers
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def order(self) -> RenewalOrder | None:
        """The API's latest order; None before the first."""
        return self._order

    @property
    def rendezvous(self) -> str | None:
        """The rendezvous address of the launchers of the run's nodes; None until all nodes are ready."""
        return self._rendezvous

    @property
    def rank_stopped(self) -> bool:
        """Whether a node of the run reported that a rank's process is stopped."""
        return self._rank_stopped

    @property
    def timers(self) -> Timers:
        """The timers that the API granted last."""
        return self._timers

    def end(self) -> LeaseEnd | None:
        """Why the lease ended; None while it is valid. The caller's check of the clock is the fence."""
        with self._condition:
            self._expire()
            return self._end

    def silence_seconds(self) -> float:
        """Time since the last acknowledged renewal was sent."""
        return boottime() - self._heard

    def set_phase(self, phase: Phase, exit: Outcome | None = None) -> None:
        """Set the phase and renew at once."""
        with self._condition:
            self._phase, self._exit, self._progress, self._due_now = phase, exit, "", True
            self._condition.notify()

    def set_ready(self, peer: str) -> None:
        """Report at once that this node's files are fetched and that its launcher can listen at ``peer``."""
        with self._condition:
            self._peer, self._due_now = peer, True
            self._condition.notify()

    def set_stall(self, stall: Stall | None) -> None:
        """Report at once where the ranks are while they make no progress, or None when they do again."""
        with self._condition:
            self._stall, self._due_now = stall, True
            self._condition.notify()

    def set_progress(self, progress: str) -> None:
        """Set the progress that the next renewal reports."""
        self._progress = progress

    def _expire(self) -> None:
        if self._end is None and self._deadline is not None and boottime() >= self._deadline:
            self._end = LeaseEnd.EXPIRED

    def _run(self) -> None:
        while self._end not in (LeaseEnd.REFUSED, LeaseEnd.DELETED, LeaseEnd.RELEASED):
            acknowledged = self._renew()
            self._on_change()
            seconds = self._timers.renewal_seconds if acknowledged else self._timers.renewal_seconds / 2
            with self._condition:
                if self._waits():
                    seconds = min(seconds, _WAITING_RENEWAL_SECONDS)
                self._condition.wait_for(lambda: self._due_now, timeout=seconds)

    def _waits(self) -> bool:
        """Whether the platform's response decides what happens next."""
        is_ready = self._peer is not None and self._rendezvous is None
        return self._exit is not None or self._order is RenewalOrder.WAIT or is_ready

    def _renew(self) -> bool:
        with self._condition:
            self._due_now = False
            claim = self._claim
            renewal = Renewal(
                claim_id=claim.claim_id,
                fence=claim.fence,
                phase=self._phase,
                peer=self._peer,
                progress=self._progress,
                stall=self._stall,
                exit=self._exit,
            )
        sent = boottime()
        try:
            reply = self._client.renew(self._run_id, renewal, self._timeout_seconds(sent))
        except UnreachableError as error:
            if not self._failing:  # logged once: a supervisor may wait for a long time
                log.warning("the renewal failed: %s", error)
            self._failing = True
            self._client = self._connect()
            return False
        except RefusedError as error:
            return self._note_refusal(error)
        if self._failing:
            log.info("renewed again")
        self._failing, self._heard = False, sent
        self.note_reply(sent, reply)
        return True

    def _timeout_seconds(self, sent: float) -> float:
        """How long to wait for the reply to a renewal that is sent now: half of the lease's remaining time, because an API that
        is overloaded answers late, and a reply that is lost must leave time for another renewal."""
        timers = self._timers
        remaining = (
            timers.lease_seconds - timers.margin_seconds if self._deadline is None else self._deadline - sent
        )
        return max(_MIN_TIMEOUT_SECONDS, timers.renewal_seconds, remaining / 2)

    def _note_refusal(self, error: RefusedError) -> bool:
        log.warning("the renewal was refused: %s", error)
        if error.status not in (404, 409):
            return False  # such as a token that is temporarily unknown: the deadline decides
        with self._condition:
            self._expire()
            self._end = LeaseEnd.DELETED if isinstance(error, RunDeletedError) else LeaseEnd.REFUSED
        return True

    def note_reply(self, sent: float, reply: RenewalReply) -> None:
        """Extend the lease by a reply to a renewal that was sent at boot time ``sent``."""
        timers = reply.timers
        deadline = sent + timers.lease_seconds - timers.margin_seconds
        with self._condition:
            self._expire()
            if reply.order is RenewalOrder.LEAVE:
                self._end = LeaseEnd.RELEASED
            if self._end is not None or boottime() >= deadline:
                return
            self._deadline_file.write(self._deadline_record(deadline, timers))
            self._timers, self._deadline, self._order = timers, deadline, reply.order
            self._rendezvous, self._rank_stopped = reply.rendezvous, reply.rank_stopped

    def _deadline_record(self, deadline: float, timers: Timers) -> Deadline:
        room = (timers.margin_seconds - timers.grace_seconds) / 2
        slack = min(WATCHDOG_SLACK_SECONDS, room)
        return Deadline(
            boot_id=self._boot_id, deadline=deadline, kill_at=deadline + timers.grace_seconds + slack
        )
