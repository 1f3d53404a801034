"""Row ``streams``: logs that agents send, and live streams that people have open, at the same time.

Each run sends a range of its log and a step of its metrics every second. People have as many streams of metrics open as the goal
says, several of each run, by keys of service accounts, since one person may have a hundred on an API process. The tail delay is
the time from when a step was due to be sent until a stream delivered it: it contains the request that stores the step.
"""

from __future__ import annotations

import itertools
import json
import selectors
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.benchmarks.load.mix import CALLERS, PATIENCE_SECONDS, print_waits
from tests.benchmarks.load.processes import cpu_shares
from tests.benchmarks.load.queueing import p95_or_infinite
from tests.benchmarks.load.row import OFFERED, Load, Measure, Row
from tests.benchmarks.load.size import TAIL_SECONDS
from tests.benchmarks.load.table import Value, at_least, at_most
from tests.benchmarks.platform.open_loop import Call, ask
from tests.benchmarks.platform.server import Caller, Site
from trainwright.contracts.api.people import KeyScope

MB = 1e6
STREAMS_PER_RUN = 10
STREAMS_PER_KEY = 80
"""Fewer than the API allows one person on one process."""

DELIVERY_SECONDS = 10.0
"""How long a stream may take to deliver what was sent last."""


@dataclass
class Source:
    """A run whose agent sends a log and metrics."""

    run: str
    token: str
    url: str
    log_bytes: int
    """Of each range."""

    log_sent: int = 0
    steps: int = 0
    due: dict[int, float] = field(default_factory=dict)
    """When each step was to be sent, by `time.perf_counter`."""

    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send_log(self, _: Caller) -> None:
        """Send the next range of the log."""
        line = b"a line of the log of a rank, of a usual length: step 123 loss 2.3456 tokens/s 123,456\n"
        content = (line * (self.log_bytes // len(line) + 1))[: self.log_bytes - 1] + b"\n"
        with self._lock:
            query = f"attempt=1&fence=1&offset={self.log_sent}"
            path = f"/api/v1/agent/runs/{self.run}/logs/rank-0.log?{query}"
            self._post(path, content, "application/octet-stream")
            self.log_sent += len(content)

    def send_step(self, _: Caller) -> None:
        """Send the next step of the metrics."""
        due = time.perf_counter()
        with self._lock:
            step = self.steps + 1
            block = {"steps": [step], "series": {"loss": [float(step)]}}
            place = {"offset": self.steps, "next_offset": step}
            body = {"fence": 1, "attempt": 1, **place, "metrics": [block]}
            self.due[step] = due
            path = f"/api/v1/agent/runs/{self.run}/batches"
            self._post(path, json.dumps(body).encode(), "application/json")
            self.steps = step

    def _post(self, path: str, content: bytes, kind: str) -> None:
        caller = Caller(self.url, self.token)
        try:
            caller.ask("POST", path, content, kind)
        finally:
            caller.close()


@dataclass
class Stream:
    """An open live stream of a run's metrics."""

    source: Source
    connection: socket.socket
    came: dict[int, float] = field(default_factory=dict)
    """When each step arrived, by `time.perf_counter`."""

    _rest: bytes = b""

    @classmethod
    def open(cls, site: Site, url: str, key: str, source: Source) -> Stream:
        """Open it, and wait for the head of the response.

        Raises:
            RuntimeError: it was refused.
        """
        address = urlsplit(url)
        connection = socket.create_connection((address.hostname, address.port), timeout=60.0)
        path = f"{site.team_path}/runs/{source.run}/metrics/stream"
        head = f"GET {path} HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {key}\r\n\r\n"
        connection.sendall(head.encode())
        begin = b""
        while b"\r\n\r\n" not in begin:
            received = connection.recv(4_096)
            if not received:
                break
            begin += received
        if not begin.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"a stream was refused: {begin[:300]!r}")
        connection.setblocking(False)
        return cls(source, connection, _rest=begin.partition(b"\r\n\r\n")[2])

    def receive(self) -> bool:
        """Read what has arrived; False if the server has closed the stream."""
        received = self.connection.recv(1 << 16)
        at = time.perf_counter()
        *lines, self._rest = (self._rest + received).split(b"\n")
        for line in lines:
            if line.startswith(b"data: ") and b'"steps"' in line:
                self.came.update(dict.fromkeys(json.loads(line[6:])["steps"], at))
        return bool(received)

    def delays(self, first: int) -> list[float]:
        """Seconds from when each step since ``first`` was due until it arrived; infinite for one that did not."""
        return [
            self.came.get(step, float("inf")) - self.source.due[step]
            for step in range(first, self.source.steps + 1)
        ]


@dataclass
class Streams:
    """Open streams, which one thread reads."""

    opened: list[Stream]
    closed: int = 0
    """Streams that the server has closed."""

    _done: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def reading(self) -> Iterator[Streams]:
        thread = threading.Thread(target=self._read)
        thread.start()
        try:
            yield self
        finally:
            self._done.set()
            thread.join()
            for stream in self.opened:
                stream.connection.close()

    def wait_for_all(self) -> None:
        """Wait until every stream has everything that was sent, or for some seconds."""
        deadline = time.monotonic() + DELIVERY_SECONDS
        while time.monotonic() < deadline and any(
            stream.source.steps not in stream.came for stream in self.opened if stream.source.steps
        ):
            time.sleep(0.1)

    def _read(self) -> None:
        with selectors.DefaultSelector() as selector:
            for stream in self.opened:
                selector.register(stream.connection, selectors.EVENT_READ, stream)
            while not self._done.is_set():
                for key, _ in selector.select(0.5):
                    if not key.data.receive():
                        selector.unregister(key.fileobj)
                        self.closed += 1


@contextmanager
def streams(load: Load) -> Iterator[Measure]:
    """Logs at the goal rate, and the goal's streams."""
    site, goals, size = load.site, load.goals, load.size
    count = max(goals.streams // STREAMS_PER_RUN, 2)
    log_bytes = int(goals.log_megabytes_per_second * MB / count)
    sources = [
        Source(site.start_run()[1], site.node_token, site.urls[n % len(site.urls)], log_bytes)
        for n in range(count)
    ]
    keys = account_keys(site, goals.streams // STREAMS_PER_KEY + 1)

    def measure() -> list[Value]:
        before = sum(source.log_sent for source in sources)
        with Streams(open_streams(site, sources, keys, goals.streams)).reading() as live:
            first = {source.run: source.steps + 1 for source in sources}
            with cpu_shares(site.processes):
                responses = ask(
                    [Caller(site.url) for _ in range(CALLERS)],
                    itertools.islice(messages_of(sources), int(2 * count * size.seconds)),
                    OFFERED * 2 * count,
                    PATIENCE_SECONDS,
                )
            live.wait_for_all()
        print_waits(responses)
        sent = sum(source.log_sent for source in sources) - before
        delays = [delay for stream in live.opened for delay in stream.delays(first[stream.source.run])]
        rate = at_least(goals.log_megabytes_per_second)
        return [
            Value("logs", sent / MB / responses.seconds, "MB/s", rate),
            Value("lost log bytes", lost_log_bytes(site, sources), "", at_most(0)),
            Value("live streams", len(live.opened) - live.closed, "", at_least(goals.streams)),
            Value("tail delay p95", p95_or_infinite(delays), "s", at_most(TAIL_SECONDS)),
            Value("undelivered steps", delays.count(float("inf")), "", at_most(0)),
            Value("refused messages", responses.statuses.total(), "", at_most(0)),
        ]

    yield measure


def messages_of(sources: Sequence[Source]) -> Iterator[tuple[str, Call]]:
    """Endless: a range of the log and a step of each run in turn."""
    once: list[tuple[str, Call]] = []
    for source in sources:
        once += [("log", source.send_log), ("step", source.send_step)]
    return itertools.cycle(once)


def open_streams(site: Site, sources: Sequence[Source], keys: Sequence[str], count: int) -> list[Stream]:
    """Streams of the runs in turn, spread over the API processes and the keys."""
    return [
        Stream.open(site, site.urls[n % len(site.urls)], keys[n % len(keys)], sources[n % len(sources)])
        for n in range(count)
    ]


def account_keys(site: Site, count: int) -> list[str]:
    """API keys of as many service accounts, which read."""
    person, path = site.person(), f"{site.team_path}/service-accounts"
    accounts = [person.post(path, {"name": f"reader {n}", "role": "viewer"})["id"] for n in range(count)]
    key = {"name": "streams", "scope": KeyScope.READ}
    return [person.post(f"{path}/{account}/keys", key)["secret"] for account in accounts]


def lost_log_bytes(site: Site, sources: Sequence[Source]) -> int:
    """Bytes of the logs that the server accepted and does not list."""
    person, lost = site.person(), 0
    for source in sources:
        listed = person.get(f"{site.team_path}/runs/{source.run}/logs")
        stored = sum(file["bytes"] for file in listed)
        lost += abs(source.log_sent - stored)
    return lost


STREAM_ROWS: dict[str, Row] = {"streams": streams}
