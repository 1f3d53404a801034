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

MAX_STALL_SECONDS = 600.0


class Fault(Enum):
    REFUSES = "500 and 503"
    STALLS = "stalls"
    CHANGES_SENT = "changes bytes that it stores"
    CHANGES_RETURNED = "changes bytes that it returns"


class FaultyStore:
    """A server in a thread. Its buckets are in memory."""

    def __init__(self, seed: int) -> None:
        self._store = DomainDispatcherApplication(create_backend_app)
        self._random = random.Random(seed)
        self._fault: Fault | None = None
        self._share = 0.0
        self._healthy = threading.Event()
        self._healthy.set()
        self._lock = threading.Lock()
        self.disturbed = 0
        """Requests that failed, or whose bytes were changed."""
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
        """For the block, this share of the requests fails."""
        self._fault, self._share, self.disturbed = fault, share, 0
        self._healthy.clear()
        try:
            yield
        finally:
            self._fault = None
            self._healthy.set()

    def _answer(self, environment: Environment, respond: StartResponse) -> Iterable[bytes]:
        fault = self._fault_of(environment)
        if fault is None:
            found: Iterable[bytes] = self._store(environment, respond)
            return found
        self.disturbed += 1
        if fault is Fault.REFUSES:
            _body(environment)
            return self._refuse(respond)
        if fault is Fault.STALLS:
            self._healthy.wait(MAX_STALL_SECONDS)
        if fault is Fault.CHANGES_SENT:
            environment["wsgi.input"] = io.BytesIO(_changed(_body(environment)))
        returned = b"".join(self._store(environment, respond))
        return [_changed(returned) if fault is Fault.CHANGES_RETURNED else returned]

    def _fault_of(self, environment: Environment) -> Fault | None:
        """The fault that this request meets."""
        with self._lock:
            fault = self._fault
            is_met = self._random.random() < self._share
        changes = {Fault.CHANGES_SENT: "PUT", Fault.CHANGES_RETURNED: "GET"}
        is_other = fault in changes and environment["REQUEST_METHOD"] != changes[fault]
        return fault if is_met and not is_other else None

    def _refuse(self, respond: StartResponse) -> Iterable[bytes]:
        status, code = self._random.choice(
            (("503 Slow Down", "SlowDown"), ("500 Internal Server Error", "InternalError"))
        )
        body = (
            f"<Error><Code>{code}</Code><Message>Please reduce your request rate.</Message></Error>".encode()
        )
        respond(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body]


def _body(environment: Environment) -> bytes:
    body: bytes = environment["wsgi.input"].read(int(environment.get("CONTENT_LENGTH") or 0))
    return body


def _changed(content: bytes) -> bytes:
    """``content`` with one bit flipped in its middle."""
    if not content:
        return content
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
