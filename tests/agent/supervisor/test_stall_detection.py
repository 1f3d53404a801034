"""When stalled ranks are reported: the limit is learned from their steps, and is longer for activities that may take long."""

import math
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from trainwright.contracts.rank_progress import (
    ACTIVITIES,
    ACTIVITY_CELL,
    MAGIC,
    MAGIC_CELL,
    PROGRESS_BYTES,
    PROGRESS_FOLDER,
    SECTIONS_CELL,
    STEP_CELL,
    RankActivity,
    Stall,
)
from trainwright_agent.supervisor.stall_detection import PATIENCE, StallDetector
from trainwright_agent.supervisor.stall_limit import LEARNED_STEPS, StallLimit

FLOOR_SECONDS = 30.0


@dataclass
class Ranks:
    """Two ranks on a simulated clock, and a watch that looks once a second."""

    folder: Path
    seconds: float = 100.0
    stopped: set[int] = field(default_factory=set)
    stopped_elsewhere: bool = False

    def __post_init__(self) -> None:
        (self.folder / "out" / PROGRESS_FOLDER).mkdir(parents=True)
        self.watch = StallDetector(self.folder, range(2), lambda: self.stopped, lambda: self.seconds)

    def publish(
        self,
        step: int,
        sections: int = 0,
        activity: RankActivity = RankActivity.STEP,
        rank: int | None = None,
    ) -> None:
        numbers = memoryview(bytearray(PROGRESS_BYTES)).cast("Q")
        numbers[MAGIC_CELL], numbers[STEP_CELL], numbers[SECTIONS_CELL] = MAGIC, step, sections
        numbers[ACTIVITY_CELL] = ACTIVITIES.index(activity)
        for each in (0, 1) if rank is None else (rank,):
            (self.folder / "out" / PROGRESS_FOLDER / f"rank-{each}").write_bytes(numbers.tobytes())

    def let_pass(self, seconds: float, every: float = 1.0) -> Stall | None:
        """The first report in the next ``seconds``."""
        until = self.seconds + seconds
        while self.seconds < until:
            self.seconds = min(until, self.seconds + every)
            if (stall := self.watch.look(FLOOR_SECONDS, self.stopped_elsewhere)) is not None:
                return stall
        return None

    def train(self, steps: int, seconds: float, first: int = 1) -> None:
        for step in range(first, first + steps):
            self.publish(step)
            assert self.let_pass(seconds) is None, f"a false alarm in step {step}"
        self.publish(first + steps)
        assert self.let_pass(1) is None


@pytest.fixture
def ranks(tmp_path: Path) -> Ranks:
    return Ranks(tmp_path)


def test_short_steps_have_the_minimum_limit(ranks: Ranks) -> None:
    ranks.train(steps=LEARNED_STEPS, seconds=1)
    assert ranks.let_pass(FLOOR_SECONDS - 1) is None
    stall = ranks.let_pass(2)
    assert stall is not None
    assert stall.seconds == pytest.approx(FLOOR_SECONDS, abs=1)
    assert [(rank.rank, rank.position.step, rank.stopped) for rank in stall.ranks] == [
        (0, 101, False),
        (1, 101, False),
    ]


def test_long_steps_have_three_times_their_99th_percentile(ranks: Ranks) -> None:
    ranks.train(steps=LEARNED_STEPS, seconds=40)
    assert ranks.let_pass(3 * 40 - 3) is None
    assert ranks.let_pass(5) is not None


def test_slow_uneven_steps_cause_no_alarm_over_half_an_hour(ranks: Ranks) -> None:
    """Steps of 8 s, every twentieth of 40 s (a slow shard); validation of 100 s and saves of 90 s. The half hour starts when
    the limit is learned."""
    drawn, step, until = random.Random(3), 0, math.inf
    while ranks.seconds < until:
        if step == LEARNED_STEPS:
            until = ranks.seconds + 1_800
        step += 1
        ranks.publish(step)
        assert ranks.let_pass(40 if drawn.random() < 0.05 else drawn.uniform(4, 12)) is None, step
        if step % 30 == 0:
            ranks.publish(step, activity=RankActivity.VALIDATION)
            assert ranks.let_pass(100) is None
            ranks.publish(step, activity=RankActivity.SAVING)
            assert ranks.let_pass(90) is None
    assert step > 1.5 * LEARNED_STEPS


def test_without_the_longer_limit_for_validation_the_same_steps_are_reported(ranks: Ranks) -> None:
    """Negative control of the test above: 100 s in a step are reported."""
    ranks.train(steps=LEARNED_STEPS, seconds=8)
    ranks.publish(LEARNED_STEPS + 2)
    assert ranks.let_pass(100) is not None


