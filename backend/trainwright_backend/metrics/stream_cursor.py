"""The position of a stream of points, and the event id with which an interrupted stream continues.

A cursor at a mark has the mark's id, ``attempt:offset``. Any other has its content as id, ``attempt~`` and
base64 of the last step of each family of series, so that it needs no row. Ids that clients send are not
verified: a wrong one can only skip points of the client's own stream.
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
from trainwright_backend.core.ids import MAX_NUMBER
from trainwright_backend.metrics.batch_ingest import newest_mark
from trainwright_backend.metrics.tables import MetricMark

MAX_ID_LENGTH = 4_096
BEGINNING = "0:0"
_MARK = re.compile(r"([0-9]{1,9}):([0-9]{1,16})")
_SPELLED = re.compile(r"([0-9]{1,9})~([A-Za-z0-9_=-]*)")


@dataclass(frozen=True)
class StreamCursor:
    """A position after all points of earlier attempts and those of ``attempt`` up to a step of each family."""

    attempt: int = 0
    last_steps: Mapping[str, int] = field(default_factory=dict)
    mark: str | None = None
    """Id of the mark at this position."""

    @classmethod
    def of(cls, mark: MetricMark) -> "StreamCursor":
        return cls(mark.attempt, dict(mark.last_steps), f"{mark.attempt}:{mark.offset}")

    @property
    def id(self) -> str | None:
        """The event id; None if it is too long for a header: a stream interrupted here continues from an
        earlier position."""
        if self.mark is not None:
            return self.mark
        spelled = base64.urlsafe_b64encode(json.dumps(self.last_steps, separators=(",", ":")).encode())
        return f"{self.attempt}~{spelled.decode()}" if len(spelled) < MAX_ID_LENGTH else None

    def at(self, steps: Mapping[str, int]) -> "StreamCursor":
        """The cursor after further ``steps``."""
        return StreamCursor(self.attempt, {**self.last_steps, **steps})

    def rewound(self, step: int) -> "StreamCursor":
        """The cursor before all points after ``step``."""
        return StreamCursor(self.attempt, {name: min(last, step) for name, last in self.last_steps.items()})


def parse_cursor(session: Read, run_id: UUID, given: str) -> StreamCursor | None:
    """The cursor with an id; None if the id is malformed, of another run, or too old."""
    if given == BEGINNING:
        return StreamCursor()
    if found := _MARK.fullmatch(given):
        wanted = select(MetricMark).where(
            MetricMark.run_id == run_id,
            MetricMark.attempt == int(found[1]),
            MetricMark.offset == int(found[2]),
        )
        mark = session.scalars(wanted).one_or_none()
        return None if mark is None else StreamCursor.of(mark)
    found = _SPELLED.fullmatch(given) if len(given) <= MAX_ID_LENGTH + 20 else None
    steps = _steps(found[2]) if found else None
    if not found or steps is None:
        return None
    newest = newest_mark(session, run_id)
    is_ahead = int(found[1]) > (newest.attempt if newest else 0)
    return None if is_ahead else StreamCursor(int(found[1]), steps)


def _steps(spelled: str) -> dict[str, int] | None:
    try:
        steps = json.loads(base64.urlsafe_b64decode(spelled))
    except (binascii.Error, ValueError, RecursionError):
        return None
    if not isinstance(steps, dict):
        return None
    good = all(type(step) is int and 0 <= step <= MAX_NUMBER for step in steps.values())
    return steps if good else None
