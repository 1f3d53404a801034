"""The lease counts from sending the request, and a reply after the deadline starts nothing."""

from pathlib import Path

import pytest

from tests.agent.api import NODE_TOKEN, TIMERS, ScriptedApi
from tests.agent.folders import make_attempt
from tests.agent.machine import Machine, wait_for
from trainwright.contracts.agent_protocol import RenewalOrder, RenewalReply, Timers
from trainwright_agent.client import Client
from trainwright_agent.processes import boottime
from trainwright_agent.supervisor.lease import Lease
from trainwright_agent.workspace import AttemptFolder, DeadlineFile

SHORT = Timers(
    heartbeat_seconds=0.2, renewal_seconds=0.2, lease_seconds=0.9, margin_seconds=0.3, grace_seconds=0.1
)
SLOWER_SECONDS = 0.8
"""Longer than the short lease less its margin, shorter than a renewal's timeout of a second."""


class CountsFromTheReply(Lease):
    """An injected fault: counts from the arrival of the reply."""

    def note_reply(self, sent: float, reply: RenewalReply) -> None:
        super().note_reply(boottime(), reply)


def start_lease(kind: type[Lease], api: ScriptedApi, data: Path) -> tuple[Lease, AttemptFolder]:
    attempt = make_attempt(data, api.place().run_id)
    claim = attempt.granted_claim()
    assert claim is not None
    deadline_file = DeadlineFile(attempt.deadline_file)
    lease = kind(lambda: Client(api.url, NODE_TOKEN), "run_1", claim, deadline_file, lambda: None)
    lease.start()
    return lease, attempt


@pytest.mark.parametrize(("kind", "holds"), [(Lease, True), (CountsFromTheReply, False)])
def test_the_deadline_counts_from_sending(
    api: ScriptedApi, tmp_path: Path, kind: type[Lease], holds: bool
) -> None:
    api.reply_delays["renew"] = SLOWER_SECONDS
    _, attempt = start_lease(kind, api, tmp_path)
    wait_for(lambda: api.runs["run_1"].renewals, "the first renewal at the API")
    obeyed = boottime()  # after it was sent
    wait_for(attempt.deadline, "a deadline")
    deadline = attempt.deadline()
    assert deadline is not None
    assert (deadline.deadline <= obeyed + api.timers.lease_seconds - api.timers.margin_seconds) is holds
    with api.lock:
        api.runs["run_1"].deleted = True


@pytest.mark.parametrize(("kind", "order"), [(Lease, None), (CountsFromTheReply, RenewalOrder.GO)])
def test_a_go_after_the_deadline_is_ignored(
    api: ScriptedApi, tmp_path: Path, kind: type[Lease], order: RenewalOrder | None
) -> None:
    api.timers, api.reply_delays["renew"] = SHORT, SLOWER_SECONDS
    lease, _ = start_lease(kind, api, tmp_path)
    wait_for(lambda: len(api.runs["run_1"].renewals) > 1, "a renewal after the first reply")
    assert lease.order is order
    with api.lock:
        api.runs["run_1"].deleted = True


def test_a_late_go_starts_nothing_and_a_timely_one_does(api: ScriptedApi, machine: Machine) -> None:
    usual = api.timers
    api.timers, api.reply_delays["renew"] = SHORT, SLOWER_SECONDS
    run = api.place(steps=3)
    machine.start_agent()
    wait_for(lambda: len(run.renewals) > 3, "renewals")
    assert not machine.processes()
    api.timers, api.reply_delays["renew"] = usual, 0.0
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "finished"


def test_an_api_that_answers_late_keeps_the_lease(api: ScriptedApi, tmp_path: Path) -> None:
    """Each reply takes three renewal periods, and a sixth of the time that a lease lasts."""
    api.timers = TIMERS.model_copy(update={"lease_seconds": 12.0, "margin_seconds": 3.0})
    api.reply_delays["renew"] = 1.5
    lease, _ = start_lease(Lease, api, tmp_path)
    wait_for(lambda: lease.order is RenewalOrder.GO, "the first reply")
    wait_for(lambda: len(api.runs["run_1"].renewals) > 3, "two more")
    assert lease.end() is None
    assert lease.silence_seconds() < 2 * 1.5 + TIMERS.renewal_seconds + 1, "they arrived in time"
    with api.lock:
        api.runs["run_1"].deleted = True