def test_the_first_steps_may_take_long_to_compile(ranks: Ranks) -> None:
    ranks.publish(1)
    assert ranks.let_pass(PATIENCE * FLOOR_SECONDS - 5) is None
    assert ranks.let_pass(10) is not None, "but not forever"


@pytest.mark.parametrize("activity", [RankActivity.VALIDATION, RankActivity.SAVING, RankActivity.ENDING])
def test_slow_activities_get_ten_times_the_limit(ranks: Ranks, activity: RankActivity) -> None:
    ranks.train(steps=LEARNED_STEPS, seconds=1)
    ranks.publish(100, activity=activity, rank=0)
    assert ranks.let_pass(PATIENCE * FLOOR_SECONDS - 5) is None
    assert ranks.let_pass(10) is not None, "but not forever"


def test_ranks_that_wait_for_a_stopped_process_of_another_node_are_reported_in_the_first_steps(
    ranks: Ranks,
) -> None:
    ranks.publish(1)
    assert ranks.let_pass(FLOOR_SECONDS + 3) is None, "they may still compile"
    ranks.stopped_elsewhere = True
    assert ranks.let_pass(1) is not None


def test_a_process_stopped_during_a_save_is_reported(ranks: Ranks) -> None:
    ranks.train(steps=LEARNED_STEPS, seconds=1)
    ranks.publish(101, activity=RankActivity.SAVING, rank=0)
    ranks.stopped = {0}
    stall = ranks.let_pass(FLOOR_SECONDS + 3)
    assert stall is not None
    assert [(rank.rank, rank.stopped, rank.position.activity) for rank in stall.ranks] == [
        (0, True, RankActivity.SAVING),
        (1, False, RankActivity.STEP),
    ]


def test_bytes_of_a_checkpoint_are_progress_while_it_is_saved(ranks: Ranks) -> None:
    ranks.train(steps=LEARNED_STEPS, seconds=1)
    draft = ranks.folder / "out" / "checkpoints" / "step-10.tmp"
    draft.mkdir(parents=True)
    ranks.publish(101, activity=RankActivity.SAVING)
    for part in range(40):
        (draft / f"tensors-{part}").write_bytes(b"weights")
        assert ranks.let_pass(100) is None
    ranks.publish(102)
    (draft / "tensors-40").write_bytes(b"weights")
    assert ranks.let_pass(FLOOR_SECONDS + 3) is not None, "in a step they are not"


def test_time_in_which_the_supervisor_did_not_run_does_not_count(ranks: Ranks) -> None:
    """If the supervisor was stopped or the machine slept, the ranks did not run either."""
    ranks.train(steps=LEARNED_STEPS, seconds=1)
    ranks.seconds += 3_600
    assert ranks.let_pass(FLOOR_SECONDS - 5) is None
    assert ranks.let_pass(10) is not None


def test_ranks_that_publish_nothing_are_never_reported(ranks: Ranks) -> None:
    assert ranks.let_pass(10_000, every=10) is None


@pytest.mark.parametrize("trap", ["link", "folder", "long"])
def test_invalid_progress_files_are_ignored(ranks: Ranks, trap: str, tmp_path: Path) -> None:
    ranks.train(steps=LEARNED_STEPS, seconds=1)
    file = tmp_path / "out" / PROGRESS_FOLDER / "rank-1"
    content = file.read_bytes()
    file.unlink()
    if trap == "link":
        (tmp_path / "elsewhere").write_bytes(content)
        file.symlink_to(tmp_path / "elsewhere")
    elif trap == "folder":
        file.mkdir()
    else:
        file.write_bytes(content * 1_000)
    stall = ranks.let_pass(FLOOR_SECONDS + 3)
    assert stall is not None
    assert [rank.rank for rank in stall.ranks] == [0]


def test_progress_ends_a_report(ranks: Ranks) -> None:
    ranks.train(steps=LEARNED_STEPS, seconds=1)
    assert ranks.let_pass(FLOOR_SECONDS + 3) is not None
    ranks.publish(101, sections=1)
    assert ranks.let_pass(1) is None


def test_many_steps_between_two_checks_share_the_time() -> None:
    limit = StallLimit()
    limit.observe(0.0, 100, in_step=True)
    for step in range(200, 1_500, 100):
        limit.observe(1.0, step, in_step=True)
    assert limit.is_learned
    assert limit.seconds(0.0) == pytest.approx(3 * 0.01)
