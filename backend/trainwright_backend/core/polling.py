"""A thread that repeats one piece of work, and continues after errors."""

import threading
from collections.abc import Callable, Iterable

from trainwright_backend.core.background import UNAVAILABLE, run_logging_errors

POLL_SECONDS = 2.0


class PollingThread:
    """The thread.

    Args:
        work: it may yield after each of its parts; the thread stops between two of them.
        failure: what an error of the work means, for the log.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], Iterable[object] | None],
        failure: str,
        seconds: float = POLL_SECONDS,
    ) -> None:
        self._work, self._failure, self._seconds = work, failure, seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current part of the work."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._seconds):
            run_logging_errors(self._work_once, self._failure, expected=UNAVAILABLE)

    def _work_once(self) -> None:
        for _ in self._work() or ():
            if self._stopping.is_set():
                return
