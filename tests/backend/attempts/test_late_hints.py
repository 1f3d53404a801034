"""Row F13: hints that arrive twice, in another order or a day late start one attempt each.

Hints come from the queues of a real broker. These agents trust them more than real ones do: for each hint, and for several at
once, they claim the run that it names and all that the next heartbeat offers, and forget what they have claimed before.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from itertools import chain, product
from queue import Empty
from typing import Any

import pytest
from sqlalchemy import func, select, update

from tests.backend.attempts.test_planted_faults import drop_guard_of_claims, repair_invariants
from tests.backend.scripted_agent import Agent, Scene, Work
from tests.faults.rows import FaultRow
from trainwright.contracts.agent_protocol import HINTS_KEY_PREFIX, Claim, hints_queue
from trainwright_backend.core.db import now
from trainwright_backend.core.ids import parse_id
from trainwright_backend.core.message_queue import celery_app
from trainwright_backend.core.settings import Settings
from trainwright_backend.runs.tables import Attempt, Run

SEED = 13
RUNS = 2
"""Runs of one trial."""

Hint = tuple[str, str]
"""The names of a node and of a run."""


@pytest.fixture
def settings(settings: Settings, valkey_url: str) -> Settings:
    return settings.model_copy(update={"hints_url": valkey_url})


@pytest.fixture
def agents(scene: Scene) -> dict[str, Agent]:
    return {agent.name: agent for agent in (scene.agent, Agent.join(scene.site, "node-b"))}


@pytest.fixture
def receive(agents: dict[str, Agent], valkey_url: str) -> Iterator[Callable[[], list[Hint]]]:
    """Takes all hints from the nodes' queues."""
    with ExitStack() as stack:
        connection = stack.enter_context(celery_app(valkey_url, HINTS_KEY_PREFIX).connection_for_read())
        queues = {
            name: stack.enter_context(connection.SimpleQueue(hints_queue(name), no_ack=True))
            for name in agents
        }

        def receive_all() -> list[Hint]:
            return [(name, run_id) for name, queue in queues.items() for run_id in _run_ids(queue)]

        receive_all()  # of an earlier test
        yield receive_all


def _run_ids(queue: Any) -> Iterator[str]:
    while True:
        try:
            yield queue.get_nowait().payload[0][0]
        except Empty:
            return


@pytest.mark.both_databases
@pytest.mark.fault_row(name="F13", trials=500, long=5_000)
def test_hints_that_arrive_again_start_nothing(
    row: FaultRow,
    scene: Scene,
    agents: dict[str, Agent],
    receive: Callable[[], list[Hint]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    print(f"seed {SEED}")
    choose = random.Random(SEED)
    past: deque[list[Hint]] = deque(maxlen=4)
    for number in range(row.count):
        with row.trial(f"trial {number}"):
            past.append(check_one_attempt_each(scene, agents, receive, past, choose))
            if len(past) > 2:  # hints of the last two trials name ended runs, earlier ones deleted runs
                for _, run_id in past[-3]:
                    assert scene.site.admin.delete(f"{scene.runs}/{run_id}").status_code == 200
    with row.control(), monkeypatch.context() as patch:
        drop_guard_of_claims(patch)
        check_one_attempt_each(scene, agents, receive, [], choose)  # it would restart ended runs too
    repair_invariants(scene)


def check_one_attempt_each(
    scene: Scene,
    agents: dict[str, Agent],
    receive: Callable[[], list[Hint]],
    past: Iterable[list[Hint]],
    choose: random.Random,
) -> list[Hint]:
    """Check some runs; returns their hints."""
    runs = [scene.submit() for _ in range(RUNS)]
    known = [*chain(*past), *product(agents, runs)]
    scene.control.sweep()
    sent = receive()
    assert {run_id for _, run_id in sent} == set(runs), "a run that is placed has a hint"
    let_a_day_pass(scene, runs)
    scene.control.sweep()
    repeated = receive()
    assert sorted(repeated) == sorted(sent), "the hint of an unclaimed run is repeated"

    def works_after(hints: list[Hint]) -> list[Work]:
        """What the agents may work on when hints arrive, several at a time, in any order and with late ones."""
        hints = hints + choose.choices(known, k=2)
        with ThreadPoolExecutor(4) as pool:
            found = pool.map(lambda hint: act_on(agents[hint[0]], hint[1]), choose.sample(hints, len(hints)))
            return [work for works in found for work in works]

    works = works_after(sent + repeated)
    assert sorted(work.run_id for work in works) == sorted(runs), "each run is claimed once"
    for work in works:
        assert work.order("starting") == "go"
    assert works_after([]) == [], "they run already"
    for work in works:
        assert scene.cancel(work.run_id).status_code == 202
        assert work.ended("stopped") == "cancelled"
    assert works_after([]) == [], "they have ended"
    assert attempts(scene, runs) == RUNS
    return sent


def act_on(agent: Agent, run_id: str) -> list[Work]:
    """What the agent may work on after a hint: it claims the hinted run, and all that are offered to it."""
    offered = {placed["run_id"] for placed in agent.heartbeat() if not placed["claimed"]}
    return [work for one in sorted(offered | {run_id}) if (work := claimed(agent, one)) is not None]


def claimed(agent: Agent, run_id: str) -> Work | None:
    response = agent.try_claim(run_id)
    if response.status_code != 200:
        assert (response.status_code, response.json()["code"]) == (409, "claim_refused")
        return None
    return Work(agent, run_id, Claim.model_validate(response.json()))


def let_a_day_pass(scene: Scene, runs: list[str]) -> None:
    """The hints of the runs were sent a day ago, and nobody has claimed them."""
    ids = [parse_id("run", run_id) for run_id in runs]
    with scene.database.write() as session:
        session.execute(update(Run).where(Run.id.in_(ids)).values(hinted_at=now() - timedelta(days=1)))


def attempts(scene: Scene, runs: list[str]) -> int:
    """The attempts of these runs."""
    ids = [parse_id("run", run_id) for run_id in runs]
    with scene.database.read() as session:
        return session.scalar(select(func.count()).select_from(Attempt).where(Attempt.run_id.in_(ids))) or 0
