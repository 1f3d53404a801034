"""Live streams: what is read comes at once when published, within a second otherwise, and the stream ends."""

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence

import pytest
from starlette.responses import StreamingResponse

from trainwright_backend.core import stream
from trainwright_backend.core.stream import ServerEvent, Topics, follow


def test_an_event_is_spelled_as_the_protocol_wants() -> None:
    assert ServerEvent('{"a": 1}', event="points", id="2:30").encode() == (
        b'id: 2:30\nevent: points\ndata: {"a": 1}\n\n'
    )


def test_a_wake_up_from_a_thread_ends_the_wait() -> None:
    async def wait() -> tuple[bool, float]:
        topics = Topics()
        threading.Timer(0.05, topics.publish, ["runs"]).start()
        begun = time.monotonic()
        return await topics.wait("runs", timeout=5), time.monotonic() - begun

    woken, seconds = asyncio.run(wait())
    assert woken and seconds < 2


def test_without_a_wake_up_the_wait_ends_by_itself_and_leaves_nothing() -> None:
    topics = Topics()
    assert asyncio.run(topics.wait("runs", timeout=0.01)) is False
    assert topics._waiting == {}


def test_a_stream_sends_what_is_read_and_ends() -> None:
    found = [([ServerEvent("1")], False), ([], False), ([ServerEvent("2"), ServerEvent("3")], True)]

    def read() -> tuple[Sequence[ServerEvent], bool]:
        return found.pop(0)

    async def gather() -> bytes:
        response: StreamingResponse = follow(Topics(), "runs", read, lambda: True)
        assert response.media_type == "text/event-stream"
        return b"".join([part async for part in response.body_iterator])  # type: ignore[misc]

    sent = asyncio.run(gather())
    assert sent == b": open\n\ndata: 1\n\ndata: 2\n\ndata: 3\n\n"


def test_a_quiet_stream_shows_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 0.0)
    reads: Iterator[tuple[list[ServerEvent], bool]] = iter([([], False), ([], True)])

    async def gather() -> bytes:
        response = follow(Topics(), "runs", lambda: next(reads), lambda: True)
        return b"".join([part async for part in response.body_iterator])  # type: ignore[misc]

    assert asyncio.run(gather()) == b": open\n\n: heartbeat\n\n"


def test_a_stream_ends_when_its_reader_may_not_read_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "RIGHTS_SECONDS", 0.0)
    rights = iter([True, True, False])

    async def gather() -> bytes:
        response = follow(Topics(), "runs", lambda: ([ServerEvent("1")], False), lambda: next(rights))
        return b"".join([part async for part in response.body_iterator])  # type: ignore[misc]

    assert asyncio.run(gather()) == b": open\n\n" + 2 * b"data: 1\n\n"
