"""How a trainer is stopped from outside, and recognized there.

SIGTERM ends a process at once and saves nothing: checkpoints are safe, and losing a step or two is cheaper
than missing a deadline. That is the signal's default action; it is restored here because ranks are forked
from a launcher that has its own handler. When a parent is killed, the kernel's parent-death signal kills its
children.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PARENT_VARIABLE = "TRAINWRIGHT_PARENT"
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends; exit if the parent is already gone.

    The parent passes its pid in ``TRAINWRIGHT_PARENT``. Without it, a person started the trainer by hand,
    and it outlives the shell as any command does.
    """
    parent = os.environ.get(PARENT_VARIABLE)
    if parent is None:
        return
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        os._exit(1)


def name_process(name: str) -> None:
    """Name this process, as `top` and the agent show it; at most 15 characters."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def announce_parent() -> None:
    """Pass this process's pid to the children it starts from now on."""
    os.environ[PARENT_VARIABLE] = str(os.getpid())


def exit_on_sigterm() -> None:
    """Let SIGTERM end this process at once."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
