"""Wake-ups between API processes on one PostgreSQL: each hears what the others commit, by LISTEN and NOTIFY.

A notice is part of the transaction that it tells of, so it comes when that is committed and never otherwise. Who
misses one (the connection was gone) is woken when it is back, and polls in any case. SQLite has one process, whose
wake-ups need no database.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import uuid4

import psycopg
import structlog
from sqlalchemy import make_url, text

from trainwright_backend.core.db import NOTICES_A_LOST_HOST, Database, Write
from trainwright_backend.core.stream import Topics, publish_after_commit

CHANNEL = "trainwright_wake"
LONGEST_PAUSE_SECONDS = 5.0
_OURSELVES = uuid4().hex
"""Notices of this process, which has woken its own streams already."""

log = structlog.get_logger()


def announce(session: Write, topic: str) -> None:
    """Wake the streams of ``topic``, in all processes, once ``session`` is committed."""
    announced = session.info.setdefault("announced", set())
    if topic in announced:
        return
    announced.add(topic)
    publish_after_commit(session, topic)
    if session.get_bind().dialect.name == "postgresql":
        session.execute(
            text("SELECT pg_notify(:channel, :said)"), {"channel": CHANNEL, "said": f"{_OURSELVES} {topic}"}
        )


@asynccontextmanager
async def listening(database: Database, topics: Topics) -> AsyncIterator[None]:
    """Publish in ``topics`` what other processes notify, for as long as the block runs."""
    if database.is_sqlite:
        yield
        return
    task = asyncio.create_task(_listen_again(database.url, topics))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _listen_again(url: str, topics: Topics) -> None:
    pause_seconds = 0.1
    while True:
        try:
            async with await _connected(url) as connection:
                await connection.execute(f"LISTEN {CHANNEL}")
                topics.publish_all()
                pause_seconds = 0.1
                async for notice in connection.notifies():
                    sender, _, topic = notice.payload.partition(" ")
                    if not _is_ours(sender):
                        topics.publish(topic)
        except (psycopg.Error, OSError) as error:
            log.warning("does not hear other processes", error=str(error), again_in_seconds=pause_seconds)
        await asyncio.sleep(pause_seconds)
        pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)


async def _connected(url: str) -> psycopg.AsyncConnection:
    plain = make_url(url).set(drivername="postgresql")
    noticing = {name: value for name, value in NOTICES_A_LOST_HOST.items() if name not in plain.query}
    address = plain.render_as_string(hide_password=False)
    return await psycopg.AsyncConnection.connect(address, autocommit=True, **noticing)  # type: ignore[arg-type]


def _is_ours(sender: str) -> bool:
    return sender == _OURSELVES
