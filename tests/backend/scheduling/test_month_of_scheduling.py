"""A month of five teams on one cluster, decision by decision against a reference scheduler, and what the teams are promised."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backend.scheduling.reference_scheduler import reference
from tests.backend.scheduling.simulated_cluster import (
    DAY,
    MIN_RUN_MINUTES,
    SAVE_SECONDS,
    Cluster,
    Decisions,
    Job,
    Team,
    planned,
)

SIZES = (8, 8, 8, 4, 4, 2)
TEAMS = (
    Team("vision", limit=24, share=12),
    Team("speech", limit=16, share=8),
    Team("robots", limit=34, share=4),
    Team("guests", limit=20, share=0),
    Team("thesis", limit=8, share=2),
)
HOUR = 3_600.0
MONTH = 30 * DAY


def script(seed: int, runs: int) -> list[Job]:
    """The month's submissions: each team has quiet days and days on which it wants much more than its share."""
    draw = random.Random(seed)
    jobs = []
    for number in range(runs):
        team = draw.choice(TEAMS)
        nodes = 2 if draw.random() < 0.08 else 1
        slots = draw.choice((1, 1, 2, 2, 4, 8)) if nodes == 1 else draw.choice((2, 4))
        slots = min(slots, team.limit // nodes)
        seconds = draw.choice((0.5, 2, 6, 15, 40)) * HOUR * draw.uniform(0.5, 1.5)
        known = draw.random() < 0.7
        estimate = round(seconds * draw.choice((1.0, 1.0, 1.1, 0.8))) if known else None
        day = draw.choice((0, 1, 2, 5, 6, 7, 8, 12, 13, 19, 20, 21, 22))
        submitted = round(day * DAY + draw.triangular(0, DAY, DAY / 2))
        priority = draw.choice((0, 1, 1, 1, 2))
        jobs.append(Job(number, team, slots, nodes, priority, round(seconds), estimate, submitted))
    return jobs


class Checked:
    """Compares each round with the reference, and counts what happens."""

    def __init__(self) -> None:
        self.rounds = self.early = self.preempted = self.late = 0

    def __call__(self, cluster: Cluster) -> Decisions:
        found = planned(cluster)
        assert found == reference(cluster), f"at {cluster.time / HOUR:.2f} h"
        self.rounds += 1
        self.early += len(found.early)
        self.preempted += len(found.preempted)
        self._check(cluster, found)
        return found

    def _check(self, cluster: Cluster, found: Decisions) -> None:
        """What holds whatever the order of runs is."""
        assert min(cluster.free()) >= 0, "a slot has one run"
        asked = [job for job in cluster.running if job.number in found.preempted]
        for job in asked:
            assert not job.leaving
            is_late = job.until is not None and job.until <= cluster.time
            self.late += is_late
            assert is_late or cluster.time - job.started >= MIN_RUN_MINUTES * 60
        for team in cluster.teams:
            assert cluster.held(team) <= team.limit
            gone = [job for job in cluster.running if job.team == team and (job.leaving or job in asked)]
            late = sum(job.all_slots for job in gone if job.until is not None)
            if any(job in asked for job in gone):
                left = cluster.held(team) - sum(job.all_slots for job in gone)
                assert left + late >= min(team.share, cluster.held(team)), "no team loses slots of its share"


@pytest.mark.slow(target="databases")
@pytest.mark.parametrize("seed", [1, 2])
def test_a_month_of_five_teams_is_scheduled_as_by_the_reference(seed: int) -> None:
    cluster, decide = Cluster(SIZES, TEAMS), Checked()
    jobs = script(seed, 300)
    for job in jobs:
        cluster.submit(job)
    cluster.run(decide, MONTH)
    assert (len(cluster.ended), cluster.waiting, cluster.running) == (len(jobs), [], []), "no run starves"
    waits = [job.starts[0] - job.submitted for job in jobs]
    print(
        f"{decide.rounds} rounds, {decide.preempted} pre-empted ({decide.late} late), {decide.early} ahead of their turn, "
        f"longest wait {max(waits) / DAY:.1f} d"
    )
    assert decide.preempted > 10 and decide.early > 10, "the month exercises both"


COVERED = Team("covered", limit=8, share=4)
BORROWER = Team("borrower", limit=8, share=0)


def test_a_covered_run_waits_no_longer_than_the_minimum_run_time_and_a_save() -> None:
    cluster = Cluster((4, 4), (COVERED, BORROWER))
    borrowing = [Job(number, BORROWER, 2, 1, 1, 9 * HOUR, None, 0.0) for number in range(4)]
    covered = Job(9, COVERED, 4, 1, 0, HOUR, None, 60.0)
    for job in (*borrowing, covered):
        cluster.submit(job)
    cluster.run(Checked(), 100 * HOUR)
    assert covered.starts == [MIN_RUN_MINUTES * 60 + SAVE_SECONDS]
    assert sorted(len(job.starts) for job in borrowing) == [1, 1, 2, 2], (
        "only the needed runs leave, and all end"
    )
    resumed = [job for job in borrowing if len(job.starts) == 2]
    assert all(job.ended == job.starts[1] + job.seconds - MIN_RUN_MINUTES * 60 for job in resumed)


def test_a_team_gets_no_more_back_than_its_share() -> None:
    cluster = Cluster((8,), (COVERED, BORROWER))
    borrowing = [Job(number, BORROWER, 2, 1, 1, 9 * HOUR, None, 0.0) for number in range(4)]
    asking = [Job(9 + number, COVERED, 2, 1, 1, 20 * HOUR, None, HOUR) for number in range(4)]
    for job in (*borrowing, *asking):
        cluster.submit(job)
    cluster.run(Checked(), 3 * HOUR)
    assert (cluster.held(COVERED), cluster.held(BORROWER)) == (4, 4)


def test_a_run_that_is_late_leaves_for_the_run_that_it_was_placed_ahead_of() -> None:
    cluster = Cluster((4,), (BORROWER,))
    first = Job(0, BORROWER, 2, 1, 1, 2 * HOUR, 2 * HOUR, 0.0)
    head = Job(1, BORROWER, 4, 1, 1, HOUR, HOUR, 1.0)
    early = Job(2, BORROWER, 2, 1, 1, 5 * HOUR, HOUR, 2.0)
    for job in (first, head, early):
        cluster.submit(job)
    cluster.run(Checked(), 24 * HOUR)
    assert early.starts[0] == 2.0 and len(early.starts) == 2
    assert head.starts == [2 * HOUR + SAVE_SECONDS], "it waits for the save only"
    assert early.ended is not None


def test_a_short_run_passes_one_that_waits_for_the_limit_of_their_team() -> None:
    """It leaves when it takes longer than expected, and longer runs wait."""
    team = Team("one", limit=4, share=0)
    cluster = Cluster((8, 8), (team,))
    first = Job(0, team, 2, 1, 1, 4 * HOUR, 4 * HOUR, 0.0)
    head = Job(1, team, 4, 1, 1, HOUR, None, 1.0)
    long = Job(2, team, 1, 1, 1, 5 * HOUR, 5 * HOUR, 2.0)
    unknown = Job(3, team, 1, 1, 1, HOUR, None, 2.0)
    short = Job(4, team, 1, 1, 1, HOUR, HOUR, 2.0)
    late = Job(5, team, 1, 1, 1, 9 * HOUR, HOUR, 2.0)
    for job in (first, head, long, unknown, short, late):
        cluster.submit(job)
    decide = Checked()
    cluster.run(decide, 100 * HOUR)
    assert short.starts == [2.0] and late.starts[0] == 2.0
    assert head.starts == [4 * HOUR + SAVE_SECONDS], "it waits for the save of the late run only"
    assert min(*long.starts, *unknown.starts) >= head.starts[0]
    assert decide.late == 1 and len(cluster.ended) == 6


def test_a_run_that_needs_more_than_the_limit_holds_no_other_run_up() -> None:
    team = Team("one", limit=2, share=0)
    cluster = Cluster((8,), (team,))
    jobs = [Job(0, team, 4, 1, 1, HOUR, None, 0.0), Job(1, team, 2, 1, 1, HOUR, None, 1.0)]
    for job in jobs:
        cluster.submit(job)
    cluster.run(Checked(), 10 * HOUR)
    assert [job.starts for job in jobs] == [[], [1.0]]


WORK = st.builds(
    lambda slots, hours, known: (slots, hours * HOUR, known),
    st.sampled_from((1, 2, 3, 4, 8)),
    st.floats(0.1, 30),
    st.booleans(),
)


@pytest.mark.slow(target="databases")
@pytest.mark.parametrize(
    ("sizes", "limit"),
    [pytest.param((8, 4), 100, id="waits-for-nodes"), pytest.param((8, 8), 8, id="waits-for-the-limit")],
)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    running=st.lists(WORK, max_size=8),
    head_slots=st.sampled_from((4, 8)),
    behind=st.lists(WORK, max_size=8),
)
def test_runs_ahead_of_their_turn_never_delay_the_head_of_the_queue(
    sizes: tuple[int, ...],
    limit: int,
    running: list[tuple[int, float, bool]],
    head_slots: int,
    behind: list[tuple[int, float, bool]],
) -> None:
    """With durations that are known exactly, the head starts no later than if it waited alone."""
    team = Team("one", limit=limit, share=0)

    def run_all(work: Sequence[tuple[int, float, bool]], submitted: Sequence[float]) -> list[float | None]:
        """When each of them starts first."""
        cluster = Cluster(sizes, (team,))
        jobs = [
            Job(number, team, slots, 1, 1, seconds, seconds if known else None, at)
            for number, ((slots, seconds, known), at) in enumerate(zip(work, submitted, strict=True))
        ]
        for job in jobs:
            cluster.submit(job)
        cluster.run(planned, 400 * HOUR)
        return [job.starts[0] if job.starts else None for job in jobs]

    running = [(slots, seconds, True) for slots, seconds, _ in running]
    starts = run_all(running, [0.0] * len(running))
    # The others would wait ahead of the head.
    at_work = [work for work, start in zip(running, starts, strict=True) if start == 0.0]

    def start_of_head(*others: tuple[int, float, bool]) -> float | None:
        work = [*at_work, (head_slots, HOUR, True), *others]
        return run_all(work, [0.0] * len(at_work) + [1.0] + [2.0] * len(others))[len(at_work)]

    alone, crowded = start_of_head(), start_of_head(*behind)
    assert alone is not None and crowded is not None
    assert crowded <= alone
