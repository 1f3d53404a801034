"""How a trainer is made to leave.

SIGTERM means leave at once and save nothing: what was saved is safe, and a step or two is cheaper than a deadline
missed. The signal's default action does exactly that; it is named here because the launcher that ranks are forked
from has a handler of its own. SIGKILL of a parent reaches its children by the kernel's parent-death signal.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PARENT_VARIABLE = "TRAINWRIGHT_PARENT"
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends; leave if the parent is gone already.

    The parent hands its pid down in ``TRAINWRIGHT_PARENT``. Where nobody did, a person started the trainer by hand
    and it outlives the shell as any command does.
    """
    parent = os.environ.get(PARENT_VARIABLE)
    if parent is None:
        return
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        os._exit(1)


def become_parent() -> None:
    """Hand this process's pid down to the children it starts from now on."""
    os.environ[PARENT_VARIABLE] = str(os.getpid())


def leave_on_sigterm() -> None:
    """Let SIGTERM end this process at once."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
