"""Expected starts of waiting runs: what the scheduler then does if all runs end as expected."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.backend import scripted_agent
from tests.backend.scheduling.simulated_cluster import (
    MIN_RUN_MINUTES,
    SAVE_SECONDS,
    Cluster,
    Job,
    Team,
    device_queue,
    planned,
    run_of,
)
from tests.backend.scripted_agent import Scene
from trainwright.contracts.run_spec import RunSpec
from trainwright_backend.core.db import now
from trainwright_backend.scheduling import simulation
from trainwright_backend.scheduling.simulation import Length, SimulatedStart, Simulation

HOUR, QUARTER = 3_600.0, 900.0
A, B, C = Team("a", limit=8, share=0), Team("b", limit=2, share=0), Team("c", limit=16, share=0)
COVERED = Team("covered", limit=8, share=4)
Work = tuple[Team, int, float | None]
"""Team, slots, and how many hours it takes, if that is known."""

CASES: dict[str, tuple[list[Work], list[Work], list[float | None]]] = {
    "free slots are used immediately": ([], [(A, 4, None), (A, 4, None)], [0, 0]),
    "a run starts when enough slots are free": ([(A, 4, 3), (A, 2, 1)], [(A, 4, None)], [1]),
    "a run of unknown length keeps its slots": ([(A, 6, None)], [(A, 4, 2)], [None]),
    "a run that cannot start delays those after it": ([(A, 6, None)], [(A, 4, 2), (A, 2, 2)], [None, None]),
    "one after the other": ([(A, 8, 2)], [(A, 8, 1), (A, 8, 1)], [2, 3]),
    "a team's limit holds": ([(B, 2, 3)], [(B, 1, None), (A, 4, None)], [3, 0]),
    "a run of more than the limit delays nobody": ([], [(B, 3, None), (B, 2, None)], [None, 0]),
    "no long run overtakes one that waits for nodes": ([(C, 6, 4)], [(C, 8, 1), (C, 2, 6)], [4, 5]),
    "a short run starts ahead of its turn": ([(C, 6, 4)], [(C, 8, 1), (C, 2, 3)], [4, 0]),
    "a short run passes one that waits for the limit": ([(B, 1, 3)], [(B, 2, 1), (B, 1, 2)], [3, 0]),
    "borrowed slots are given back": (
        [(C, 4, 9), (C, 4, 9)],
        [(COVERED, 4, 1)],
        [(MIN_RUN_MINUTES * 60 + simulation.SAVE_SECONDS) / HOUR],
    ),
}


def forecast(cluster: Cluster, rough: bool = False) -> list[SimulatedStart | None]:
    """The expected starts of the waiting runs."""
    jobs = {job.id: job for job in (*cluster.waiting, *cluster.running)}

    def length_of(seconds: float | None) -> Length | None:
        return None if seconds is None else Length(seconds, rough)

    on_nodes = {job.id: length_of(job.left_at(cluster.time)) for job in cluster.running}
    if not cluster.waiting:
        return []
    starts = Simulation(
        device_queue(cluster),
        {run_id: length for run_id, length in on_nodes.items() if length is not None},
        lambda run: length_of(jobs[run.id].left),
        lambda run_id: run_of(jobs[run_id]),
    ).starts({job.id for job in cluster.waiting})
    return [starts.get(job.id) for job in cluster.waiting]


def filled(running: list[Work], waiting: list[Work]) -> Cluster:
    """A node with eight slots, and its runs."""
    cluster = Cluster((8,), tuple({team.name: team for team, _, _ in (*running, *waiting)}.values()))
    for number, (team, slots, hours) in enumerate((*running, *waiting)):
        seconds = None if hours is None else hours * HOUR
        job = Job(number, team, slots, 1, 1, seconds or 0.0, seconds, 0.0)
        if number < len(running):
            job.on = (0,)
            cluster.running.append(job)
        else:
            cluster.waiting.append(job)
    return cluster


@pytest.mark.parametrize("name", CASES)
def test_expected_starts(name: str) -> None:
    running, waiting, expected = CASES[name]
    hours = [None if start is None else start.seconds / HOUR for start in forecast(filled(running, waiting))]
    assert hours == [None if hour is None else pytest.approx(hour) for hour in expected]


def test_on_a_large_cluster_only_the_next_starts_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = filled([(A, 6, 2)], [(A, 2, 1), (A, 8, 1)])
    assert [start is not None for start in forecast(cluster)] == [True, True]
    monkeypatch.setattr(simulation, "MAX_CPU_SECONDS", 0.0)
    assert [start is not None for start in forecast(cluster)] == [True, False]


def test_only_starts_after_an_end_that_is_roughly_known_are_rough() -> None:
    starts = forecast(filled([(A, 6, 2)], [(A, 2, 1), (A, 8, 1)]), rough=True)
    assert [start and start.is_rough for start in starts] == [False, True]
    starts = forecast(filled([(A, 6, 2)], [(A, 2, 1), (A, 8, 1)]))
    assert [start and start.is_rough for start in starts] == [False, False]


JOBS = st.lists(
    st.tuples(st.sampled_from((C, COVERED)), st.sampled_from((1, 2, 3, 4, 8)), st.integers(1, 20)), max_size=7
)


@hypothesis_settings(max_examples=60, deadline=None, derandomize=True)
@given(before=JOBS, after=JOBS)
def test_runs_start_when_they_were_expected_to(
    before: list[tuple[Team, int, int]], after: list[tuple[Team, int, int]]
) -> None:
    """If all runs end as expected and nothing is submitted later, also with pre-emption and backfill."""
    cluster = Cluster((8, 4), (C, COVERED))
    for number, (team, slots, quarters) in enumerate((*before, *after)):
        seconds, at = quarters * QUARTER, 0.0 if number < len(before) else QUARTER
        cluster.submit(Job(number, team, slots, 1, 1, seconds, seconds, at))
    cluster.run(planned, QUARTER)
    waiting = [job for job in cluster.waiting if not job.starts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation, "TOGETHER", 1.0)
        patch.setattr(simulation, "SAVE_SECONDS", SAVE_SECONDS)
        expected = dict(zip((job.number for job in cluster.waiting), forecast(cluster), strict=True))
    at = cluster.time
    cluster.run(planned, 1_000 * HOUR)
    for job in waiting:
        start = expected[job.number]
        assert start is not None and at + start.seconds == pytest.approx(job.starts[0], abs=0.01)


def expected_start(scene: Scene, run_id: str) -> tuple[datetime | None, bool]:
    """When the queue says that a run starts, and whether that is rough."""
    items = scene.site.admin.get(f"{scene.site.path}/queue").json()["items"]
    [run] = [item for item in items if item["id"] == run_id]
    found = run["expected_start"]
    return None if found is None else datetime.fromisoformat(found), run["start_is_rough"]


def report(work: scripted_agent.Work, **values: float) -> None:
    block = {"steps": [6], "series": {"loss": [1.0]} | {name: [value] for name, value in values.items()}}
    assert work.send(work.batch(metrics=[block])).status_code == 200


def test_the_queue_shows_expected_starts_once_the_running_run_has_an_estimate(scene: Scene) -> None:
    work = scene.running(slots=2, last_step=5, steps=1_000)
    first, second = scene.submit(slots=2), scene.submit(slots=2)
    scene.control.sweep()
    assert expected_start(scene, first) == (None, False), "nothing says how long it takes"
    report(work, eta_seconds=600.0)
    at, is_rough = expected_start(scene, first)
    assert at is not None and abs(at - now() - timedelta(seconds=600)) < timedelta(seconds=30)
    assert not is_rough and expected_start(scene, second) == (None, False), "no run of the team was measured"


def test_runs_that_were_never_measured_get_a_rough_start_from_the_speed_of_others(scene: Scene) -> None:
    """Durations follow from FLOPs: twice as many steps take twice as long."""
    work = scene.running(slots=2, last_step=5, steps=1_000)
    first = scene.submit(slots=2, steps=1_000)
    twice = scene.submit(slots=2, steps=2_000)
    third = scene.submit(slots=2, steps=1_000)
    scene.control.sweep()
    report(work, eta_seconds=600.0, tokens_per_second=1_000.0)
    starts = [expected_start(scene, run_id) for run_id in (first, twice, third)]
    assert [is_rough for _, is_rough in starts] == [False, True, True]
    times = [at for at, _ in starts if at is not None]
    assert len(times) == 3
    one, two = times[1] - times[0], times[2] - times[1]
    tokens = 1_000 * RunSpec.model_validate(scene.spec(steps=1_000)).tokens_per_step
    assert one.total_seconds() == pytest.approx(tokens / 1_000, rel=0.01)
    assert two / one == pytest.approx(2, rel=0.01)


def test_a_run_that_waits_for_a_limit_of_runs_is_expected_when_another_one_ends(scene: Scene) -> None:
    limits = {"concurrent_runs": 1}
    assert scene.site.admin.put(f"{scene.site.path}/limits", json=limits).status_code == 200
    work = scene.running(last_step=5, steps=1_000)
    run_id = scene.submit()
    scene.control.sweep()
    report(work, eta_seconds=600.0)
    at, _ = expected_start(scene, run_id)
    assert at is not None and abs(at - now() - timedelta(seconds=600)) < timedelta(seconds=30)
