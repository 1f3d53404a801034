"""Two API processes on one PostgreSQL: a commit of one wakes the streams of the other."""

import asyncio
import subprocess
import sys
import time
from statistics import median

import psycopg
import pytest

from trainwright_backend.core import notifications
from trainwright_backend.core.db import Database
from trainwright_backend.core.notifications import listen_for_notifications, notify
from trainwright_backend.core.sse import Topics

OTHER_PROCESS = """
import sys
from trainwright_backend.core.db import Database
from trainwright_backend.core.notifications import notify
from trainwright_backend.core.sse import Topics

database = Database(sys.argv[1], {"topics": Topics()})
for line in sys.stdin:
    with database.write() as session:
        notify(session, line.strip())
        notify(session, line.strip())
"""


@pytest.fixture
def postgres(fresh_postgres_database: str) -> str:
    return fresh_postgres_database


async def _received(woken: asyncio.Event) -> float:
    started = time.monotonic()
    await asyncio.wait_for(woken.wait(), 30)
    woken.clear()
    return time.monotonic() - started


def test_a_commit_wakes_the_streams_of_another_process(postgres: str) -> None:
    """Nothing polls here, so every wake-up comes from a notification."""

    async def wait_for_notifications() -> list[float]:
        topics, database = Topics(), Database(postgres)
        other = subprocess.Popen(
            [sys.executable, "-c", OTHER_PROCESS, postgres], stdin=subprocess.PIPE, text=True, bufsize=1
        )
        assert other.stdin is not None
        seconds = []
        async with listen_for_notifications(database, topics):
            with topics.subscribed("run:1") as woken, topics.subscribed("run:2") as never:
                await _received(woken)  # the connection is established
                never.clear()
                for _ in range(20):
                    other.stdin.write("run:1\n")
                    seconds.append(await _received(woken))
                assert not never.is_set()
        other.stdin.close()
        other.wait()
        database.dispose()
        return seconds[1:]  # without the start of the process

    print(f"\nreceived after {median(asyncio.run(wait_for_notifications())) * 1_000:.1f} ms (median)")


def test_rolled_back_notifications_are_not_delivered_and_connections_recover(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait_for_notifications() -> None:
        topics, database = Topics(), Database(postgres, {"topics": Topics()})
        async with listen_for_notifications(database, topics):
            with topics.subscribed("run:1") as woken:
                await _received(woken)
                monkeypatch.setattr(notifications, "is_own", lambda sender: False)
                await asyncio.to_thread(_roll_back, database)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(woken.wait(), 0.3)
                _kill_listeners(postgres)
                await _received(
                    woken
                )  # after a reconnect all are woken, as notifications may have been missed
                await asyncio.to_thread(_announce, database)
                await _received(woken)
        database.dispose()

    asyncio.run(wait_for_notifications())


def _announce(database: Database) -> None:
    with database.write() as session:
        notify(session, "run:1")


def _roll_back(database: Database) -> None:
    with pytest.raises(ZeroDivisionError), database.write() as session:
        notify(session, "run:1")
        raise ZeroDivisionError


def _kill_listeners(url: str) -> None:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE query LIKE 'LISTEN%' AND datname = current_database()"
        )
