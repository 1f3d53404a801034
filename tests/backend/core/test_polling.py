"""A thread that repeats its work stops between two parts of it."""

import threading
from collections.abc import Iterator
from itertools import count

from trainwright_backend.core.polling import PollingThread


def test_a_thread_stops_between_the_parts_of_its_work() -> None:
    begun, parts = threading.Event(), count()

    def endless() -> Iterator[int]:
        for part in parts:
            begun.set()
            yield part

    thread = PollingThread("endless", endless, "never happens", seconds=0.0)
    thread.start()
    assert begun.wait(60)
    thread.stop()
    after = next(parts)
    assert next(parts) == after + 1, "nothing else takes parts"


def test_work_without_parts_is_repeated() -> None:
    calls = [threading.Event(), threading.Event()]
    waiting = iter(calls)

    def work() -> None:
        if (call := next(waiting, None)) is not None:
            call.set()

    thread = PollingThread("repeated", work, "never happens", seconds=0.0)
    thread.start()
    assert all(call.wait(60) for call in calls)
    thread.stop()
