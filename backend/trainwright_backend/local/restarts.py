"""Restarting the processes of a platform that exit by themselves.

Pauses between starts double from a second to a minute. A process that keeps exiting is reported, and the others stay
up. Problems are written to a file that `/health` reads (`core.component_status`), and to standard error.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from trainwright_backend.core.broker import BrokerError
from trainwright_backend.local.data_folder import PlatformError
from trainwright_backend.local.platform import end_of

FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 60.0

STABLE_SECONDS = 20.0
"""A process that has run this long since its last start works again. Importing alone can take several seconds."""

MANY_EXITS = 3
"""After this many exits in a row, the end of the log is printed."""

MEANWHILE = {
    "api": "Nobody can reach the platform",
    "broker": "New work starts some seconds late",
    "worker": "Datasets are not prepared",
    "agent": "This machine starts no runs",
}
"""The effect of a part that does not work. Runs that are training continue."""


class Parts(Protocol):
    """A platform, as far as restarts are concerned."""

    def dead_parts(self) -> list[str]: ...
    def exit_code(self, name: str) -> int | None: ...
    def restart(self, name: str) -> None: ...
    def log_file(self, name: str) -> Path: ...
    def report_problems(self, problems: dict[str, str]) -> None: ...


@dataclass
class Failure:
    """A process that exited, until it has run for `STABLE_SECONDS` again."""

    message: str
    exits: int = 0
    restart_at: float | None = None
    """When it is started again; None while it is running."""

    started: float = 0.0


class Restarts:
    """The restarts of one platform. Call `check` often, in the thread that started the platform.

    Args:
        platform: whose processes are watched.
        tell: prints a message for the operator.
        clock: seconds, monotonic.
    """

    def __init__(
        self, platform: Parts, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._platform = platform
        self._tell = tell
        self._clock = clock
        self._failures: dict[str, Failure] = {}
        self._reported: dict[str, str] = {}

    def check(self) -> None:
        """Note processes that exited, start those that are due, and forget those that work again."""
        dead = self._platform.dead_parts()
        for name in dead:
            failure = self._failures.setdefault(name, Failure(""))
            if failure.restart_at is None:
                code = self._platform.exit_code(name)
                self._note_exit(name, failure, f"exited with code {code}")
            elif self._clock() >= failure.restart_at:
                self._restart(name, failure)
        for name in [name for name in self._failures if name not in dead]:
            if self._clock() - self._failures[name].started >= STABLE_SECONDS:
                del self._failures[name]
                self._tell(f"{name} works again.")
        self._report()

    def _note_exit(self, name: str, failure: Failure, what: str) -> None:
        failure.exits += 1
        pause = min(FIRST_PAUSE_SECONDS * 2 ** (failure.exits - 1), MAX_PAUSE_SECONDS)
        failure.restart_at = self._clock() + pause
        times = "" if failure.exits == 1 else f", {failure.exits} times in a row"
        failure.message = f"{what}{times}, last at {datetime.now(UTC):%H:%M:%S} UTC. {MEANWHILE[name]}."
        log = self._platform.log_file(name)
        self._tell(
            f"{name} {failure.message} It restarts in {pause:.0f} s; the other parts keep running. Its log: {log}"
        )
        if failure.exits == MANY_EXITS:
            self._tell(f"The log of {name} ends with:\n{end_of(log)}")

    def _restart(self, name: str, failure: Failure) -> None:
        try:
            self._platform.restart(name)
        except (PlatformError, BrokerError, OSError) as error:
            self._note_exit(name, failure, f"could not be started ({str(error).splitlines()[0]})")
        else:
            failure.restart_at, failure.started = None, self._clock()

    def _report(self) -> None:
        problems = {name: failure.message for name, failure in self._failures.items()}
        if problems != self._reported:
            self._platform.report_problems(problems)
            self._reported = problems
