"""Live streams: what is read comes at once when published, within a second otherwise, and the stream ends."""

import asyncio
import threading
from collections.abc import Callable

import pytest
from starlette.responses import StreamingResponse

from trainwright_backend.core import stream
from trainwright_backend.core.stream import News, ServerEvent, Topics, follow


def test_an_event_is_spelled_as_the_protocol_wants() -> None:
    assert ServerEvent('{"a": 1}', event="points", id="2:30").encode() == (
        b'id: 2:30\nevent: points\ndata: {"a": 1}\n\n'
    )


def test_a_wake_up_from_a_thread_makes_a_stream_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "POLL_SECONDS", 60.0)
    topics = Topics()
    reads = iter([News(), News([ServerEvent("1")], ended=True)])

    def read() -> News:
        threading.Timer(0.05, topics.publish, ["runs"]).start()
        return next(reads)

    assert asyncio.run(gathered(topics, read)) == b": open\n\ndata: 1\n\n"


def test_what_is_published_while_a_stream_reads_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "POLL_SECONDS", 60.0)
    topics = Topics()
    reads = iter([News(), News([ServerEvent("1")], ended=True)])

    def read() -> News:
        topics.publish("runs")
        return next(reads)

    assert asyncio.run(gathered(topics, read)) == b": open\n\ndata: 1\n\n"


def test_without_a_wake_up_a_stream_reads_by_itself_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "POLL_SECONDS", 0.01)
    topics = Topics()
    reads = iter([News(), News(ended=True)])
    assert asyncio.run(gathered(topics, lambda: next(reads))) == b": open\n\n"
    assert topics._waiting == {}


def test_a_stream_that_has_more_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "POLL_SECONDS", 60.0)
    reads = iter([News([ServerEvent("1")], more=True), News([ServerEvent("2")], ended=True)])
    assert asyncio.run(gathered(Topics(), lambda: next(reads))) == b": open\n\ndata: 1\n\ndata: 2\n\n"


async def gathered(topics: Topics, read: Callable[[], News]) -> bytes:
    response = follow(topics, "runs", read, lambda: True)
    return b"".join([part async for part in response.body_iterator])  # type: ignore[misc]


def test_a_stream_sends_what_is_read_and_ends() -> None:
    found = [News([ServerEvent("1")]), News(), News([ServerEvent("2"), ServerEvent("3")], ended=True)]

    def read() -> News:
        return found.pop(0)

    async def gather() -> bytes:
        response: StreamingResponse = follow(Topics(), "runs", read, lambda: True)
        assert response.media_type == "text/event-stream"
        return b"".join([part async for part in response.body_iterator])  # type: ignore[misc]

    sent = asyncio.run(gather())
    assert sent == b": open\n\ndata: 1\n\ndata: 2\n\ndata: 3\n\n"


def test_a_quiet_stream_shows_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 0.0)
    reads = iter([News(), News(ended=True)])

    async def gather() -> bytes:
        response = follow(Topics(), "runs", lambda: next(reads), lambda: True)
        return b"".join([part async for part in response.body_iterator])  # type: ignore[misc]

    assert asyncio.run(gather()) == b": open\n\n: heartbeat\n\n"


def test_a_stream_ends_when_its_reader_may_not_read_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "RIGHTS_SECONDS", 0.0)
    rights = iter([True, True, False])

    async def gather() -> bytes:
        response = follow(Topics(), "runs", lambda: News([ServerEvent("1")]), lambda: next(rights))
        return b"".join([part async for part in response.body_iterator])  # type: ignore[misc]

    assert asyncio.run(gather()) == b": open\n\n" + 2 * b"data: 1\n\n"
