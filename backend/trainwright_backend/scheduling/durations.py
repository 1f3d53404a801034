"""How long a waiting run will keep its slots, as far as that is known.

A run takes as long as an equal run that was measured (`run_estimate`), and at most its maximum run time. Looking up measured
runs is slow, so the control loop remembers the answers (`MeasuredRates`) and asks for few of them in a round.
"""

import time
from dataclasses import dataclass, field
from functools import lru_cache
from uuid import UUID

from pydantic import ValidationError

from trainwright.contracts.run_spec import RunSpec
from trainwright_backend.core.db import Read
from trainwright_backend.runs.max_time import remaining_seconds
from trainwright_backend.runs.tables import Run
from trainwright_backend.scheduling.occupants import shorter
from trainwright_backend.scheduling.requirements import spec_text
from trainwright_backend.scheduling.run_estimate import find_measured, workload

REMEMBERED_SECONDS = 60.0
MOST_REMEMBERED = 1_000
MOST_LOOKED_UP = 2
"""In one round. The other runs are asked for in later rounds."""

Key = tuple[UUID, str]


@dataclass(frozen=True)
class Training:
    """What a run trains."""

    spec: RunSpec
    workload: str
    """The settings on which its speed depends."""


@dataclass
class MeasuredRates:
    """Measured tokens per second by team and workload, remembered from round to round."""

    _rates: dict[Key, tuple[float, float | None]] = field(default_factory=dict)
    """The time of the look-up and its result."""

    def find(self, key: Key) -> tuple[float, float | None] | None:
        """What was remembered less than `REMEMBERED_SECONDS` ago."""
        found = self._rates.get(key)
        return found if found is not None and found[0] > time.monotonic() - REMEMBERED_SECONDS else None

    def remember(self, key: Key, rate: float | None) -> None:
        """Store the result of a look-up."""
        if len(self._rates) >= MOST_REMEMBERED:
            self._rates.clear()
        self._rates[key] = (time.monotonic(), rate)


@dataclass
class Durations:
    """The durations of waiting runs, in one round."""

    session: Read
    rates: MeasuredRates
    most_looked_up: int = MOST_LOOKED_UP

    def of(self, run: Run) -> float | None:
        """How long the run will keep its slots; None if it is unknown."""
        return shorter(self._training_seconds(run), remaining_seconds(run))

    def _training_seconds(self, run: Run) -> float | None:
        """How long the rest of the training takes, if an equal one was measured."""
        training = _read(spec_text(run))
        if training is None:
            return None
        rate = self._rate(run.team_id, training)
        if rate is None:
            return None
        steps = training.spec.schedule.steps - (run.last_step or run.forked_step or 0)
        return max(steps, 0) * training.spec.tokens_per_step / rate

    def _rate(self, team_id: UUID, training: Training) -> float | None:
        key = (team_id, training.workload)
        remembered = self.rates.find(key)
        if remembered is not None:
            return remembered[1]
        if not self.most_looked_up:
            return None
        self.most_looked_up -= 1
        measured = find_measured(self.session, team_id, training.spec)
        rate = None if measured is None else measured.tokens_per_second
        self.rates.remember(key, rate)
        return rate


@lru_cache(maxsize=1024)
def _read(spec: str) -> Training | None:
    """A spec in JSON; None if this version cannot read it. Cached, because each round asks for every waiting run."""
    try:
        parsed = RunSpec.model_validate_json(spec)
    except ValidationError:
        return None
    return Training(parsed, f"{parsed.resources} {workload(parsed)}")
