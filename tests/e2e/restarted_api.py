"""The API of a live platform, ended and started when a browser test asks for it by a word in a file.

Only the API goes: broker, worker, agent and trainer go on, as when an operator installs another version.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.live import Live

LOOK_SECONDS = 0.1


@contextmanager
def api_by_switch(live: Live, switch: Path) -> Iterator[None]:
    """While the block runs, ``down`` in ``switch`` ends the API and ``up`` starts it at the same address."""
    done = threading.Event()
    failures: list[BaseException] = []
    thread = threading.Thread(target=_follow, args=(live, switch, done, failures))
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    assert not failures, failures


def _follow(live: Live, switch: Path, done: threading.Event, failures: list[BaseException]) -> None:
    """Until ``done``. A started API dies with this thread, so whoever needs it stays within the block."""
    is_up = True
    try:
        while not done.wait(LOOK_SECONDS):
            wanted = not switch.exists() or switch.read_text() != "down"
            if wanted == is_up:
                continue
            if wanted:
                live.platform.start_api()
            else:
                live.platform.end_api()
            is_up = wanted
    except (OSError, RuntimeError) as failure:
        failures.append(failure)
