"""The supervisor's lease: renewed by a thread, judged by CLOCK_BOOTTIME.

The deadline counts from the time at which the last acknowledged renewal was *sent*: when the API began its own count
is unknown, but it was not before that. What is lost stays lost: a reply that comes after the deadline changes
nothing. The thread never decides anything; it tells the main thread, which owns the children.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from enum import StrEnum

from trainwright.contracts.agent_protocol import Claim, Order, Phase, Renewal, RenewalReply, Timers
from trainwright.contracts.job_spec import Outcome
from trainwright_agent.client import PATIENCE_SECONDS, Client, GoneError, RefusedError, UnreachableError
from trainwright_agent.processes import boot_id, boottime
from trainwright_agent.workspace import Deadline, DeadlineFile

log = logging.getLogger(__name__)

SECOND_KILLER_SECONDS = 5.0
"""So long after deadline and grace an agent takes over the killing; less when short timers leave less."""

_ENDED_RENEWAL_SECONDS = 2.0
"""An ended attempt asks often whether its end was taken: its supervisor should not outlast it by long."""


class Loss(StrEnum):
    """Why a lease is no more."""

    EXPIRED = "the deadline passed without an acknowledged renewal"
    REFUSED = "the platform refused a renewal: the attempt is not the run's newest any more"
    DELETED = "the run was deleted"
    LEFT = "nobody waits for the attempt any more"


class Lease:
    """Renews one placement. Invariant: `order` and `deadline` change only while the lease is not lost.

    Args:
        connect: gives a client; asked again after a failure, since the API may have moved.
        run_id: whose placement.
        claim: the granted claim.
        deadline_file: where the deadline is told to the agent.
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
        self._exit: Outcome | None = None
        self._due_now = True
        self._order: Order | None = None
        self._deadline: float | None = None
        self._heard = boottime()
        self._failing = False
        self._loss: Loss | None = None
        self._timers = claim.timers
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def order(self) -> Order | None:
        """The API's newest word; None before the first."""
        return self._order

    @property
    def timers(self) -> Timers:
        """As last granted."""
        return self._timers

    def loss(self) -> Loss | None:
        """Why the lease is lost; None while it is held. The caller's look at the clock is what fences."""
        with self._condition:
            self._expire()
            return self._loss

    def silence_seconds(self) -> float:
        """How long no renewal was acknowledged."""
        return boottime() - self._heard

    def tell_phase(self, phase: Phase, exit: Outcome | None = None) -> None:
        """A change of phase is renewed at once."""
        with self._condition:
            self._phase, self._exit, self._progress, self._due_now = phase, exit, "", True
            self._condition.notify()

    def tell_progress(self, progress: str) -> None:
        """Goes with the next renewal."""
        self._progress = progress

    def _expire(self) -> None:
        if self._loss is None and self._deadline is not None and boottime() >= self._deadline:
            self._loss = Loss.EXPIRED

    def _run(self) -> None:
        while self._loss not in (Loss.REFUSED, Loss.DELETED, Loss.LEFT):
            acknowledged = self._renew()
            self._on_change()
            seconds = self._timers.renewal_seconds if acknowledged else self._timers.renewal_seconds / 2
            with self._condition:
                if self._exit is not None:
                    seconds = min(seconds, _ENDED_RENEWAL_SECONDS)
                self._condition.wait_for(lambda: self._due_now, timeout=seconds)

    def _renew(self) -> bool:
        with self._condition:
            self._due_now = False
            claim = self._claim
            renewal = Renewal(
                claim_id=claim.claim_id,
                fence=claim.fence,
                phase=self._phase,
                progress=self._progress,
                exit=self._exit,
            )
        sent = boottime()
        patience = min(PATIENCE_SECONDS, max(1.0, self._timers.renewal_seconds))
        try:
            reply = self._client.renew(self._run_id, renewal, patience)
        except UnreachableError as error:
            if not self._failing:  # a supervisor may wait for long, and its log has no limit
                log.warning("not renewed: %s", error)
            self._failing = True
            self._client = self._connect()
            return False
        except RefusedError as error:
            return self._note_refusal(error)
        if self._failing:
            log.info("renewed again")
        self._failing, self._heard = False, sent
        self._note_reply(sent, reply)
        return True

    def _note_refusal(self, error: RefusedError) -> bool:
        log.warning("renewal refused: %s", error)
        if error.status not in (404, 409):
            return False  # such as a token that is not known for the moment: the deadline decides
        with self._condition:
            self._expire()
            self._loss = Loss.DELETED if isinstance(error, GoneError) else Loss.REFUSED
        return True

    def _note_reply(self, sent: float, reply: RenewalReply) -> None:
        timers = reply.timers
        deadline = sent + timers.lease_seconds - timers.margin_seconds
        with self._condition:
            self._expire()
            if reply.order is Order.LEAVE:
                self._loss = Loss.LEFT
            if self._loss is not None or boottime() >= deadline:
                return
            self._deadline_file.write(self._deadline_record(deadline, timers))
            self._timers, self._deadline, self._order = timers, deadline, reply.order

    def _deadline_record(self, deadline: float, timers: Timers) -> Deadline:
        room = (timers.margin_seconds - timers.grace_seconds) / 2
        slack = min(SECOND_KILLER_SECONDS, room)
        return Deadline(
            boot_id=self._boot_id, deadline=deadline, kill_at=deadline + timers.grace_seconds + slack
        )
