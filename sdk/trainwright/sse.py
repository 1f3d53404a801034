"""Server-sent events: lines of a response become messages (WHATWG HTML, section 9.2.6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    event: str
    data: str
    id: str | None


def messages(lines: Iterable[str]) -> Iterator[Message]:
    """Messages of a stream. A message that the end of the stream cuts off is dropped, as the standard says."""
    event, last_id = "message", None
    data: list[str] = []
    for line in lines:
        if line == "":
            if data:
                yield Message(event, "\n".join(data), last_id)
            event, data = "message", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            event = value
        elif field == "data":
            data.append(value)
        elif field == "id":
            last_id = value
