"""The processes of a platform on one machine: broker, API, worker and node agent.

Each can be restarted without the others (`restarts`). They die with the process that started them, however it dies. Only
a run's supervisor outlives it, by design: it stops its trainer by itself when it can no longer renew its lease.

The agent is started as a program and never imported: backend and agent communicate only over HTTP.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.error import URLError
from urllib.request import urlopen

from trainwright_backend.core.broker import Broker, die_with_parent, start_broker
from trainwright_backend.core.component_status import write_part_problems
from trainwright_backend.core.settings import Settings, settings_from
from trainwright_backend.local.data_folder import (
    PARTS_FILE,
    DataFolder,
    PlatformError,
    folder_variables,
    store_server_variables,
    write_private_file,
)

START_TIMEOUT_SECONDS = 180.0
"""For the API, whose imports take a while on a busy machine."""

NOTICE_AFTER_SECONDS = 30.0
"""How long the start waits for the API before it says so."""

STOP_TIMEOUT_SECONDS = 20.0
NODE_NAME = "local"


def bind_socket(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        PlatformError: the port is in use.
    """
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise PlatformError(
            f"port {port} on {host} cannot be used ({error.strerror}): choose another"
        ) from error


@dataclass
class Platform:
    """Starts and stops the processes. Use it in the main thread: they die with the thread that started them.

    Args:
        folder: the data folder.
        listener: socket for the API, which takes it over.
        environment: settings for all processes that override the defaults, such as scaled timers.
        cpu_slots: slots of the node agent when the machine has no GPU.
        reload: restart the API when its sources change.
    """

    folder: DataFolder
    listener: socket.socket
    environment: Mapping[str, str] = field(default_factory=dict)
    cpu_slots: int = 2
    reload: bool = False
    announcement: Callable[[Platform], str] | None = None
    """What to print as soon as the API responds. Called while the API starts, once the database is up."""

    _broker: Broker | None = None
    _parts: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.host, self.port = self.listener.getsockname()[:2]

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def broker_url(self) -> str:
        """The running broker's address, as redis-py takes it."""
        assert self._broker is not None, "the platform is started"
        return self._broker.client_url

    def settings(self) -> Settings:
        """The settings of the running server."""
        return settings_from(self._server_environment())

    @property
    def logs(self) -> Path:
        """The folder with the logs of all processes."""
        return self.folder.path / "logs"

    def start(self) -> None:
        """Start all processes and wait until the API responds. The node joins a moment later."""
        self._broker = start_broker(self.folder.path / "broker", log_path=self.log_file("broker"))
        self.report_problems({})
        store_server_variables(self.folder.path, self._server_environment())
        self.command("migrate")
        self._start_api()
        self._start_worker()
        announced = None if self.announcement is None else self.announcement(self)
        self._wait_for_api()
        if announced is not None:
            print(announced, flush=True)
        self.start_agent()

    def restart(self, name: str) -> None:
        """Start one of `dead_parts` again, without waiting until it responds; the broker responds at once.

        Raises:
            PlatformError: it cannot be started.
            BrokerError: the broker cannot be started.
        """
        match name:
            case "broker":
                assert self._broker is not None, "the platform is started"
                self._broker = start_broker(
                    self.folder.path / "broker", self._broker.socket_path, self.log_file(name)
                )
            case "api":
                self.listener = bind_socket(self.host, self.port)
                self._start_api()
            case "worker":
                self._start_worker()
            case _:
                self.start_agent()

    def start_api(self) -> None:
        """Restart the API at the same address, after `end_api` or because it died.

        Raises:
            PlatformError: it did not start, or the port is in use.
        """
        self.listener = bind_socket(self.host, self.port)
        self._start_api()
        self._wait_for_api()

    def end_api(self) -> None:
        """Stop only the API, as an upgrade does. Until `start_api` it is one of `dead_parts`."""
        terminate(self._parts["api"])

    def start_agent(self) -> None:
        """Start the node agent, or restart it after it died."""
        agent_folder = self.folder.path / "agent"
        token_file = self.folder.path / "join-token"
        if not (agent_folder / "agent.json").exists():
            write_private_file(token_file, self.command("join-token", NODE_NAME, "--any-slots").strip())
        self._start(
            "agent",
            [
                *(sys.executable, "-m", "trainwright_agent.main", "run", "--data", str(agent_folder)),
                *("--api", self.url, "--name", NODE_NAME, "--token-file", str(token_file)),
                *("--cpu-slots", str(self.cpu_slots), "--object-store", str(self.folder.path / "objects")),
            ],
            # The agent has its own key and must not see the platform's secrets.
            {name: value for name, value in os.environ.items() if not name.startswith("TRAINWRIGHT_")},
        )

    def command(self, *words: str) -> str:
        """Run a `trainwright-server` command on this platform's database and return its output.

        Raises:
            PlatformError: the command failed.
        """
        done = subprocess.run(
            [sys.executable, "-m", "trainwright_backend.cli", *words],
            env=self._server_environment(),
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise PlatformError(f"trainwright-server {words[0]} failed: {done.stderr.strip()[-2000:]}")
        return done.stdout

    def dead_parts(self) -> list[str]:
        """The processes that have exited by themselves."""
        return [name for name, process in self._processes().items() if process.poll() is not None]

    def exit_code(self, name: str) -> int | None:
        """The exit code of a process; None while it is running."""
        return self._processes()[name].poll()

    def pid(self, name: str) -> int:
        """Process id of a part."""
        return self._processes()[name].pid

    def log_file(self, name: str) -> Path:
        """The file that a process's log is appended to."""
        self.logs.mkdir(exist_ok=True)
        return self.logs / f"{name}.log"

    def report_problems(self, problems: dict[str, str]) -> None:
        """Have `/health` report these parts: what happened, by name."""
        write_part_problems(self.folder.path / PARTS_FILE, problems)

    def stop(self) -> None:
        """Stop agent, worker, API and broker, in this order."""
        for name in reversed(list(self._parts)):
            terminate(self._parts.pop(name))
        if self._broker is not None:
            self._broker.stop()
            self._broker = None

    def stop_runs(self) -> None:
        """Stop the agent and the runs on this machine; the runs resume from their checkpoints later."""
        agent = [sys.executable, "-m", "trainwright_agent.main"]
        self._parts.pop("agent", None)
        subprocess.run(
            [*agent, "stop", "--with-runs", "--data", str(self.folder.path / "agent")], check=False
        )

    def __enter__(self) -> Self:
        with ExitStack() as started:
            started.callback(self.stop)
            self.start()
            started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _processes(self) -> dict[str, subprocess.Popen[bytes]]:
        broker = {} if self._broker is None else {"broker": self._broker.process}
        return broker | self._parts

    def _start_worker(self) -> None:
        self._server("worker", "worker")

    def _start_api(self) -> None:
        if self.reload:  # the reloader starts its own servers and cannot pass a socket on
            self.listener.close()
            self._server("api", "serve", "--reload", "--host", self.host, "--port", str(self.port))
            return
        descriptor = self.listener.fileno()
        self._server("api", "serve", "--fd", str(descriptor), inherited=(descriptor,))
        self.listener.close()

    def _server(self, name: str, *words: str, inherited: Sequence[int] = ()) -> None:
        command = [sys.executable, "-m", "trainwright_backend.cli", *words]
        self._start(name, command, self._server_environment(), inherited)

    def _start(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], inherited: Sequence[int] = ()
    ) -> None:
        with self.log_file(name).open("ab") as log:
            self._parts[name] = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=inherited,
                # Ctrl-C would reach the entire process group; `stop` stops the processes in order instead.
                process_group=0,
                preexec_fn=die_with_parent(signal.SIGKILL),
            )

    def _server_environment(self) -> dict[str, str]:
        assert self._broker is not None, "the platform is started"
        return dict(os.environ) | {
            **folder_variables(self.folder.path),
            "TRAINWRIGHT_SECRET_KEY": self.folder.secret("secret_key"),
            "TRAINWRIGHT_PUBLIC_URL": self.url,
            "TRAINWRIGHT_HINTS_URL": self._broker.url,
            "TRAINWRIGHT_TASKS_URL": self._broker.url,
            **self.environment,
        }

    def _wait_for_api(self) -> None:
        started = time.monotonic()
        noticed = False
        while not responds(f"{self.url}/api/v1/health"):
            waited = time.monotonic() - started
            self._require("api", self._parts["api"].poll() is None and waited < START_TIMEOUT_SECONDS)
            if waited >= NOTICE_AFTER_SECONDS and not noticed:
                noticed = True
                print_status(
                    f"Still waiting for the API after {waited:.0f} s, at most {START_TIMEOUT_SECONDS:.0f} s. "
                    f"Its log: {self.log_file('api')}"
                )
            time.sleep(0.05)

    def _require(self, name: str, running: bool) -> None:
        if not running:
            log = self.log_file(name)
            raise PlatformError(f"{name} did not start. Its log, {log}, ends with:\n{end_of(log)}")


def terminate(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM, and SIGKILL if the process does not exit in time."""
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end_of(log: Path) -> str:
    """The end of a log."""
    return log.read_text(errors="replace")[-2000:] if log.exists() else "no log was written"


def responds(url: str) -> bool:
    """Whether a GET of ``url`` is answered with 200 within 2 s."""
    try:
        with urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except (URLError, OSError):
        return False


def print_status(message: str) -> None:
    """Print progress to stderr, apart from the output that a script may read."""
    print(message, file=sys.stderr, flush=True)
