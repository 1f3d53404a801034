"""Live streams (server-sent events) of what is in the database.

A stream reads rows. A wake-up only says that there may be new rows. A lost wake-up causes a delay of at most three seconds,
because every stream also polls; more often, hundreds of idle streams would keep the process busy. `notifications` delivers the
wake-ups of other processes. A waiting stream has no open session.
"""

import asyncio
import threading
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from anyio import CapacityLimiter, to_thread
from fastapi.responses import StreamingResponse

from trainwright_backend.core.db import Write
from trainwright_backend.core.errors import AppError

POLL_SECONDS = 3.0
HEARTBEAT_SECONDS = 15.0
STREAM_THREADS = 4
MAX_STREAMS = 100
"""Streams that one person can have open: a page has two or three."""
RIGHTS_SECONDS = 3.0
"""How often a stream checks that its reader may still read; shorter than the documented five seconds."""


@dataclass(frozen=True)
class ServerEvent:
    """One event of a stream."""

    data: str
    """JSON, one line."""

    event: str | None = None
    id: str | None = None

    def encode(self) -> bytes:
        lines = [f"id: {self.id}"] if self.id is not None else []
        lines += [f"event: {self.event}"] if self.event is not None else []
        lines += [f"data: {part}" for part in self.data.split("\n")]
        return ("\n".join(lines) + "\n\n").encode()


class StreamUpdate(NamedTuple):
    """The result of one read of a stream."""

    events: Sequence[ServerEvent] = ()
    ended: bool = False
    """The stream has ended."""

    more: bool = False
    """More events can be read now."""


class Topics:
    """Wake-ups within this process. Publishing is safe from any thread."""

    def __init__(self) -> None:
        self.waiting: dict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = defaultdict(set)
        """The subscriptions inside `subscribed`, by topic."""
        self._listeners: dict[str, Callable[[], None]] = {}
        self._lock = threading.Lock()
        self.threads = CapacityLimiter(STREAM_THREADS)
        """Streams read in separate threads, so many streams delay each other but no other requests."""
        self.open_streams: Counter[UUID] = Counter()
        """Number of open streams, by viewer."""

    def listen(self, topic: str, callback: Callable[[], None]) -> None:
        """Call ``callback``, which must be quick, on each `publish` of ``topic``; a topic has one listener."""
        self._listeners[topic] = callback

    def publish(self, topic: str) -> None:
        """Wake all that wait for ``topic``."""
        with self._lock:
            waiting = list(self.waiting.get(topic, ()))
        if topic in self._listeners:
            self._listeners[topic]()
        for loop, woken in waiting:
            with suppress(RuntimeError):  # its loop was closed in the meantime
                loop.call_soon_threadsafe(woken.set)

    @contextmanager
    def subscribed(self, topic: str) -> Iterator[asyncio.Event]:
        """An event of this event loop that every `publish` of ``topic`` sets while the block runs."""
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self.waiting[topic].add(waiter)
        try:
            yield waiter[1]
        finally:
            with self._lock:
                left = self.waiting[topic]
                left.discard(waiter)
                if not left:
                    del self.waiting[topic]

    def publish_all(self) -> None:
        """Wake all waiters, because wake-ups may have been lost."""
        with self._lock:
            topics = [*self.waiting, *self._listeners]
        for topic in topics:
            self.publish(topic)


def publish_after_commit(session: Write, topic: str) -> None:
    """Wake this process's streams of ``topic`` after ``session`` commits."""
    topics = session.info["topics"]
    assert isinstance(topics, Topics)
    session.after_commit(lambda: topics.publish(topic))


class EventStream(StreamingResponse):
    """A response of server-sent events."""

    media_type = "text/event-stream"


def stream_events(
    topics: Topics,
    topic: str,
    read: Callable[[], StreamUpdate],
    permitted: Callable[[], bool],
    viewer: UUID,
) -> EventStream:
    """A stream of the events that ``read`` returns, for as long as its reader may read it.

    Args:
        topic: publishing it makes the stream read at once.
        read: called repeatedly in a thread; opens and closes its own session, and keeps its position.
        permitted: called regularly in a thread; False ends the stream.
        viewer: the person who reads it.

    Raises:
        AppError: 429 ``too_many_streams``.
    """
    if topics.open_streams[viewer] >= MAX_STREAMS:
        detail = f"You have {MAX_STREAMS} live streams open. Close some pages or programs that follow runs."
        raise AppError("too_many_streams", 429, detail, headers={"Retry-After": "15"})
    return EventStream(
        _counted(topics, viewer, _events(topics, topic, read, permitted)),
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _counted(topics: Topics, viewer: UUID, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    topics.open_streams[viewer] += 1
    try:
        async for event in events:
            yield event
    finally:
        topics.open_streams[viewer] -= 1
        topics.open_streams += Counter()  # drops viewers without streams


async def _events(
    topics: Topics,
    topic: str,
    read: Callable[[], StreamUpdate],
    permitted: Callable[[], bool],
) -> AsyncIterator[bytes]:
    yield b": open\n\n"
    last_sent = last_permitted = time.monotonic()
    with topics.subscribed(topic) as woken:
        while True:
            if time.monotonic() - last_permitted >= RIGHTS_SECONDS:
                if not await to_thread.run_sync(permitted, limiter=topics.threads):
                    return
                last_permitted = time.monotonic()
            woken.clear()  # before reading: anything published from here on is read in the next iteration
            update = await to_thread.run_sync(read, limiter=topics.threads)
            if update.events:
                yield b"".join(event.encode() for event in update.events)
                last_sent = time.monotonic()
            if update.ended:
                return
            if time.monotonic() - last_sent >= HEARTBEAT_SECONDS:
                yield b": heartbeat\n\n"
                last_sent = time.monotonic()
            if not update.more:
                until_check = last_permitted + RIGHTS_SECONDS - time.monotonic()
                with suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), min(POLL_SECONDS, max(until_check, 0)))
