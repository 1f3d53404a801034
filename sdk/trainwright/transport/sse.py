"""Parses server-sent events (WHATWG HTML, section 9.2.6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    event: str
    data: str
    id: str | None


def parse_messages(lines: Iterable[str]) -> Iterator[Message]:
    """Messages of a stream. An incomplete message at the end is dropped, as the standard requires."""
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
