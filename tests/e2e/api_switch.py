"""A live platform's API, stopped and started when a browser test writes a word into a file.

Only the API stops: broker, worker, agent and trainer continue, as during an upgrade.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.live import Live

POLL_SECONDS = 0.1


@contextmanager
def api_switch(live: Live, switch: Path) -> Iterator[None]:
    """While the block runs, ``down`` in ``switch`` stops the API and ``up`` starts it at the same address."""
    done = threading.Event()
    failures: list[BaseException] = []
    thread = threading.Thread(target=_follow, args=(live, switch, done, failures))
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        live.platform.end_api()  # processes that the thread started end with it
        live.platform.start_api()
    assert not failures, failures


def _follow(live: Live, switch: Path, done: threading.Event, failures: list[BaseException]) -> None:
    is_up = True
    try:
        while not done.wait(POLL_SECONDS):
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
