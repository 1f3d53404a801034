"""Expected starts of waiting runs, which are empty where something is unknown."""

from uuid import UUID

import pytest

from tests.backend.scripted_agent import Scene
from trainwright_backend.core.db import now
from trainwright_backend.core.ids import new_id
from trainwright_backend.scheduling.forecast import Occupant, Waiting, expected_starts

A, B = new_id(), new_id()
LIMITS = {A: 8, B: 2}
Queue = list[tuple[UUID, int, float | None]]

CASES: dict[str, tuple[list[Occupant], Queue, list[float | None]]] = {
    "free slots are used immediately": ([], [(A, 4, None), (A, 4, None)], [0, 0]),
    "a run starts when enough slots are free": (
        [Occupant(A, 4, 60.0), Occupant(A, 2, 20.0)],
        [(A, 4, None)],
        [20],
    ),
    "a run of unknown length keeps its slots": ([Occupant(A, 6, None)], [(A, 4, 9.0)], [None]),
    "a run that cannot start delays those after it": (
        [Occupant(A, 6, None)],
        [(A, 4, 9.0), (A, 2, 9.0)],
        [None, None],
    ),
    "one after the other": ([Occupant(A, 8, 10.0)], [(A, 8, 5.0), (A, 8, 5.0)], [10, 15]),
    "a team's limit holds": ([Occupant(B, 2, 30.0)], [(B, 1, None), (A, 4, None)], [30, 0]),
    "more than the limit never starts": ([], [(B, 3, None)], [None]),
    "no run overtakes one that waits for nodes": (
        [Occupant(A, 6, 40.0)],
        [(A, 8, 5.0), (B, 2, 5.0)],
        [40, 45],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_expected_starts(name: str) -> None:
    occupants, queue, expected = CASES[name]
    waiting = [Waiting(new_id(), *row) for row in queue]
    found = expected_starts(8, LIMITS, occupants, waiting)
    assert [found.get(run.run_id) for run in waiting] == expected


def test_the_queue_shows_expected_starts_once_the_running_run_has_an_estimate(scene: Scene) -> None:
    work = scene.running(slots=2, last_step=5, steps=1_000)
    scene.submit(slots=2)
    scene.control.sweep()

    def start() -> str | None:
        [run] = scene.site.admin.get(f"{scene.site.path}/queue").json()["items"]
        found: str | None = run["expected_start"]
        return found

    assert start() is None, "nothing says how long it takes"
    block = {"steps": [6], "series": {"loss": [1.0], "eta_seconds": [600.0]}}
    assert work.send(work.batch(metrics=[block])).status_code == 200
    expected = start()
    assert expected is not None and expected > now().isoformat()
