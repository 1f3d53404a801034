"""uvicorn's HTTP protocol with two limits: on the head of a request (request line and headers) and on open connections.

Without the first, one header can fill the memory, and a client that never finishes its head keeps its connection for ever.
Without the second, a flood of connections exhausts the process's file descriptors, and the database can no longer open files.

A new connection above the limit replaces an old one: the connection that has been idle longest, or, if none is idle, the one
that has been stalled longest. A connection is stalled while its client neither sends the rest of a request body nor reads
the response.
"""

import asyncio
import resource
from http import HTTPStatus
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 20.0
"""From the connection, or from the first byte of a later request, to the end of the head."""

STALL_SECONDS = 10.0
"""A client that sends or reads nothing for this long may lose its connection to a new one. Uploads and downloads resume."""

MAX_CONNECTIONS = 4_000
"""Per process; lower if the process may open only a few files."""

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

    stalled_since: ClassVar[dict["HttpProtocol", float]] = {}
    """Connections whose client has to send the rest of a body or to read a response; the longest stalled first."""

    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None
    """Runs while a head is incomplete."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        if len(self.connections) > max_connections() and not (
            self._close_an_idle_one() or self._close_a_stalled_one()
        ):
            return self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
        self._start_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        self.stalled_since.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head_timer is not None:
            self._head_bytes += len(data)
        elif self in self.stalled_since:
            self._wait_for_client()
        super().data_received(data)
        if self._head_timer is not None and self._head_bytes > HEAD_BYTES:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._head_timer is None:
            self._start_head()

    def on_headers_complete(self) -> None:
        self._end_head()
        self._wait_for_client()  # until `on_message_complete`, which follows immediately if there is no body
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self.stalled_since.pop(self, None)
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_client()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.stalled_since.pop(self, None)
        self._note_idle()

    def _note_idle(self) -> None:
        """The connection waits for its next request, if its client has read the last response."""
        answered = self.cycle is not None and self.cycle.response_complete
        if answered and self not in self.stalled_since and not self.transport.is_closing():
            self._idle.setdefault(self)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note_idle()

    def _close_an_idle_one(self) -> bool:
        longest_idle = next(iter(self._idle), None)
        if longest_idle is None:
            return False
        longest_idle._end_head()
        longest_idle.transport.abort()
        return True

    def _close_a_stalled_one(self) -> bool:
        longest_stalled = next(iter(self.stalled_since), None)
        if longest_stalled is None or self.loop.time() - self.stalled_since[longest_stalled] < STALL_SECONDS:
            return False
        del self.stalled_since[longest_stalled]
        longest_stalled.transport.abort()
        return True

    def _wait_for_client(self) -> None:
        self.stalled_since.pop(self, None)
        self.stalled_since[self] = self.loop.time()

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
