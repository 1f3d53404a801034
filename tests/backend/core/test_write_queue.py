"""Threads that write to an SQLite database take turns in order of arrival, and none waits longer than its time."""

import threading
import time
from collections.abc import Callable

import pytest
from sqlalchemy import insert, select

from trainwright_backend.auth.tables import Team
from trainwright_backend.core import db
from trainwright_backend.core.db import Database
from trainwright_backend.core.errors import Busy
from trainwright_backend.core.write_queue import Turn, WriteQueue

WAITING = 20


def start_in_order(count: int, work: Callable[[int], None], queue: WriteQueue) -> list[threading.Thread]:
    """Start threads, each once the one before waits in ``queue``."""
    threads = []
    for number in range(count):
        thread = threading.Thread(target=work, args=(number,))
        thread.start()
        threads.append(thread)
        while queue.waiting <= number:
            time.sleep(0.001)
    return threads


def add_team(database: Database, slug: str) -> None:
    with database.write() as session:
        session.execute(insert(Team).values(slug=slug, name="Team"))


@pytest.fixture
def database(sqlite_url: str) -> Database:
    return Database(sqlite_url)


def test_threads_are_served_in_order_of_arrival(database: Database) -> None:
    served: list[int] = []

    def write(number: int) -> None:
        with database.write() as session:
            session.execute(insert(Team).values(slug=f"team-{number}", name="Team"))
            served.append(number)

    with database.write() as session:
        session.execute(insert(Team).values(slug="first", name="First"))
        threads = start_in_order(WAITING, write, database.writers)
    for thread in threads:
        thread.join()
    assert served == list(range(WAITING))


def test_a_thread_that_waited_too_long_is_refused_and_keeps_nobody_waiting(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(db, "BUSY_TIMEOUT_SECONDS", 0.2)
    with database.write() as session:
        session.execute(insert(Team).values(slug="first", name="First"))
        with pytest.raises(Busy):
            add_team(database, "late")
    add_team(database, "next")
    with database.read() as session:
        assert set(session.scalars(select(Team.slug))) == {"first", "next"}


def test_who_leaves_the_queue_early_is_passed_over() -> None:
    queue, served = WriteQueue(), list[int]()

    def work(number: int) -> None:
        with Turn(queue) as turn:
            if turn.take(0.2 if number == 0 else 30):
                served.append(number)

    with Turn(queue) as first:
        assert first.take(0) and first.take(0), "a block that has its turn keeps it"
        threads = start_in_order(1, work, queue)
        threads[0].join()
        threads = start_in_order(1, lambda _: work(1), queue)
    threads[0].join()
    assert served == [1]
    assert queue.enter(0), "nobody has the turn any more"


def test_a_turn_ends_with_its_transaction_and_before_its_hooks(database: Database) -> None:
    with pytest.raises(ZeroDivisionError), database.write() as session:
        session.execute(insert(Team).values(slug="failed", name="Failed"))
        raise ZeroDivisionError
    with database.write() as session:
        session.execute(insert(Team).values(slug="one", name="One"))
        session.after_commit(lambda: add_team(database, "two"))
    with database.read() as session:
        assert set(session.scalars(select(Team.slug))) == {"one", "two"}
