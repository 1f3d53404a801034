"""An S3-compatible store that fails on demand: it refuses requests, stalls, or changes bytes."""

import io
import logging
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

Environment = dict[str, Any]
StartResponse = Callable[..., Any]

LONGEST_STALL_SECONDS = 600.0


class Fault(Enum):
    REFUSES = "500 and 503"
    STALLS = "stalls"
    CHANGES_SENT = "changes bytes that it stores"
    CHANGES_RETURNED = "changes bytes that it returns"


class FaultyStore:
    """A server in a thread. Its buckets are in memory."""

    def __init__(self, seed: int) -> None:
        self._store = DomainDispatcherApplication(create_backend_app)
        self._drawn = random.Random(seed)
        self._fault: Fault | None = None
        self._share = 0.0
        self._healthy = threading.Event()
        self._healthy.set()
        self._lock = threading.Lock()
        self.disturbed = 0
        """Requests that met a fault."""
        self.endpoint = ""

    @contextmanager
    def running(self) -> Iterator["FaultyStore"]:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self.endpoint = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._healthy.set()
            server.shutdown()

    @contextmanager
    def failing(self, fault: Fault, share: float) -> Iterator[None]:
        """For the block, so large a share of requests meets the fault."""
        self._fault, self._share, self.disturbed = fault, share, 0
        self._healthy.clear()
        try:
            yield
        finally:
            self._fault = None
            self._healthy.set()

    def _answer(self, environment: Environment, respond: StartResponse) -> Iterable[bytes]:
        match self._drawn_fault():
            case Fault.REFUSES:
                environment["wsgi.input"].read(int(environment.get("CONTENT_LENGTH") or 0))
                return self._refuse(respond)
            case Fault.STALLS:
                self._healthy.wait(LONGEST_STALL_SECONDS)
            case Fault.CHANGES_SENT if environment["REQUEST_METHOD"] == "PUT":
                sent = environment["wsgi.input"].read(int(environment.get("CONTENT_LENGTH") or 0))
                environment["wsgi.input"] = io.BytesIO(_changed(sent))
            case Fault.CHANGES_RETURNED if environment["REQUEST_METHOD"] == "GET":
                return [_changed(b"".join(self._store(environment, respond)))]
        found: Iterable[bytes] = self._store(environment, respond)
        return found

    def _drawn_fault(self) -> Fault | None:
        with self._lock:
            fault = self._fault
            if fault is None or self._drawn.random() >= self._share:
                return None
            self.disturbed += 1
            return fault

    def _refuse(self, respond: StartResponse) -> Iterable[bytes]:
        status, code = self._drawn.choice(
            (("503 Slow Down", "SlowDown"), ("500 Internal Server Error", "InternalError"))
        )
        body = (
            f"<Error><Code>{code}</Code><Message>Please reduce your request rate.</Message></Error>".encode()
        )
        respond(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body]


def _changed(content: bytes) -> bytes:
    """``content`` with one bit flipped in its middle."""
    if not content:
        return content
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
