"""Envelopes ignore unknown fields; timers that could not keep their guarantee are refused."""

import pytest
from pydantic import ValidationError

from trainwright.contracts.agent_protocol import MetricBlock, Timers
from trainwright.contracts.events import TRAINER_EVENT, Step
from trainwright.contracts.token_shards import TokenType
from trainwright.transport.sse import Message, MessageParser


def test_a_newer_writers_line_is_read_by_an_older_reader() -> None:
    line = '{"type":"step","time":"2026-11-01T00:00:00Z","step":3,"values":{"loss":1.5},"new":1}'
    event = TRAINER_EVENT.validate_json(line)
    assert isinstance(event, Step)
    assert event.values == {"loss": 1.5}


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(ValidationError, match="2 values, but there are 1 steps"):
        MetricBlock(steps=[1], series={"loss": [1.0, 2.0]})


@pytest.mark.parametrize(
    "timers",
    [
        {"margin_seconds": 24.9},  # grace 10 + slack 15
        {"lease_seconds": 60.0},  # margin 45 + two renewals of 10
        {"lease_seconds": 6.0, "margin_seconds": 1.0, "grace_seconds": 0.5, "renewal_seconds": 0.5},
    ],
)
def test_timers_that_leave_no_time_to_kill_are_refused(timers: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match="must"):
        Timers.model_validate(timers)


def test_the_scaled_timers_of_the_fault_suite_are_accepted() -> None:
    timers = Timers(
        heartbeat_seconds=0.5, renewal_seconds=0.5, lease_seconds=6.0, margin_seconds=1.5, grace_seconds=0.5
    )
    assert timers.scale == pytest.approx(1 / 20)


@pytest.mark.parametrize(
    ("vocabulary", "expected"), [(257, "uint16"), (65_536, "uint16"), (65_537, "uint32")]
)
def test_tokens_take_two_bytes_while_the_vocabulary_fits(vocabulary: int, expected: str) -> None:
    assert TokenType.for_vocabulary(vocabulary) == expected


def test_server_sent_events_keep_ids_and_drop_truncated_events() -> None:
    lines = ["id: 1:20", "event: points", "data: {", "data: }", "", ": ping", "", "data: a", "", "data: cut"]
    parser = MessageParser()
    assert [message for line in lines if (message := parser.add(line)) is not None] == [
        Message("points", "{\n}", "1:20"),
        Message("message", "a", "1:20"),
    ]
