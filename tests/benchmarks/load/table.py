"""The load table: values that rows measure, their goals, and ``load.json``.

    {database: {row: {value: {measured, unit, goal, bound, reached, all, mlflow}}}}

``all`` lists every measurement, and ``measured`` is their median. If the goal is 0, as for lost points, it is the largest instead:
an error in one of three measurements is an error. ``mlflow`` is what MLflow's server reached in turn, where it has the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any


class Bound(StrEnum):
    """On which side of the goal a value should be."""

    AT_LEAST = "at least"
    AT_MOST = "at most"


@dataclass(frozen=True)
class Goal:
    """The bound of a value."""

    bound: Bound
    value: float

    def is_reached(self, measured: float) -> bool:
        return measured >= self.value if self.bound is Bound.AT_LEAST else measured <= self.value

    def __str__(self) -> str:
        return f"{self.bound} {self.value:g}"


def at_least(value: float) -> Goal:
    return Goal(Bound.AT_LEAST, value)


def at_most(value: float) -> Goal:
    return Goal(Bound.AT_MOST, value)


@dataclass(frozen=True)
class Value:
    """One value of a row, measured once."""

    name: str
    measured: float
    unit: str
    goal: Goal | None = None
    """None for a value that only explains others."""

    mlflow: float | None = None
    """What MLflow's server reached in turn."""


@dataclass(frozen=True)
class Result:
    """A value over all measurements of its row."""

    name: str
    measured: float
    unit: str
    goal: Goal | None
    every: tuple[float, ...]
    mlflow: float | None = None

    @property
    def reached(self) -> bool | None:
        """None without a goal."""
        return None if self.goal is None else self.goal.is_reached(self.measured)

    def as_json(self) -> dict[str, Any]:
        """The value in ``load.json``, where null stands for a wait that never ended."""
        every = [_finite(value) for value in self.every]
        found: dict[str, Any] = {"measured": _finite(self.measured), "unit": self.unit, "all": every}
        if self.goal is not None:
            found |= {"goal": self.goal.value, "bound": self.goal.bound.value, "reached": self.reached}
        return found if self.mlflow is None else found | {"mlflow": self.mlflow}

    def __str__(self) -> str:
        verdict = {True: "reached", False: "NOT REACHED", None: ""}[self.reached]
        goal = "" if self.goal is None else str(self.goal)
        peer = "" if self.mlflow is None else f"  MLflow {self.mlflow:,.4g}"
        return f"{self.name:<28} {self.measured:>12,.4g} {self.unit:<12} {goal:<16} {verdict}{peer}".rstrip()


def summarize(measurements: Sequence[Sequence[Value]]) -> list[Result]:
    """The values of a row that was measured once or several times, each time with the same values."""
    return [_over_all(values) for values in zip(*measurements, strict=True)]


def _over_all(values: Sequence[Value]) -> Result:
    first, every = values[0], tuple(value.measured for value in values)
    is_count_of_errors = first.goal == at_most(0)
    peers = [value.mlflow for value in values if value.mlflow is not None]
    return Result(
        name=first.name,
        measured=max(every) if is_count_of_errors else median(every),
        unit=first.unit,
        goal=first.goal,
        every=every,
        mlflow=median(peers) if peers else None,
    )


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def write(database: str, row: str, results: Sequence[Result], file: Path) -> None:
    """Replace the row in ``file``, and leave the others."""
    table: dict[str, dict[str, Any]] = json.loads(file.read_text()) if file.exists() else {}
    table.setdefault(database, {})[row] = {result.name: result.as_json() for result in results}
    file.write_text(json.dumps(table, indent=1) + "\n")
