"""Keeps the Celery child that receives dispatch hints running, and forwards its hints.

A hint only triggers the next heartbeat, whose reply says what to do. So a dead child or an unreachable broker only
delays work until the next heartbeat, and failures here are not fatal.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from trainwright.contracts.agent_protocol import hints_queue
from trainwright_agent.processes import PARENT_VARIABLE

log = logging.getLogger(__name__)

URL_VARIABLE = "TRAINWRIGHT_HINTS_URL"
SOCKET_VARIABLE = "TRAINWRIGHT_HINTS_SOCKET"
"""Descriptor of the child's end of the socket."""

_RESTART_SECONDS = 2.0


class HintListener:
    """Runs the Celery child and a thread that listens to it.

    Args:
        node_name: names the queue.
        url: address of the hints broker, or None if there is none.
        on_hint: called for every hint, in a thread of the listener.
    """

    def __init__(self, node_name: str, url: str | None, on_hint: Callable[[], None]) -> None:
        self.url = url
        """May be changed; the next `keep_alive` then replaces the child."""
        self._node_name = node_name
        self._child_url: str | None = None
        self._on_hint = on_hint
        self._child: subprocess.Popen[bytes] | None = None
        self._start_at = 0.0

    def keep_alive(self) -> None:
        """Start the child if it is not running. Call it from the main thread: the child dies with the thread that forks it."""
        if self.url is None:
            return
        if self._child is not None and self._child_url != self.url:
            self.stop()
            self._child = None
        if self._child is not None and self._child.poll() is not None:
            log.warning("the hint worker exited with code %s", self._child.returncode)
            self._child = None
            self._start_at = time.monotonic() + _RESTART_SECONDS
        if self._child is None and time.monotonic() >= self._start_at:
            self._child_url = self.url
            self._child = self._start(self.url)

    def stop(self) -> None:
        """Kill the child and wait for its exit."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def _start(self, url: str) -> subprocess.Popen[bytes]:
        ours, theirs = socket.socketpair()
        command = [
            sys.executable,
            "-m",
            "celery",
            "--quiet",
            "--app",
            "trainwright_agent.daemon.hint_worker",
            "worker",
        ]
        options = ["--queues", hints_queue(self._node_name), "--pool", "solo", "--loglevel", "WARNING"]
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TRAINWRIGHT_")}
        with theirs:
            child = subprocess.Popen(
                [*command, *options, *quiet],
                env=inherited
                | {
                    URL_VARIABLE: url,
                    SOCKET_VARIABLE: str(theirs.fileno()),
                    PARENT_VARIABLE: str(os.getpid()),
                },
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        threading.Thread(target=self._listen, args=(ours,), name="hints", daemon=True).start()
        return child

    def _listen(self, ours: socket.socket) -> None:
        with ours:
            while ours.recv(4_096):
                self._on_hint()
