"""A collector of traces for tests: it takes spans over OTLP's HTTP protocol, as a real one does, and keeps them."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ARRIVAL_SECONDS = 20.0


@dataclass(frozen=True)
class CollectedSpan:
    """A span as it arrived; ids are in hex."""

    name: str
    service: str
    trace: str
    span: str
    parent: str
    """Empty for the first span of a trace."""

    attributes: dict[str, str | int]
    failed: bool


@dataclass
class Collector:
    """What was sent, in the order of arrival."""

    spans: list[CollectedSpan] = field(default_factory=list)

    def named(self, name: str) -> list[CollectedSpan]:
        return [span for span in self.spans if span.name == name]

    def awaited(self, name: str, span: str | None = None) -> CollectedSpan:
        """The first span with this name, and this id if one is given, as soon as it has arrived."""
        until = time.monotonic() + ARRIVAL_SECONDS
        while True:
            for found in self.named(name):
                if span in (None, found.span):
                    return found
            assert time.monotonic() < until, f"no span {name}; there are {[each.name for each in self.spans]}"
            time.sleep(0.02)

    def take(self, body: bytes) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = _attributes(resource.resource.attributes)["service.name"]
            for each in (span for scope in resource.scope_spans for span in scope.spans):
                found = CollectedSpan(
                    each.name,
                    str(service),
                    each.trace_id.hex(),
                    each.span_id.hex(),
                    each.parent_span_id.hex(),
                    _attributes(each.attributes),
                    each.status.code == each.status.STATUS_CODE_ERROR,
                )
                self.spans.append(found)


def _attributes(given: Iterable[Any]) -> dict[str, str | int]:
    return {item.key: item.value.string_value or item.value.int_value for item in given}


@contextmanager
def running_collector() -> Iterator[tuple[Collector, str]]:
    """A collector, and its address."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.take(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200)  # an empty response accepts all spans
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
