"""Entries of ``bench.json``, by name: what ``make bench`` measured."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """Ours and a peer, measured alternately."""

    ours: float
    peer: float
    ratio: float
    """ours ÷ peer."""

    unit: str
    passes: float
    """Bound on the ratio."""

    goal: float
    reached: str
    """`goal`, `pass` or `no`; `not shown` if too few trainings were compared to tell."""

    other_clock: float | None = None
    """The ratio by the clock that is not judged: wall time if CPU time is judged, and vice versa."""

    def as_json(self) -> dict[str, float | str]:
        """The entry without unknown values. ``passes`` is written as `pass`, which is a keyword in Python."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return {"pass" if name == "passes" else name: value for name, value in given.items()}

    def with_other_clock(self, other_clock: float) -> Entry:
        """This entry with the ratio by the other clock."""
        return replace(self, other_clock=other_clock)


def at_most(ours: float, peer: float, unit: str, passes: float, goal: float) -> Entry:
    """An entry whose ratio should be small."""
    ratio = ours / peer
    reached = "goal" if ratio <= goal else "pass" if ratio <= passes else "no"
    return Entry(ours, peer, ratio, unit, passes, goal, reached)


def at_least(ours: float, peer: float, unit: str, passes: float, goal: float) -> Entry:
    """An entry whose ratio should be large."""
    ratio = ours / peer
    reached = "goal" if ratio >= goal else "pass" if ratio >= passes else "no"
    return Entry(ours, peer, ratio, unit, passes, goal, reached)


def merge(entries: dict[str, Entry], file: Path) -> None:
    """Replace the entries with these names in ``file``, and leave the others."""
    held = json.loads(file.read_text()) if file.exists() else {}
    held |= {name: entry.as_json() for name, entry in entries.items()}
    file.write_text(json.dumps(held, indent=1) + "\n")
