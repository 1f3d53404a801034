"""HTTP of uvicorn with limits for the head of a request, its request line and headers, and for the number of connections.

Without them, one header can fill the memory, a client that never finishes its head keeps its connection for ever, and a
flood of connections uses up the process's open files, so that the database cannot open its own. When there are too many,
a new connection takes the place of the one that has waited longest without a request.
"""

import asyncio
import resource
from http import HTTPStatus
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 20.0
"""From the connection, or from the first byte of a later request, to the end of the head."""


MAX_CONNECTIONS = 4_000
"""Of one process; fewer if it may open fewer files."""

WANTED_FILES = 16_384


def max_connections() -> int:
    """Connections that one process takes: at most half of the files that it may open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if files == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, files // 2)


def raise_file_limit() -> None:
    """Let this process open more files, as far as the system allows. The usual default is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(WANTED_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class HttpProtocol(HttpToolsProtocol):
    """One connection of a client."""

    _idle: ClassVar[dict["HttpProtocol", None]] = {}
    """Connections without a complete head, the longest idle first."""

    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None
    """Runs while a head is incomplete."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        if len(self.connections) > max_connections() and not self._close_an_idle_one():
            return self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
        self._start_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head_timer is not None:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_timer is not None and self._head_bytes > HEAD_BYTES:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._head_timer is None:
            self._start_head()

    def on_headers_complete(self) -> None:
        self._end_head()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing() and self.cycle.response_complete:
            self._idle[self] = None

    def _close_an_idle_one(self) -> bool:
        longest_idle = next(iter(self._idle), None)
        if longest_idle is None:
            return False
        longest_idle._end_head()
        longest_idle.transport.abort()
        return True

    def _start_head(self) -> None:
        self._head_bytes = 0
        self._idle.setdefault(self)
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._time_out)

    def _end_head(self) -> None:
        self._idle.pop(self, None)
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _time_out(self) -> None:
        if self._head_bytes:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
        else:  # a browser that connected in advance
            self.transport.close()

    def _refuse(self, status: HTTPStatus) -> None:
        self._end_head()
        line = f"HTTP/1.1 {status.value} {status.phrase}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        self.transport.write(line.encode())
        self.transport.close()
