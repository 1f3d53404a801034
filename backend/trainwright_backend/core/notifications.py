"""Notifications between API processes that share a PostgreSQL, by LISTEN and NOTIFY.

A notification is part of a transaction: it is delivered if and when the transaction commits. After a lost connection, all
streams of the process are woken, since notifications may have been missed; streams also poll. With SQLite there is only
one process, which needs no notifications through the database.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import uuid4

import psycopg
import structlog
from psycopg.conninfo import make_conninfo
from sqlalchemy import make_url, text

from trainwright_backend.core.db import KEEPALIVE_OPTIONS, Database, Write
from trainwright_backend.core.sse import Topics, publish_after_commit

CHANNEL = "trainwright_notifications"
MAX_PAUSE_SECONDS = 5.0
_PROCESS_ID = uuid4().hex
"""Marks the notifications of this process, which has woken its own streams already."""

log = structlog.get_logger()


def notify(session: Write, topic: str) -> None:
    """Wake the streams of ``topic`` in all processes after ``session`` commits."""
    notified = session.info.setdefault("notified", set())
    if topic in notified:
        return
    notified.add(topic)
    publish_after_commit(session, topic)
    if session.get_bind().dialect.name == "postgresql":
        session.execute(
            text("SELECT pg_notify(:channel, :payload)"),
            {"channel": CHANNEL, "payload": f"{_PROCESS_ID} {topic}"},
        )


@asynccontextmanager
async def listen_for_notifications(database: Database, topics: Topics) -> AsyncIterator[None]:
    """Publish the notifications of other processes to ``topics`` while the block runs."""
    if database.is_sqlite:
        yield
        return
    task = asyncio.create_task(_listen_forever(database.url, topics))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _listen_forever(url: str, topics: Topics) -> None:
    pause_seconds = 0.1
    while True:
        try:
            async with await _connect(url) as connection:
                await connection.execute(f"LISTEN {CHANNEL}")
                topics.publish_all()
                pause_seconds = 0.1
                async for notification in connection.notifies():
                    sender, _, topic = notification.payload.partition(" ")
                    if not is_own(sender):
                        topics.publish(topic)
        except (psycopg.Error, OSError) as error:
            log.warning(
                "lost notifications of other processes", error=str(error), retry_in_seconds=pause_seconds
            )
        await asyncio.sleep(pause_seconds)
        pause_seconds = min(2 * pause_seconds, MAX_PAUSE_SECONDS)


async def _connect(url: str) -> psycopg.AsyncConnection:
    plain = make_url(url).set(drivername="postgresql")
    options = {name: value for name, value in KEEPALIVE_OPTIONS.items() if name not in plain.query}
    address = make_conninfo(plain.render_as_string(hide_password=False), **options)
    return await psycopg.AsyncConnection.connect(address, autocommit=True)


def is_own(sender: str) -> bool:
    """Whether ``sender`` is this process."""
    return sender == _PROCESS_ID
