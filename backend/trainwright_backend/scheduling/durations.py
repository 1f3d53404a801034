"""How long a waiting run will keep its slots, as far as that is known.

A run takes as long as an equal run that was measured (`run_estimate`), and at most its maximum run time. Looking up measured
runs is slow, so the control loop remembers the responses (`MeasuredRates`) and asks for few of them in a round.

Expected starts may also use a rough duration (`RoughDurations`): that of a run which computes at the typical speed of the team's
newest runs. Decisions never do.
"""

import time
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import median
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import load_only

from trainwright.contracts.run_spec import RunSpec
from trainwright.planner.flops import training_flops
from trainwright_backend.core.db import Read
from trainwright_backend.runs.max_time import remaining_seconds
from trainwright_backend.runs.stored_spec import nameless_spec, parse_spec, spec_json
from trainwright_backend.runs.tables import Run
from trainwright_backend.scheduling.occupants import shorter
from trainwright_backend.scheduling.run_estimate import find_measured, workload

REMEMBERED_SECONDS = 60.0
MAX_REMEMBERED = 1_000
MAX_LOOKED_UP = 2
"""In one round. The other runs are asked for in later rounds."""

TYPICAL_OF = 20
"""The newest runs of a team whose speeds make its typical one."""

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
        if len(self._rates) >= MAX_REMEMBERED:
            self._rates.clear()
        self._rates[key] = (time.monotonic(), rate)


@dataclass
class Durations:
    """The durations of waiting runs, in one round."""

    session: Read
    rates: MeasuredRates
    most_looked_up: int = MAX_LOOKED_UP

    def of(self, run: Run) -> float | None:
        """How long the run will keep its slots; None if it is unknown."""
        return shorter(self._training_seconds(run), remaining_seconds(run))

    def _training_seconds(self, run: Run) -> float | None:
        """How long the rest of the training takes, if an equal one was measured."""
        training = _read(spec_json(run))
        rate = None if training is None else self._rate(run.team_id, training)
        if training is None or rate is None:
            return None
        return _steps_left(run, training.spec) * training.spec.tokens_per_step / rate

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
def _read(spec: bytes) -> Training | None:
    """A spec in JSON; None if this version cannot read it. Cached, because each round asks for every waiting run."""
    parsed = parse_spec(spec)
    return None if parsed is None else Training(parsed, f"{parsed.resources} {workload(parsed)}")


@dataclass
class RoughDurations:
    """How long runs take at the typical speed of the newest runs of their teams, in FLOP/s for each slot."""

    session: Read
    _speeds: dict[tuple[UUID, str], float | None] = field(default_factory=dict)

    def of(self, run: Run) -> float | None:
        """How long the rest of the training takes; None if no run of the team was measured."""
        spec, speed = nameless_spec(run), self._speed(run.team_id, run.device)
        if spec is None or speed is None:
            return None
        flops = _steps_left(run, spec) * spec.tokens_per_step * _flops_per_token(spec)
        return flops / (speed * run.slots)

    def _speed(self, team_id: UUID, device: str) -> float | None:
        if (team_id, device) not in self._speeds:
            self._speeds[team_id, device] = self._measure(team_id, device)
        return self._speeds[team_id, device]

    def _measure(self, team_id: UUID, device: str) -> float | None:
        """The median speed of the team's newest runs on a device."""
        measured = (Run.team_id == team_id, Run.device == device, Run.tokens_per_second > 0)
        newest = select(Run).where(*measured).order_by(Run.id.desc()).limit(TYPICAL_OF)
        columns = load_only(Run.spec, Run.slots, Run.tokens_per_second, raiseload=True)
        speeds = [
            run.tokens_per_second * _flops_per_token(spec) / run.slots
            for run in self.session.scalars(newest.options(columns))
            if (spec := nameless_spec(run)) is not None and run.tokens_per_second is not None
        ]
        return median(speeds) if speeds else None


def _steps_left(run: Run, spec: RunSpec) -> int:
    return max(spec.schedule.steps - (run.last_step or run.forked_step or 0), 0)


def _flops_per_token(spec: RunSpec) -> float:
    return training_flops(spec) / (spec.schedule.steps * spec.tokens_per_step)
