"""Reading a run's events as they come, for a stream."""

import re
from uuid import UUID

from trainwright.contracts.api.runs import RunEvent
from trainwright.contracts.run_state import FINAL
from trainwright_backend.core.db import Database, Read
from trainwright_backend.core.ids import MAX_INTEGER
from trainwright_backend.core.sse import ServerEvent, StreamUpdate
from trainwright_backend.runs import service
from trainwright_backend.runs.tables import Run

_NUMBER = re.compile(r"[0-9]{1,19}")


class EventStreamReader:
    """Reads a run's events, each once.

    Args:
        last_event_id: the browser's ``Last-Event-ID``: the number of the last event that it has. If it is missing or
            not a number, all events are read.
    """

    def __init__(self, database: Database, run_id: UUID, last_event_id: str | None) -> None:
        self._database = database
        self._run_id = run_id
        known = last_event_id is not None and _NUMBER.fullmatch(last_event_id)
        self._last_sequence = min(int(last_event_id or 0), MAX_INTEGER) if known else 0

    def read(self) -> StreamUpdate:
        """The events since the last call."""
        with self._database.read() as session:
            found, ended = _events_after(session, self._run_id, self._last_sequence)
        if found:
            self._last_sequence = found[-1].sequence
        events = [ServerEvent(event.model_dump_json(), id=str(event.sequence)) for event in found]
        return StreamUpdate(events, ended, more=len(found) == service.EVENTS_AT_ONCE)


def _events_after(session: Read, run_id: UUID, sequence: int) -> tuple[list[RunEvent], bool]:
    run = session.get(Run, run_id)
    if run is None:
        return [], True
    final = run.state in FINAL  # read before the events, so that none can be added in between
    found = service.list_events(session, run, sequence, service.EVENTS_AT_ONCE)
    return found, final and len(found) < service.EVENTS_AT_ONCE
