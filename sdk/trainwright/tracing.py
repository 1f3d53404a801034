"""Traces of requests, tasks and attempts, by OpenTelemetry.

A process sends its spans if ``OTEL_EXPORTER_OTLP_ENDPOINT`` names a collector. OpenTelemetry itself reads this variable and
the others of its specification: headers, timeout, sampler, resource attributes. Without it nothing of OpenTelemetry is
imported, and all functions here do nothing.

A trace crosses processes as the value of W3C's header ``traceparent``: from a request to the message of its task, and with a
run's row and its claim to the nodes that train it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry import trace
    from opentelemetry.context import Context

ENDPOINT_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACEPARENT = "traceparent"
_LAST_SPANS_MS = 2_000
"""How long a process that ends waits for the collector to take its last spans."""

log = logging.getLogger(__name__)

Attribute = str | int | float | bool

_tracer: trace.Tracer | None = None


class Span:
    """What is being traced; nothing if this process sends no spans."""

    def __init__(self, traced: trace.Span | None = None) -> None:
        self._traced = traced

    def rename(self, name: str) -> None:
        """Replace its name, if it is known only at the end."""
        if self._traced is not None:
            self._traced.update_name(name)

    def describe(self, attributes: Mapping[str, Attribute]) -> None:
        """Add attributes."""
        if self._traced is not None:
            self._traced.set_attributes(attributes)

    def fail(self, reason: str) -> None:
        """Mark it as failed."""
        if self._traced is not None:
            from opentelemetry.trace import Status, StatusCode

            self._traced.set_status(Status(StatusCode.ERROR, reason))


def start_tracing(service: str) -> Callable[[], None]:
    """Send the spans of this process under the name ``service``, if a collector is set. Returns a function that sends the last
    ones and ends it.

    If OpenTelemetry is not installed, a line in the log says so: the variable may be set for all programs of a machine.
    """
    global _tracer
    if not os.environ.get(ENDPOINT_VARIABLE):
        return lambda: None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        log.warning(
            "%s is set, but no traces are sent: the package %s is not installed. "
            "Install it with pip install 'trainwright[tracing]'.",
            ENDPOINT_VARIABLE,
            error.name,
        )
        return lambda: None
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    _tracer = provider.get_tracer("trainwright")

    def stop() -> None:
        global _tracer
        _tracer = None
        provider.force_flush(_LAST_SPANS_MS)
        provider.shutdown()

    return stop


@contextmanager
def span(
    name: str, parent: str | None = None, attributes: Mapping[str, Attribute] | None = None
) -> Iterator[Span]:
    """Trace the block.

    Args:
        parent: the ``traceparent`` of the span that it is part of; None for the current one.
    """
    if _tracer is None:
        yield Span()
        return
    with _tracer.start_as_current_span(name, context=_context(parent)) as traced:
        current = Span(traced)
        current.describe(attributes or {})
        yield current


def current_traceparent() -> str | None:
    """The ``traceparent`` of the current span, for another process; None outside of all spans."""
    if _tracer is None:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers.get(TRACEPARENT)


def _context(parent: str | None) -> Context | None:
    if parent is None:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({TRACEPARENT: parent})
