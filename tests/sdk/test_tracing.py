"""Spans reach a collector as one trace across processes; without a collector nothing is imported or sent."""

import logging
import subprocess
import sys

import pytest

from tests.trace_collector import Collector
from trainwright.tracing import ENDPOINT_VARIABLE, current_traceparent, span, start_tracing


def test_spans_of_two_processes_are_one_trace(collector: Collector) -> None:
    stop = start_tracing("first")
    with span("request", attributes={"http.route": "/runs"}) as request:
        request.rename("POST /runs")
        carried = current_traceparent()
    assert current_traceparent() is None
    stop()

    stop = start_tracing("second")
    with span("attempt", carried, {"run": "run_1", "attempt": 2}), span("train") as train:
        train.fail("rank 3 was killed")
    stop()

    request_span, train_span, attempt_span = collector.spans
    assert (request_span.name, request_span.service, request_span.parent) == ("POST /runs", "first", "")
    assert request_span.attributes == {"http.route": "/runs"}
    assert (attempt_span.parent, attempt_span.service) == (request_span.span, "second")
    assert attempt_span.attributes == {"run": "run_1", "attempt": 2}
    assert train_span.parent == attempt_span.span
    assert len({each.trace for each in collector.spans}) == 1
    assert [each.failed for each in collector.spans] == [False, True, False]


def test_a_parent_that_is_no_trace_begins_a_new_one(collector: Collector) -> None:
    stop = start_tracing("api")
    with span("request", "invented"):
        pass
    stop()
    assert [each.parent for each in collector.spans] == [""]


def test_an_error_marks_its_span(collector: Collector) -> None:
    stop = start_tracing("api")
    with pytest.raises(ValueError), span("request"):
        raise ValueError("wrong")
    stop()
    assert [each.failed for each in collector.spans] == [True]


def test_without_a_collector_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENDPOINT_VARIABLE, raising=False)
    lines = [
        "import sys",
        "from trainwright.tracing import current_traceparent, span, start_tracing",
        "stop = start_tracing('api')",
        "with span('request', attributes={'http.route': '/'}) as current:",
        "    current.rename('other'), current.describe({'x': 1}), current.fail('reason')",
        "    assert current_traceparent() is None",
        "stop()",
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)


def test_a_missing_package_is_named_in_the_log(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with caplog.at_level(logging.WARNING):
        stop = start_tracing("api")
    with span("request"):
        assert current_traceparent() is None
    stop()
    assert "pip install 'trainwright[tracing]'" in caplog.text and ENDPOINT_VARIABLE in caplog.text
    assert not collector.spans
