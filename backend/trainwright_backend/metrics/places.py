"""Where a stream of points stands, and the id by which it goes on after it broke off.

A place that is a mark is named by it, ``attempt:offset``. Any other is spelled out, ``attempt~`` and base64 of the
last step of each family of series, so that it needs no row. What a client sends as an id is only believed to be a
place: the worst that a wrong one does is to skip points of its own stream.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy import select

from trainwright_backend.core.db import Read
from trainwright_backend.core.ids import LARGEST_NUMBER
from trainwright_backend.metrics.service import newest_mark
from trainwright_backend.metrics.tables import MetricMark

LONGEST_ID = 4_096
BEGINNING = "0:0"
_MARK = re.compile(r"([0-9]{1,9}):([0-9]{1,16})")
_SPELLED = re.compile(r"([0-9]{1,9})~([A-Za-z0-9_=-]*)")


@dataclass(frozen=True)
class Place:
    """All points of earlier attempts, and those of ``attempt`` up to a step of each family."""

    attempt: int = 0
    last_steps: Mapping[str, int] = field(default_factory=dict)
    mark: str | None = None
    """The mark that it is."""

    @classmethod
    def of(cls, mark: MetricMark) -> "Place":
        return cls(mark.attempt, dict(mark.last_steps), f"{mark.attempt}:{mark.offset}")

    @property
    def id(self) -> str | None:
        """None: too long for a header, so a stream that breaks off here goes on from an earlier place."""
        if self.mark is not None:
            return self.mark
        spelled = base64.urlsafe_b64encode(json.dumps(self.last_steps, separators=(",", ":")).encode())
        return f"{self.attempt}~{spelled.decode()}" if len(spelled) < LONGEST_ID else None

    def at(self, steps: Mapping[str, int]) -> "Place":
        """Further on."""
        return Place(self.attempt, {**self.last_steps, **steps})

    def rewound(self, step: int) -> "Place":
        """Without what lies after ``step``."""
        return Place(self.attempt, {name: min(last, step) for name, last in self.last_steps.items()})


def place_at(session: Read, run_id: UUID, given: str) -> Place | None:
    """The place of an id; None: it is none of this run, or too long ago."""
    if given == BEGINNING:
        return Place()
    if found := _MARK.fullmatch(given):
        wanted = select(MetricMark).where(
            MetricMark.run_id == run_id,
            MetricMark.attempt == int(found[1]),
            MetricMark.offset == int(found[2]),
        )
        mark = session.scalars(wanted).one_or_none()
        return None if mark is None else Place.of(mark)
    found = _SPELLED.fullmatch(given) if len(given) <= LONGEST_ID + 20 else None
    steps = _steps(found[2]) if found else None
    if not found or steps is None:
        return None
    newest = newest_mark(session, run_id)
    is_ahead = int(found[1]) > (newest.attempt if newest else 0)
    return None if is_ahead else Place(int(found[1]), steps)


def _steps(spelled: str) -> dict[str, int] | None:
    try:
        steps = json.loads(base64.urlsafe_b64decode(spelled))
    except (binascii.Error, ValueError, RecursionError):
        return None
    if not isinstance(steps, dict):
        return None
    good = all(type(step) is int and 0 <= step <= LARGEST_NUMBER for step in steps.values())
    return steps if good else None
