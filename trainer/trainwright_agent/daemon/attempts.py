"""The daemon's actions on attempts: starting supervisors, and ending attempts whose supervisor cannot do so.

Every function can be repeated, because it checks the folder's lock and files first.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from contextlib import suppress

from pydantic import ValidationError

from trainwright.contracts.end_codes import EndCode, sentence
from trainwright.contracts.job_spec import Outcome
from trainwright_agent import processes
from trainwright_agent.workspace import AlreadyRunningError, AttemptFolder, Condition, Workspace

log = logging.getLogger(__name__)

UNREADABLE = (FileNotFoundError, ValidationError)
"""Raised by reading ``claim.json`` when another thread has just deleted the folder, or a newer agent wrote the file."""

LOST = {Condition.LOST: EndCode.SUPERVISOR_LOST, Condition.REBOOTED: EndCode.NODE_REBOOTED}
"""Conditions that end an attempt from outside, and the reason to record."""


def start_supervisor(folder: AttemptFolder) -> subprocess.Popen[bytes]:
    """Start the attempt's supervisor in its own session, so that it outlives the agent."""
    with folder.log_file.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "trainwright_agent.supervisor.main", str(folder.path)],
            cwd=folder.path,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def kill_and_end_lost_attempt(folder: AttemptFolder, code: EndCode) -> bool:
    """Record the end of an attempt whose supervisor died; returns False while processes of it are left.

    It takes the folder's lock, so that a supervisor that starts late cannot begin between the sweep and the end.
    """
    try:
        with folder.lock():
            if not processes.sweep_once(folder.marker):
                return False
            folder.write_exit(Outcome(code=code, message=sentence(code)))
            return True
    except AlreadyRunningError:
        return False


def stop_attempts(workspace: Workspace) -> int:
    """Stop every attempt on a node without an agent: SIGTERM its supervisor, or record the end if none is running.

    Returns:
        How many supervisors are still alive. Call it again until there are none.
    """
    living = 0
    for folder in workspace.attempts():
        with suppress(*UNREADABLE):
            living += not _is_stopped(folder)
    return living


def _is_stopped(folder: AttemptFolder) -> bool:
    condition = folder.condition()
    if condition is Condition.SUPERVISED:
        supervisor = folder.supervisor()
        if supervisor is not None:
            processes.send_signal(supervisor.pid, signal.SIGTERM, folder.is_locked)
        return False
    if condition in LOST:
        return kill_and_end_lost_attempt(folder, LOST[condition])
    return condition is Condition.ENDED or folder.granted_claim() is None or _end_unstarted(folder)


def _end_unstarted(folder: AttemptFolder) -> bool:
    """Record an end, so that a supervisor that starts later exits."""
    try:
        with folder.lock():
            if folder.is_untouched:
                folder.write_exit(Outcome(code=EndCode.STOPPED, message="The node's operator stopped it."))
            return True
    except AlreadyRunningError:
        return False
