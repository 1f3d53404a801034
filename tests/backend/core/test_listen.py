"""Two API processes on one PostgreSQL: what is committed by one wakes the streams of the other."""

import asyncio
import subprocess
import sys
import time
from statistics import median

import psycopg
import pytest

from trainwright_backend.core import listen
from trainwright_backend.core.db import Database
from trainwright_backend.core.listen import announce, listening
from trainwright_backend.core.stream import Topics

OTHER_PROCESS = """
import sys
from trainwright_backend.core.db import Database
from trainwright_backend.core.listen import announce
from trainwright_backend.core.stream import Topics

database = Database(sys.argv[1], {"topics": Topics()})
for line in sys.stdin:
    with database.write() as session:
        announce(session, line.strip())
        announce(session, line.strip())
"""


@pytest.fixture
def postgres(fresh_postgres_database: str) -> str:
    return fresh_postgres_database


async def _heard(woken: asyncio.Event) -> float:
    begun = time.monotonic()
    await asyncio.wait_for(woken.wait(), 30)
    woken.clear()
    return time.monotonic() - begun


def test_a_commit_wakes_the_streams_of_another_process(postgres: str) -> None:
    """Nothing polls here: what is heard came by the notice."""

    async def follow() -> list[float]:
        topics, database = Topics(), Database(postgres)
        other = subprocess.Popen(
            [sys.executable, "-c", OTHER_PROCESS, postgres], stdin=subprocess.PIPE, text=True, bufsize=1
        )
        assert other.stdin is not None
        seconds = []
        async with listening(database, topics):
            with topics.subscribed("run:1") as woken, topics.subscribed("run:2") as never:
                await _heard(woken)  # the connection stands
                never.clear()
                for _ in range(20):
                    other.stdin.write("run:1\n")
                    seconds.append(await _heard(woken))
                assert not never.is_set()
        other.stdin.close()
        other.wait()
        database.dispose()
        return seconds[1:]  # without the start of the process

    print(f"\nheard after {median(asyncio.run(follow())) * 1_000:.1f} ms (median)")


def test_a_notice_that_is_rolled_back_is_none_and_a_lost_connection_comes_back(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def follow() -> None:
        topics, database = Topics(), Database(postgres, {"topics": Topics()})
        async with listening(database, topics):
            with topics.subscribed("run:1") as woken:
                await _heard(woken)
                monkeypatch.setattr(listen, "_is_ours", lambda sender: False)
                await asyncio.to_thread(_roll_back, database)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(woken.wait(), 0.3)
                _kill_listeners(postgres)
                await _heard(woken)  # all are woken once it is back: something may have been missed
                await asyncio.to_thread(_announce, database)
                await _heard(woken)
        database.dispose()

    asyncio.run(follow())


def _announce(database: Database) -> None:
    with database.write() as session:
        announce(session, "run:1")


def _roll_back(database: Database) -> None:
    with pytest.raises(ZeroDivisionError), database.write() as session:
        announce(session, "run:1")
        raise ZeroDivisionError


def _kill_listeners(url: str) -> None:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE query LIKE 'LISTEN%' AND datname = current_database()"
        )
