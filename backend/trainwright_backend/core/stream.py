"""Live streams (server-sent events): what stands in the database, as it comes.

A stream reads rows; a wake-up only says that reading is worth while now. Lost wake-ups cost a second at most, because
every stream also polls once a second; those of other processes are `listen`'s. No session is held while a stream waits.
"""

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from trainwright_backend.core.db import Write

POLL_SECONDS = 1.0
HEARTBEAT_SECONDS = 15.0
RIGHTS_SECONDS = 3.0
"""How often a stream asks whether its reader may still read: sooner than the five seconds that are promised."""


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


class News(NamedTuple):
    """What a stream finds when it reads."""

    events: Sequence[ServerEvent] = ()
    ended: bool = False
    """Nothing more will come."""

    more: bool = False
    """There is more to read now."""


class Topics:
    """Wake-ups within this process. Publishing is safe from any thread."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = defaultdict(set)
        self._listeners: dict[str, Callable[[], None]] = {}
        self._lock = threading.Lock()

    def listen(self, topic: str, callback: Callable[[], None]) -> None:
        """Call ``callback``, which must be quick, at every `publish` of ``topic``; a topic has one listener."""
        self._listeners[topic] = callback

    def publish(self, topic: str) -> None:
        """Wake everybody who waits for ``topic`` now."""
        with self._lock:
            waiting = list(self._waiting.get(topic, ()))
        if topic in self._listeners:
            self._listeners[topic]()
        for loop, woken in waiting:
            with suppress(RuntimeError):  # its loop was closed meanwhile
                loop.call_soon_threadsafe(woken.set)

    @contextmanager
    def subscribed(self, topic: str) -> Iterator[asyncio.Event]:
        """An event that every `publish` of ``topic`` sets while the block runs, in this event loop."""
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiting[topic].add(waiter)
        try:
            yield waiter[1]
        finally:
            with self._lock:
                left = self._waiting[topic]
                left.discard(waiter)
                if not left:
                    del self._waiting[topic]

    def publish_all(self) -> None:
        """Wake everybody: wake-ups may have been lost."""
        with self._lock:
            topics = [*self._waiting, *self._listeners]
        for topic in topics:
            self.publish(topic)


def publish_after_commit(session: Write, topic: str) -> None:
    """Wake this process's streams of ``topic`` once ``session`` is committed."""
    topics = session.info["topics"]
    assert isinstance(topics, Topics)
    session.after_commit(lambda: topics.publish(topic))


class EventStream(StreamingResponse):
    """A response of server-sent events."""

    media_type = "text/event-stream"


def follow(
    topics: Topics,
    topic: str,
    read: Callable[[], News],
    permitted: Callable[[], bool],
) -> EventStream:
    """A stream of what ``read`` finds, for as long as its reader may read it.

    Args:
        topic: its `Topics.publish` makes the stream read at once.
        read: called in a thread, again and again; opens and closes its own session, and remembers where it stands.
        permitted: called in a thread now and then; False ends the stream.
    """
    return EventStream(
        _events(topics, topic, read, permitted),
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _events(
    topics: Topics,
    topic: str,
    read: Callable[[], News],
    permitted: Callable[[], bool],
) -> AsyncIterator[bytes]:
    yield b": open\n\n"
    last_sent = last_permitted = time.monotonic()
    with topics.subscribed(topic) as woken:
        while True:
            if time.monotonic() - last_permitted >= RIGHTS_SECONDS:
                if not await run_in_threadpool(permitted):
                    return
                last_permitted = time.monotonic()
            woken.clear()  # before reading: what is published from here on is read in the next round
            news = await run_in_threadpool(read)
            if news.events:
                yield b"".join(event.encode() for event in news.events)
                last_sent = time.monotonic()
            if news.ended:
                return
            if time.monotonic() - last_sent >= HEARTBEAT_SECONDS:
                yield b": heartbeat\n\n"
                last_sent = time.monotonic()
            if not news.more:
                with suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), POLL_SECONDS)
