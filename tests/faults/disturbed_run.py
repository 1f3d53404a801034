"""A run of many steps that a test disturbs again and again, and whose losses must equal those of an undisturbed one."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.live import SCALED_TIMERS, eventually, finished, series, small_spec
from trainwright.client import TeamClient
from trainwright.contracts.api.datasets import Dataset
from trainwright.contracts.api.runs import Run
from trainwright.contracts.run_state import RunState

LEASE_SECONDS = 10.0
TIMERS = SCALED_TIMERS | {"lease_seconds": LEASE_SECONDS, "margin_seconds": 3.0, "start_seconds": 240.0}
SAVED_EVERY_STEPS = 25
STEPS_PER_FAULT = 100
"""So many that each attempt saves a checkpoint, and ends are not counted together."""

PATIENCE_SECONDS = 240.0


@dataclass(frozen=True)
class DisturbedRun:
    """The run, as a client of its team sees it."""

    team: TeamClient
    id: str

    @classmethod
    def submit(cls, team: TeamClient, dataset: Dataset, faults: int, **sections: Any) -> "DisturbedRun":
        return cls(team, team.submit(long_spec(dataset, faults, **sections)).id)

    def show(self) -> Run:
        return self.team.run(self.id)

    def wait_for_step(self, number: int, drawn: random.Random) -> Run:
        """Wait for a random step among the last before fault ``number`` (from 1) is due, whichever attempt makes it."""
        step = number * STEPS_PER_FAULT - drawn.randrange(SAVED_EVERY_STEPS)

        def trains() -> bool:
            run = self.show()
            return run.state is RunState.RUNNING and run.summary.step >= step

        eventually(trains, f"the run makes step {step}", PATIENCE_SECONDS)
        return self.show()

    def wait_until_it_trains(self, attempt: int, beyond: int = 0) -> None:
        """Wait for a step of ``attempt`` after step ``beyond``."""

        def trains() -> bool:
            run = self.show()
            return run.state is RunState.RUNNING and run.attempt == attempt and run.summary.step > beyond

        eventually(trains, f"attempt {attempt} trains", PATIENCE_SECONDS)

    def wait_for_checkpoint(self) -> None:
        eventually(lambda: self.team.checkpoints(self.id), "a checkpoint is stored", PATIENCE_SECONDS)

    def reasons(self) -> list[str | None]:
        """Why each attempt ended."""
        return [mark.reason for mark in self.team.metrics(self.id).attempts]

    def losses_so_far(self) -> dict[int, float]:
        """Loss by step."""
        return series(self.team, self.id, "loss")

    def losses(self) -> dict[int, float]:
        """Loss by step, once it has succeeded."""
        run = finished(self.team, self.id, PATIENCE_SECONDS)
        assert run.state is RunState.SUCCEEDED, run.sentence
        return series(self.team, self.id, "loss")


REFERENCE_FAULTS, LONG_FAULTS = 4, 2_000
"""Steps of an undisturbed run, and of runs that train until they are cancelled."""


def reference_losses(team: TeamClient, dataset: Dataset) -> dict[int, float]:
    """Loss by step of an undisturbed run, as in a longer one: without its last step, which has a lower learning rate."""
    losses = DisturbedRun.submit(team, dataset, REFERENCE_FAULTS).losses()
    del losses[max(losses)]
    return losses


def long_spec(dataset: Dataset, faults: int, **sections: Any) -> dict[str, Any]:
    """A run with steps for so many faults. Except for its last step, a longer one has the same learning rates."""
    steps = (faults + 1) * STEPS_PER_FAULT
    return small_spec(
        dataset,
        **{
            "schedule": {"kind": "wsd", "steps": steps, "warmup_steps": 5, "decay_steps": 1},
            "checkpoint": {"every_steps": SAVED_EVERY_STEPS},
        }
        | sections,
    )


def check_complete(losses: Mapping[int, float], expected: Mapping[int, float]) -> None:
    """Fail unless there are the same losses bit for bit."""
    missing = expected.keys() - losses.keys()
    assert not missing, f"steps without a loss: {sorted(missing)[:10]}"
    check_equal(losses, expected)


def check_equal(losses: Mapping[int, float], expected: Mapping[int, float]) -> None:
    """Fail unless the losses of the steps in both are equal bit for bit."""
    common = sorted(losses.keys() & expected.keys())
    assert common, "no step has a loss in both runs"
    first = next((step for step in common if losses[step] != expected[step]), None)
    assert first is None, f"step {first}: {losses[first]!r} instead of {expected[first]!r}"
