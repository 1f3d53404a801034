"""Parses server-sent events (WHATWG HTML, section 9.2.6)."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Message:
    event: str
    data: str
    id: str | None


@dataclass
class MessageParser:
    """Gets the lines of a stream. An incomplete message at its end is dropped, as the standard requires."""

    _event: str = "message"
    _data: list[str] = field(default_factory=list)
    _last_id: str | None = None

    def add(self, line: str) -> Message | None:
        """The message that this line completes."""
        if line == "":
            complete = Message(self._event, "\n".join(self._data), self._last_id) if self._data else None
            self._event, self._data = "message", []
            return complete
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)
        elif name == "id":
            self._last_id = value
        return None
