"""Live streams deliver published events immediately and others within a second, and they end."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from uuid import uuid4

import pytest
from starlette.responses import StreamingResponse

from trainwright_backend.core import sse
from trainwright_backend.core.errors import AppError
from trainwright_backend.core.sse import ServerEvent, StreamUpdate, Topics, stream_events

VIEWER = uuid4()


def test_an_event_has_the_protocol_s_format() -> None:
    assert ServerEvent('{"a": 1}', event="points", id="2:30").encode() == (
        b'id: 2:30\nevent: points\ndata: {"a": 1}\n\n'
    )


def test_publishing_from_a_thread_makes_a_stream_read_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "POLL_SECONDS", 60.0)
    monkeypatch.setattr(sse, "RIGHTS_SECONDS", 60.0)
    topics = Topics()
    reads = iter([StreamUpdate(), StreamUpdate([ServerEvent("1")], ended=True)])

    def read() -> StreamUpdate:
        threading.Timer(0.05, topics.publish, ["runs"]).start()
        return next(reads)

    assert asyncio.run(gathered(topics, read)) == b": open\n\ndata: 1\n\n"


def test_a_viewer_has_a_limit_of_open_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_STREAMS", 1)
    topics = Topics()

    async def open_two() -> None:
        first = stream_events(topics, "runs", StreamUpdate, lambda: True, VIEWER).body_iterator
        assert isinstance(first, AsyncGenerator)
        await anext(first)
        with pytest.raises(AppError, match="1 live streams open"):
            stream_events(topics, "runs", StreamUpdate, lambda: True, VIEWER)
        stream_events(topics, "runs", StreamUpdate, lambda: True, uuid4())
        await first.aclose()  # as the server does when the client disconnects
        stream_events(topics, "runs", StreamUpdate, lambda: True, VIEWER)

    asyncio.run(open_two())
    assert not topics.open_streams


def test_a_publication_during_a_read_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "POLL_SECONDS", 60.0)
    monkeypatch.setattr(sse, "RIGHTS_SECONDS", 60.0)
    topics = Topics()
    reads = iter([StreamUpdate(), StreamUpdate([ServerEvent("1")], ended=True)])

    def read() -> StreamUpdate:
        topics.publish("runs")
        return next(reads)

    assert asyncio.run(gathered(topics, read)) == b": open\n\ndata: 1\n\n"


def test_without_a_wake_up_a_stream_polls_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sse, "POLL_SECONDS", 0.01)
    topics = Topics()
    reads = iter([StreamUpdate(), StreamUpdate(ended=True)])
    assert asyncio.run(gathered(topics, lambda: next(reads))) == b": open\n\n"
    assert topics.waiting == {}


def test_a_stream_with_more_events_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "POLL_SECONDS", 60.0)
    monkeypatch.setattr(sse, "RIGHTS_SECONDS", 60.0)
    reads = iter([StreamUpdate([ServerEvent("1")], more=True), StreamUpdate([ServerEvent("2")], ended=True)])
    assert asyncio.run(gathered(Topics(), lambda: next(reads))) == b": open\n\ndata: 1\n\ndata: 2\n\n"


async def body_of(response: StreamingResponse) -> bytes:
    parts = [part async for part in response.body_iterator]
    return b"".join(part.encode() if isinstance(part, str) else bytes(part) for part in parts)


async def gathered(topics: Topics, read: Callable[[], StreamUpdate]) -> bytes:
    response = stream_events(topics, "runs", read, lambda: True, VIEWER)
    return await body_of(response)


def test_a_stream_sends_what_is_read_and_ends() -> None:
    found = [
        StreamUpdate([ServerEvent("1")]),
        StreamUpdate(),
        StreamUpdate([ServerEvent("2"), ServerEvent("3")], ended=True),
    ]

    def read() -> StreamUpdate:
        return found.pop(0)

    async def gather() -> bytes:
        response: StreamingResponse = stream_events(Topics(), "runs", read, lambda: True, VIEWER)
        assert response.media_type == "text/event-stream"
        return await body_of(response)

    sent = asyncio.run(gather())
    assert sent == b": open\n\ndata: 1\n\ndata: 2\n\ndata: 3\n\n"


def test_a_quiet_stream_sends_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT_SECONDS", 0.0)
    reads = iter([StreamUpdate(), StreamUpdate(ended=True)])

    async def gather() -> bytes:
        response = stream_events(Topics(), "runs", lambda: next(reads), lambda: True, VIEWER)
        return await body_of(response)

    assert asyncio.run(gather()) == b": open\n\n: heartbeat\n\n"


def test_a_stream_ends_when_its_reader_loses_the_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "RIGHTS_SECONDS", 0.0)
    rights = iter([True, True, False])

    async def gather() -> bytes:
        response = stream_events(
            Topics(), "runs", lambda: StreamUpdate([ServerEvent("1")]), lambda: next(rights), VIEWER
        )
        return await body_of(response)

    assert asyncio.run(gather()) == b": open\n\n" + 2 * b"data: 1\n\n"
