"""Expected starts of waiting runs, and the run that makes one unknown."""

from math import inf
from uuid import UUID

import pytest

from tests.backend.scheduling.other_team import OtherTeam
from tests.backend.scripted_agent import Scene
from trainwright_backend.core.db import now
from trainwright_backend.core.ids import new_id
from trainwright_backend.scheduling.forecast import Start, Waiting, expected_starts
from trainwright_backend.scheduling.occupants import Occupant

A, B = new_id(), new_id()
LIMITS = {A: 8, B: 2}
Queue = list[tuple[str, UUID, int, float | None]]


CASES: dict[str, tuple[list[Occupant], Queue, list[float | str | None]]] = {
    "free slots are used immediately": ([], [("x", A, 4, None), ("y", A, 4, None)], [0, 0]),
    "a run starts when enough slots are free": (
        [Occupant("p", A, 4, 60.0), Occupant("q", A, 2, 20.0)],
        [("x", A, 4, None)],
        [20],
    ),
    "a run of unknown length keeps its slots": ([Occupant("p", A, 6, None)], [("x", A, 4, 9.0)], ["p"]),
    "a run that cannot start delays those after it": (
        [Occupant("p", A, 6, None)],
        [("x", A, 4, 9.0), ("y", A, 2, 9.0)],
        ["p", "p"],
    ),
    "a waiting run of unknown length delays those after it": (
        [Occupant("p", A, 8, 5.0)],
        [("x", A, 8, None), ("y", A, 8, 9.0)],
        [5, "x"],
    ),
    "one after the other": (
        [Occupant("p", A, 8, 10.0)],
        [("x", A, 8, 5.0), ("y", A, 8, 5.0)],
        [10, 15],
    ),
    "a team's limit holds": ([Occupant("p", B, 2, 30.0)], [("x", B, 1, None), ("y", A, 4, None)], [30, 0]),
    "more than the limit never starts": ([], [("x", B, 3, None)], [None]),
    "no run overtakes one that waits for nodes": (
        [Occupant("p", A, 6, 40.0)],
        [("x", A, 8, 5.0), ("y", B, 2, 5.0)],
        [40, 45],
    ),
}
"""Seconds until each waiting run starts, or the run of unknown length that it waits for."""


@pytest.mark.parametrize("name", CASES)
def test_expected_starts(name: str) -> None:
    occupants, queue, expected = CASES[name]
    waiting = [Waiting(new_id(), *row) for row in queue]
    found = expected_starts(8, LIMITS, occupants, waiting)
    starts = [found[run.run_id] for run in waiting]
    assert [_as_expected(start) for start in starts] == expected


def _as_expected(start: Start) -> float | str | None:
    if start.seconds < inf:
        return start.seconds
    return None if start.after is None else start.after.name


def queued(scene: Scene) -> list[tuple[str | None, str | None]]:
    """Expected start, and why it is unknown, of the team's waiting runs."""
    items = scene.site.admin.get(f"{scene.site.path}/queue").json()["items"]
    return [(run["expected_start"], run["expected_start_unknown"]) for run in items]


def test_the_queue_shows_expected_starts_once_the_running_run_has_an_estimate(scene: Scene) -> None:
    work = scene.running(slots=2, last_step=5, steps=1_000)
    scene.submit(slots=2)
    scene.control.sweep()
    assert queued(scene) == [(None, "after pilot, whose length is not known")]
    block = {"steps": [6], "series": {"loss": [1.0], "eta_seconds": [600.0]}}
    assert work.send(work.batch(metrics=[block])).status_code == 200
    [(expected, unknown)] = queued(scene)
    assert expected is not None and expected > now().isoformat() and unknown is None


def test_runs_without_an_estimate_last_as_long_as_an_equal_one(scene: Scene) -> None:
    measured, starting = scene.running(last_step=1, steps=1_000), scene.start(steps=1_000)
    assert starting.order("starting") == "go"
    scene.submit(slots=2)
    scene.control.sweep()
    assert queued(scene) == [(None, "after pilot, whose length is not known")]
    block = {
        "steps": list(range(2, 12)),
        "series": {"loss": [1.0] * 10, "tokens_per_second": [100_000.0] * 10},
    }
    assert measured.send(measured.batch(metrics=[block])).status_code == 200
    [(expected, unknown)] = queued(scene)
    assert expected is not None and expected > now().isoformat() and unknown is None


def test_the_names_of_other_teams_runs_are_not_shown(scene: Scene) -> None:
    other = OtherTeam(scene, share=2)
    work = other.submit(slots=2)
    scene.control.sweep()
    scene.agent.claim(work)
    scene.submit(slots=2)
    scene.control.sweep()
    assert queued(scene) == [(None, "after a run of another team, whose length is not known")]
