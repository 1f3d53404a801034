"""The guard: a process that kills a supervisor and its ranks if the supervisor misses its deadline.

Each supervisor has one. The agent does the same, but may be dead. A supervisor that is stopped (SIGSTOP, a debugger) or
hangs does not stop its ranks, which would continue to train while the platform starts the run elsewhere. The guard is
forked, so it does not start a new Python interpreter. It ends with the supervisor, because the supervisor's death
already ends the ranks.
"""

from __future__ import annotations

import logging
import os
import select
from typing import NoReturn

from trainwright_agent.watchdog import Watchdog, kill_overdue
from trainwright_agent.workspace import AttemptFolder

log = logging.getLogger(__name__)

_MAX_TICK_SECONDS = 1.0
_MIN_TICK_SECONDS = 0.05


def start_deadline_guard(attempt: AttemptFolder) -> None:
    """Fork the guard of this process, which is about to supervise ``attempt``.

    Call it before any thread is started and before the folder is locked: a fork keeps locks and loses threads.
    """
    supervisor = os.getpid()
    if not os.fork():
        _guard(attempt, supervisor)


def _guard(attempt: AttemptFolder, supervisor: int) -> NoReturn:
    code = 1
    try:
        os.setsid()  # signals to the supervisor's group do not stop it
        _watch(attempt, supervisor)
        code = 0
    finally:  # nothing of the supervisor's own code may run in this process
        if code:
            log.error("the guard of %s ends early", attempt.claim_id, exc_info=True)
        os._exit(code)


def _watch(attempt: AttemptFolder, supervisor: int) -> None:
    """Watch the deadline until the supervisor has exited."""
    try:
        exited = os.pidfd_open(supervisor)
    except ProcessLookupError:
        return
    watchdog = Watchdog()
    while os.getppid() == supervisor:
        if watchdog.is_due(attempt):
            kill_overdue(attempt)
        select.select([exited], [], [], _tick_seconds(attempt))


def _tick_seconds(attempt: AttemptFolder) -> float:
    """Short enough that the watchdog does not take a tick for a suspended machine."""
    deadline = attempt.deadline()
    allowed = _MAX_TICK_SECONDS if deadline is None else (deadline.kill_at - deadline.deadline) / 4
    return min(_MAX_TICK_SECONDS, max(_MIN_TICK_SECONDS, allowed))
