"""Signals that stop a trainer, and how other processes recognize it.

SIGTERM ends a process at once and saves nothing: checkpoints are safe, and losing a step or two is cheaper than missing
a deadline. This is the signal's default action. It is restored here because ranks are forked from a launcher with its
own handler. When a parent is killed, the kernel's parent-death signal kills its children.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys

from trainwright.contracts.rank_progress import STACKS_SIGNAL

PARENT_VARIABLE = "TRAINWRIGHT_PARENT"
SUPERVISOR_VARIABLE = "TRAINWRIGHT_SUPERVISOR"
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_PTRACER = 0x59616D61


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends; exit if the parent has already ended.

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
    """Pass this process's pid, and that of its own parent, to the children it starts from now on."""
    if PARENT_VARIABLE in os.environ:
        os.environ[SUPERVISOR_VARIABLE] = os.environ[PARENT_VARIABLE]
    os.environ[PARENT_VARIABLE] = str(os.getpid())


def exit_on_sigterm() -> None:
    """Let SIGTERM end this process at once."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def allow_stacks_to_be_read() -> None:
    """Let the supervisor read this process's stacks: with py-spy, or by a signal that has them written to the log.

    Some kernels let only ancestors read a process (Yama), and py-spy is a child of the supervisor.
    """
    faulthandler.register(signal.Signals[STACKS_SIGNAL], all_threads=True)
    supervisor = os.environ.get(SUPERVISOR_VARIABLE)
    if supervisor is not None and sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PTRACER, int(supervisor), 0, 0, 0)
