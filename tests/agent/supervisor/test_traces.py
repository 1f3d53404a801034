"""The spans of a node belong to the trace in which its run was submitted; its trainer never sees where they are sent."""

from pathlib import Path

import pytest

from tests.agent.api import ScriptedApi
from tests.agent.machine import Machine
from tests.trace_collector import Collector

SUBMISSION = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.slow(target="faults")
def test_an_attempt_is_a_span_of_the_submission_s_trace(
    collector: Collector, api: ScriptedApi, machine: Machine
) -> None:
    run = api.place(steps=3)
    trace, submission = SUBMISSION
    run.traceparent = f"00-{trace}-{submission}-01"
    machine.start_agent()
    pids = machine.rank_pids()
    environments = [Path(f"/proc/{pid}/environ").read_bytes() for pid in pids]
    attempt = collector.awaited("attempt")
    assert (attempt.trace, attempt.parent, attempt.service) == (trace, submission, "trainwright-agent")
    assert attempt.attributes["trainwright.end_code"] == "finished" and not attempt.failed
    parts = [span.name for span in collector.spans if span.parent == attempt.span]
    assert parts == ["fetch", "train", "export"]
    assert environments and not [each for each in environments if b"OTEL_" in each]
