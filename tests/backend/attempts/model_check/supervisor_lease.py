"""The lease of the model check's supervisors: the real class, with a clock that is moved by hand."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple, cast

import pytest

from tests.backend.attempts.model_check.platform import TICK_SECONDS, TIMERS
from trainwright.contracts.agent_protocol import Claim, RenewalOrder, RenewalReply
from trainwright_agent.client import Client
from trainwright_agent.supervisor import lease as leases
from trainwright_agent.supervisor.lease import Lease, LeaseEnd
from trainwright_agent.workspace import Deadline, DeadlineFile

CLAIM = Claim.model_construct(claim_id="0" * 16, fence=1, attempt=1, timers=TIMERS, job=None, downloads=[])


class Held(NamedTuple):
    """A lease after a reply."""

    age: int | None
    """Ticks from the time from which its deadline counts; None before the first acknowledged renewal."""
    order: str
    """The order that the supervisor follows; empty if the reply came too late."""
    end: LeaseEnd | None


class RecordedDeadline:
    """Replaces the file in which the agent reads the deadline."""

    def __init__(self) -> None:
        self.deadline: float | None = None

    def write(self, record: Deadline) -> None:
        self.deadline = record.deadline


class SupervisorLeases:
    """Computes what a lease of a given age does. ``counts_from_reply`` injects a fault."""

    def __init__(self, patch: pytest.MonkeyPatch, *, counts_from_reply: bool = False) -> None:
        self._now = 0.0
        self._counts_from_reply = counts_from_reply
        patch.setattr(leases, "boottime", lambda: self._now)
        patch.setattr(leases, "boot_id", lambda: "this boot")
        self.after_reply = cache(self._after_reply)
        self.is_expired: Callable[[int | None], bool] = cache(self._is_expired)

    def _after_reply(self, age: int | None, since: int, order: str) -> Held:
        """The lease after a reply to a renewal that was sent ``since`` ticks ago."""
        lease, file = self._lease(age)
        file.deadline = None
        sent = self._now if self._counts_from_reply else self._now - since * TICK_SECONDS
        lease.note_reply(sent, RenewalReply(order=RenewalOrder(order), timers=TIMERS))
        if file.deadline is None:
            return Held(age, "", lease.end())
        passed = self._now + TIMERS.lease_seconds - TIMERS.margin_seconds - file.deadline
        return Held(round(passed / TICK_SECONDS), order, lease.end())

    def _is_expired(self, age: int | None) -> bool:
        return self._lease(age)[0].end() is LeaseEnd.EXPIRED

    def _lease(self, age: int | None) -> tuple[Lease, RecordedDeadline]:
        """A lease whose last acknowledged renewal was sent ``age`` ticks ago."""
        file = RecordedDeadline()
        lease = Lease(lambda: cast(Client, None), "run", CLAIM, cast(DeadlineFile, file), lambda: None)
        if age is not None:
            self._now -= age * TICK_SECONDS
            lease.note_reply(self._now, RenewalReply(order=RenewalOrder.GO, timers=TIMERS))
            self._now += age * TICK_SECONDS
        return lease, file
