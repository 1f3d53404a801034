"""Tests of the connection to another node: both send data whose content both know, and measure how fast it arrives.

The platform pairs a node in quarantine with its neighbours, and the neighbours with each other. One node of a pair listens at
its peer address, at a port of its own choice, and the other connects. The node that connects first sends the key of the test, so
that nobody else is served. Then it sends its data, and after that the listener does.

A test sends at most `MAX_BYTES` each way, for at most `MAX_SECONDS`, in blocks that are compared as they arrive. So a slow connection
still gets a speed, and runs on the node are disturbed only briefly.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence

from trainwright.contracts.agent_protocol import LinkResult, LinkTest, LinkTestReport

log = logging.getLogger(__name__)

BLOCK_BYTES = 2**20
MAX_BYTES = 64 * BLOCK_BYTES
MAX_SECONDS = 10.0
"""Limit for sending, and for a wait for the next data."""
_POLL_SECONDS = 0.5
_MAX_PROBLEM_LENGTH = 500
_NUMBER = struct.Struct("!Q")
"""Before each block: its number, from 1. After the last one: 0."""


class LinkTester:
    """Takes part in the tests that the platform asks for, each in a thread of its own.

    Args:
        on_news: called in a test's thread when there is something to report.
    """

    def __init__(self, on_news: Callable[[], None]) -> None:
        self._on_news = on_news
        self._running: dict[str, _Running] = {}

    def ask(self, tests: Sequence[LinkTest], address: str | None) -> None:
        """Start the tests that have not run yet, and forget those that are no longer asked for.

        Args:
            tests: all that the platform asks for now.
            address: at which this node listens.
        """
        wanted = {test.id: test for test in tests}
        for old in self._running.keys() - wanted.keys():
            self._running.pop(old).cancelled.set()
        for test_id in wanted.keys() - self._running.keys():
            self._running[test_id] = _Running(wanted[test_id], address, self._on_news)
            self._running[test_id].start()

    def reports(self) -> list[LinkTestReport]:
        """What is known of the tests that the platform asked for last."""
        return [running.report() for running in self._running.values()]


class _Running(threading.Thread):
    """One test."""

    def __init__(self, test: LinkTest, address: str | None, on_news: Callable[[], None]) -> None:
        super().__init__(name=f"link-test-{test.id}", daemon=True)
        self._test, self._address, self._on_news = test, address, on_news
        self._port: int | None = None
        self._result: LinkResult | None = None
        self.cancelled = threading.Event()

    def report(self) -> LinkTestReport:
        return LinkTestReport(id=self._test.id, port=self._port, result=self._result)

    def run(self) -> None:
        try:
            if self._test.address is None or self._test.port is None:
                self._result = self._listen()
            else:
                self._result = connect(self._test.address, self._test.port, self._test.key)
        except (OSError, ValueError) as error:
            self._result = LinkResult(problem=str(error)[:_MAX_PROBLEM_LENGTH])
        log.info("test of a connection: %s", self._result)
        self._on_news()

    def _listen(self) -> LinkResult:
        if self._address is None:
            raise OSError("this node has no address at which others reach it")
        with socket.create_server((self._address, 0)) as server:
            self._port = server.getsockname()[1]
            self._on_news()
            return serve(server, self._test.key, self._test.seconds, self.cancelled)


def serve(server: socket.socket, key: str, seconds: float, cancelled: threading.Event) -> LinkResult:
    """Exchange data with the first one who knows the key.

    Raises:
        OSError: nobody connected in time, or the connection broke.
    """
    server.settimeout(_POLL_SECONDS)
    until = time.monotonic() + seconds
    while time.monotonic() < until and not cancelled.is_set():
        try:
            connection, _ = server.accept()
        except TimeoutError:
            continue
        with connection:
            connection.settimeout(MAX_SECONDS)
            if _knows(connection, key):
                arrived = _receive(connection, _content(key, "connector"))
                if not arrived.problem:
                    _send(connection, _content(key, "listener"))
                return arrived
    raise OSError(f"nobody connected within {seconds:g} s")


def connect(address: str, port: int, key: str) -> LinkResult:
    """Exchange data with the node that listens there.

    Raises:
        OSError: the connection failed or broke.
    """
    with socket.create_connection((address, port), MAX_SECONDS) as connection:
        connection.sendall(key.encode())
        _send(connection, _content(key, "connector"))
        return _receive(connection, _content(key, "listener"))


def _knows(connection: socket.socket, key: str) -> bool:
    try:
        return hmac.compare_digest(_read(connection, bytearray(len(key))), key.encode())
    except OSError:
        return False


def _content(key: str, sender: str) -> bytes:
    """A block of data that only the two nodes know."""
    return hashlib.shake_256(f"{key} {sender}".encode()).digest(BLOCK_BYTES)


def _send(connection: socket.socket, content: bytes) -> None:
    until = time.monotonic() + MAX_SECONDS
    for number in range(1, MAX_BYTES // BLOCK_BYTES + 1):
        if time.monotonic() > until:
            break
        connection.sendall(_NUMBER.pack(number))
        connection.sendall(content)
    connection.sendall(_NUMBER.pack(0))


def _receive(connection: socket.socket, content: bytes) -> LinkResult:
    """Receive blocks until the end.

    Raises:
        OSError: the connection broke, or blocks kept coming after the time for sending them.
    """
    block, count, begin = bytearray(BLOCK_BYTES), 0, time.monotonic()
    while (number := _NUMBER.unpack(_read(connection, bytearray(_NUMBER.size)))[0]) != 0:
        count += 1
        if number != count or _read(connection, block) != content:
            return LinkResult(
                problem=f"block {count} of {BLOCK_BYTES // 2**20} MiB had changed when it arrived"
            )
        if time.monotonic() > begin + 3 * MAX_SECONDS:
            raise OSError(f"only {count} MiB arrived within {3 * MAX_SECONDS:g} s")
    if not count:
        raise OSError("no data arrived")
    return LinkResult(bytes_per_second=count * BLOCK_BYTES / max(time.monotonic() - begin, 1e-6))


def _read(connection: socket.socket, buffer: bytearray) -> bytearray:
    """Fill the buffer."""
    rest = memoryview(buffer)
    while rest:
        received = connection.recv_into(rest)
        if not received:
            raise OSError("the other node closed the connection")
        rest = rest[received:]
    return buffer
