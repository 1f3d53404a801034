"""A model check of the life of a run: its rules hold in every state that two nodes and a platform can reach.

The platform and the leases of the supervisors are the real code. `model_check.machines` simulates agents, processes,
the network and the clock. Mistakes that a developer could make are injected, and each must be found.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.backend.attempts.model_check.explorer import CounterexampleError, Explored, explore
from tests.backend.attempts.model_check.machines import Machines
from tests.backend.attempts.model_check.platform import STEPS, Platform
from tests.backend.attempts.model_check.supervisor_lease import SupervisorLeases
from tests.backend.attempts.model_check.world import Fault, Machine, Rules, World
from tests.backend.attempts.test_planted_faults import any_placement, claim_unconditionally
from tests.backend.scripted_agent import Agent, Scene
from tests.selection import partly_slow
from trainwright.contracts.agent_protocol import RenewalOrder
from trainwright.contracts.run_state import RunState
from trainwright_backend.attempts import attempt_end, claims, renewals
from trainwright_backend.core.db import Database, Write
from trainwright_backend.runs import transitions
from trainwright_backend.runs.tables import Run

ALL = frozenset(Fault) - {Fault.USER}
MAX_STATES = 2_000_000

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mistake:
    """An injected fault, and the smallest check that finds it."""

    nodes: int
    """Nodes of the run."""
    faults: frozenset[Fault]
    disturbances: int
    finds: str
    rules: Rules = field(default_factory=Rules)
    plant: Plant = lambda patch: None
    counts_from_reply: bool = False


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """The rows are copied into memory."""
    return sqlite_url


@pytest.fixture
def platform(scene: Scene, tmp_path: Path) -> Callable[..., Platform]:
    """A platform with two nodes of one slot each, and queued runs that need the given numbers of nodes."""

    def build(*nodes_of_runs: int) -> Platform:
        for number in range(2):
            reported = {"peer_address": f"10.0.0.{number + 1}"}
            Agent.join(scene.site, f"node-{number}", cpu_slots=1, reported=reported)
        (unused,) = (
            node for node in scene.site.admin.get("/api/v1/nodes").json() if node["name"] == "node-a"
        )
        assert scene.site.admin.delete(f"/api/v1/nodes/{unused['id']}").status_code == 204
        for nodes in nodes_of_runs:
            resources = {"device": "cpu", "nodes": nodes, "slots_per_node": 1}
            batch = {"sequence_tokens": 64, "micro_sequences": 1, "global_sequences": 2}
            schedule = {"steps": STEPS, "warmup_steps": 0}
            scene.submit(resources=resources, batch=batch, schedule=schedule)
        state = scene.site.app.state
        connection = scene.database.engine.raw_connection()
        assert isinstance(connection.driver_connection, sqlite3.Connection)
        content = connection.driver_connection.serialize()
        connection.close()
        url = f"sqlite:///{tmp_path / 'unused.sqlite3'}"
        return Platform(
            content, Database(url, {"enqueuer": state.enqueuer, "topics": state.topics}), state.store
        )

    return build


def check(machines: Machines, start: int, disturbances: int, *asks: str) -> Explored:
    both = (Machine(), Machine())
    world = World(start, both, faults_left=disturbances, asks_left=frozenset(asks))
    return explore(machines, world, MAX_STATES)


@pytest.mark.slow(target="databases")
def test_every_rule_holds_when_a_run_on_one_node_is_disturbed(
    platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = platform(1)
    explored = check(Machines(checked, SupervisorLeases(monkeypatch), faults=ALL), checked.start, 1)
    assert explored.states > 1_000


@pytest.mark.slow(target="databases")
def test_every_rule_holds_when_a_run_on_two_nodes_is_disturbed(
    platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = platform(2)
    faults = frozenset({Fault.CRASH})
    explored = check(Machines(checked, SupervisorLeases(monkeypatch), faults=faults), checked.start, 1)
    assert explored.states > 5_000


@pytest.mark.slow(target="databases")
def test_every_rule_holds_whenever_a_user_pauses_moves_or_cancels(
    platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = platform(1)
    machines = Machines(checked, SupervisorLeases(monkeypatch), faults=frozenset({Fault.USER}))
    explored = check(machines, checked.start, 0, "pause", "move", "cancel")
    assert explored.states > 100


@pytest.mark.slow(target="faults")
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(
    ("runs", "faults", "disturbances", "asks"),
    [
        ((1,), ALL, 2, ()),
        ((2,), ALL, 1, ()),
        ((1,), frozenset({Fault.USER}), 0, ("cancel", "move", "pause", "resume")),
        ((1,), frozenset(Fault), 1, ("cancel", "move", "pause")),
        ((1,), frozenset(Fault), 1, ("pause", "resume")),
        ((2,), frozenset({Fault.USER}), 0, ("cancel", "pause", "resume")),
        ((2, 1), frozenset({Fault.SUPERVISOR}), 1, ()),
        ((1, 1, 1), frozenset({Fault.CRASH}), 1, ()),
    ],
    ids=[
        "two-disturbances",
        "two-nodes",
        "users",
        "users-and-a-disturbance",
        "resume-and-a-disturbance",
        "users-and-two-nodes",
        "two-runs",
        "three-runs",
    ],
)
def test_every_rule_holds_in_larger_checks(
    platform: Callable[..., Platform],
    monkeypatch: pytest.MonkeyPatch,
    runs: tuple[int, ...],
    faults: frozenset[Fault],
    disturbances: int,
    asks: tuple[str, ...],
) -> None:
    checked = platform(*runs)
    machines = Machines(checked, SupervisorLeases(monkeypatch), faults=faults)
    explored = check(machines, checked.start, disturbances, *asks)
    print(f"{explored.states:,} states, {explored.moves:,} moves; {checked.executed:,} messages executed")


def no_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    """Every claim gets the run, in any state of the run."""

    def move_from_any_state(session: Write, run: Run, state: RunState, message: str) -> Run:
        transitions._write(session, run, state, message, verdict=None, reason=None, retry_at=None)
        return run

    patch.setattr(claims, "unclaimed_placement", any_placement)
    patch.setattr(claims, "take_placement", claim_unconditionally)
    patch.setattr(claims, "_granted_to_others", lambda *_: [])
    patch.setattr(claims, "move", move_from_any_state)


def go_at_once(patch: pytest.MonkeyPatch) -> None:
    class Orders:
        GO, WAIT, SAVE, KILL, LEAVE = (
            RenewalOrder.GO,
            RenewalOrder.GO,
            RenewalOrder.SAVE,
            RenewalOrder.KILL,
            RenewalOrder.LEAVE,
        )

    patch.setattr(renewals, "RenewalOrder", Orders)


def replaced(module: Any, name: str, function: Callable[..., Any]) -> Plant:
    return lambda patch: patch.setattr(module, name, function)


TWO_ALIVE = "two attempts of one run are alive"
MISTAKES = {
    "a claim without compare-and-set": Mistake(
        1, frozenset({Fault.STALE_HEARTBEAT}), 1, TWO_ALIVE, plant=no_compare_and_set
    ),
    "an end without a check of its fence": Mistake(
        1,
        frozenset({Fault.LAPSE}),
        2,
        "end with an old fence",
        plant=replaced(attempt_end, "check_placement", lambda *_: None),
    ),
    "a supervisor that does not fence itself": Mistake(
        1, frozenset({Fault.LAPSE}), 2, TWO_ALIVE, rules=Rules(supervisor_fences=False)
    ),
    "a deadline that counts from the reply": Mistake(
        1, frozenset({Fault.LATE, Fault.LAPSE}), 3, TWO_ALIVE, counts_from_reply=True
    ),
    "the killer inside the agent": Mistake(
        1,
        frozenset({Fault.AGENT, Fault.FREEZE}),
        2,
        TWO_ALIVE,
        rules=Rules(supervisor_fences=False, has_guard=False, watchdog=True),
    ),
    "a repeated claim that starts a trainer immediately": Mistake(
        1, frozenset({Fault.LAPSE}), 2, TWO_ALIVE, rules=Rules(renewal_first=False)
    ),
    "a run that settles at the first closed placement": Mistake(
        2,
        frozenset({Fault.CRASH}),
        1,
        "renew fails",
        plant=replaced(transitions, "has_open_claim", lambda *_: False),
    ),
    "a start before all nodes have claimed": Mistake(
        2, frozenset({Fault.LATE_CLAIM}), 1, TWO_ALIVE, plant=go_at_once
    ),
    "a trainer that outlives its supervisor": Mistake(
        1,
        frozenset({Fault.AGENT, Fault.SUPERVISOR}),
        2,
        TWO_ALIVE,
        rules=Rules(dies_with_supervisor=False),
    ),
    "a start without a time limit": Mistake(
        1, frozenset({Fault.HANG}), 1, "no repair ends the runs", rules=Rules(limits_start=False)
    ),
    "a hang that ends no attempt": Mistake(
        1,
        frozenset({Fault.HANG}),
        1,
        "no repair ends the runs",
        plant=replaced(renewals, "note_stall", lambda *_: False),
    ),
}


IN_MAKE_TEST = (
    "a claim without compare-and-set",
    "a supervisor that does not fence itself",
)


@pytest.mark.parametrize("name", partly_slow(MISTAKES, IN_MAKE_TEST, "faults"))
def test_each_mistake_is_found(
    platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    mistake = MISTAKES[name]
    checked = platform(mistake.nodes)
    mistake.plant(monkeypatch)
    leases = SupervisorLeases(monkeypatch, counts_from_reply=mistake.counts_from_reply)
    machines = Machines(checked, leases, mistake.rules, mistake.faults, checks_slots=False)
    with pytest.raises(CounterexampleError) as found:
        check(machines, checked.start, mistake.disturbances)
    assert mistake.finds in found.value.rule
