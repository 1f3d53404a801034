"""The order in which the threads of a process write to an SQLite database, which has one writer at a time.

Connections that wait for SQLite's own lock ask again and again, at growing intervals: under load, some wait for seconds while
others pass them. Here they are served in the order in which they came. Other processes still wait for SQLite's lock.
"""

import threading
from collections import deque
from types import TracebackType
from typing import Self


class WriteQueue:
    """Lets one thread at a time write, in order of arrival."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._is_taken = False

    @property
    def waiting(self) -> int:
        """The number of threads that wait."""
        return len(self._waiting)

    def enter(self, timeout_seconds: float) -> bool:
        """Wait for this thread's turn; False if it did not come in time."""
        with self._lock:
            if not self._is_taken:
                self._is_taken = True
                return True
            turn = threading.Event()
            self._waiting.append(turn)
        if turn.wait(timeout_seconds):
            return True
        with self._lock:
            if turn.is_set():  # it came just now
                return True
            self._waiting.remove(turn)
            return False

    def leave(self) -> None:
        """End a turn; the next one begins."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._is_taken = False


class Turn:
    """A place in a queue for the duration of a ``with`` block. It is taken when it is needed, and given up at the end."""

    def __init__(self, queue: WriteQueue) -> None:
        self._queue = queue
        self._is_taken = False

    def take(self, timeout_seconds: float) -> bool:
        """Wait for the turn, unless this block has it already; False if it did not come in time."""
        self._is_taken = self._is_taken or self._queue.enter(timeout_seconds)
        return self._is_taken

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_taken:
            self._is_taken = False
            self._queue.leave()
