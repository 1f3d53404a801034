"""The whole platform on one machine: broker, API, tokenising worker and one node agent, as children of this process.

Everything lies in one folder: database, objects, secrets, logs, the agent's workspace. A lock file holds it, so two
platforms never share one. The children die with this process, however it dies; only a run's supervisor outlives it,
by design, and stops its trainer by itself when it can no longer renew its lease.

The agent is started as a program and never imported: backend and agent know each other by HTTP alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self
from urllib.error import URLError
from urllib.request import urlopen

from trainwright_backend.core.broker import Broker, die_with_parent, start_broker

START_TIMEOUT_SECONDS = 180.0
"""Of the API, which imports and compiles for a while where the machine is busy."""
TELL_AFTER_SECONDS = 30.0
"""Then whoever waits for the API is told so."""
STOP_TIMEOUT_SECONDS = 20.0
NODE_NAME = "local"
SECRETS_FILE = "secrets.json"
ADDRESS_FILE = "address"


class FolderInUseError(RuntimeError):
    """Another platform holds the data folder."""


class PlatformError(RuntimeError):
    """A part of the platform did not start; the message ends with its log."""


@dataclass(frozen=True)
class DataFolder:
    """A locked data folder. The lock goes with the process, or with `release`."""

    path: Path
    lock: IO[str]

    @classmethod
    def take(cls, path: Path) -> Self:
        """Lock ``path``, made with mode 0700 if it is missing.

        Raises:
            FolderInUseError: another process holds it.
        """
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o700)
        lock = (path / "lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.close()
            raise FolderInUseError(f"{path} is in use by another Trainwright on this machine") from error
        return cls(path.resolve(), lock)

    def secret(self, name: str) -> str:
        """A generated secret that stays the same for the life of the folder (file mode 0600)."""
        file = self.path / SECRETS_FILE
        known: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
        if name not in known:
            known[name] = secrets.token_urlsafe(48)
            write_private(file, json.dumps(known))
        return known[name]

    def release(self) -> None:
        self.lock.close()


def folder_settings(folder: Path) -> dict[str, Any]:
    """The settings of the platform that keeps everything in ``folder``, whether it is up or not.

    Raises:
        PlatformError: no platform was started there.
    """
    try:
        secret = json.loads((folder / SECRETS_FILE).read_text())["secret_key"]
    except (OSError, ValueError, KeyError) as error:
        raise PlatformError(f"{folder} is not the data folder of a platform on this machine") from error
    address = folder / ADDRESS_FILE
    known = (
        {"public_url": address.read_text()} if address.exists() else {}
    )  # an older version's folder has none
    return known | {
        "data_dir": folder.absolute(),
        "object_store_dir": folder.absolute() / "objects",
        "secret_key": secret,
    }


def write_private(file: Path, text: str) -> None:
    """Replace ``file`` by one that only its owner can read."""
    partial = file.with_name(f".{file.name}.part")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(text)
    partial.replace(file)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, taken at once so that nobody else gets the port meanwhile.

    Raises:
        PlatformError: the port is taken.
    """
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise PlatformError(
            f"port {port} on {host} cannot be used ({error.strerror}): choose another"
        ) from error


@dataclass
class Platform:
    """Starts and stops the parts. Call it from the main thread: the parts die with the thread that started them.

    Args:
        folder: where everything is kept.
        listener: socket that the API serves; it is the API's from the start on.
        environment: settings for all parts, over the defaults, such as scaled timers.
        cpu_slots: runs' places on this machine when it has no GPU.
        reload: restart the API when its sources change.
    """

    folder: DataFolder
    listener: socket.socket
    environment: Mapping[str, str] = field(default_factory=dict)
    cpu_slots: int = 2
    reload: bool = False
    _broker: Broker | None = None
    _parts: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.host, self.port = self.listener.getsockname()[:2]

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def agent_pid(self) -> int:
        return self._parts["agent"].pid

    def start(self) -> None:
        """Start all parts and wait until the API answers. The node joins a moment later."""
        self._broker = start_broker(self.folder.path / "broker")
        write_private(self.folder.path / ADDRESS_FILE, self._server_environment()["TRAINWRIGHT_PUBLIC_URL"])
        self.command("migrate")
        self._start_api()
        self._server("worker", "worker")
        self._wait_for_api()
        self.start_agent()

    def start_api(self) -> None:
        """Start the API again at its address, after `end_api` or in the place of one that has died.

        Raises:
            PlatformError: it did not start, or the port is taken.
        """
        self.listener = listen(self.host, self.port)
        self._start_api()
        self._wait_for_api()

    def end_api(self) -> None:
        """End the API alone, as an upgrade does; the other parts go on. Until `start_api` it is one of `dead_parts`."""
        end(self._parts["api"])

    def start_agent(self) -> None:
        """Start the node agent, also in the place of one that has died."""
        agent_folder = self.folder.path / "agent"
        token_file = self.folder.path / "join-token"
        if not (agent_folder / "agent.json").exists():
            write_private(token_file, self.command("join-token", NODE_NAME).strip())
        self._start(
            "agent",
            [
                *(sys.executable, "-m", "trainwright_agent.main", "run", "--data", str(agent_folder)),
                *("--api", self.url, "--name", NODE_NAME, "--token-file", str(token_file)),
                *("--cpu-slots", str(self.cpu_slots), "--object-store", str(self.folder.path / "objects")),
            ],
            # The agent has a key of its own and needs none of the platform's.
            {name: value for name, value in os.environ.items() if not name.startswith("TRAINWRIGHT_")},
        )

    def command(self, *words: str) -> str:
        """Run a command of `trainwright-server` on this platform's database; returns what it prints.

        Raises:
            PlatformError: it ended with an error.
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
        """Parts that should run and do not."""
        return [name for name, process in self._parts.items() if process.poll() is not None]

    def stop(self) -> None:
        """End agent, worker, API and broker, in this order."""
        for name in reversed(list(self._parts)):
            end(self._parts.pop(name))
        if self._broker is not None:
            self._broker.stop()
            self._broker = None

    def stop_runs(self) -> None:
        """End the agent and what works for runs on this machine; the runs go on from their checkpoints later."""
        agent = [sys.executable, "-m", "trainwright_agent.main"]
        self._parts.pop("agent", None)
        subprocess.run(
            [*agent, "stop", "--with-runs", "--data", str(self.folder.path / "agent")], check=False
        )

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start_api(self) -> None:
        if self.reload:  # the reloader starts servers of its own and hands no socket down
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
        with self._log(name).open("ab") as log:
            self._parts[name] = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=inherited,
                # Ctrl-C goes to the terminal's whole group; the parts are stopped in order instead.
                process_group=0,
                preexec_fn=die_with_parent(signal.SIGKILL),
            )

    def _server_environment(self) -> dict[str, str]:
        assert self._broker is not None, "start the platform first"
        return dict(os.environ) | {
            "TRAINWRIGHT_DATA_DIR": str(self.folder.path),
            "TRAINWRIGHT_OBJECT_STORE_DIR": str(self.folder.path / "objects"),
            "TRAINWRIGHT_SECRET_KEY": self.folder.secret("secret_key"),
            "TRAINWRIGHT_PUBLIC_URL": self.url,
            "TRAINWRIGHT_HINTS_URL": self._broker.url,
            "TRAINWRIGHT_TASKS_URL": self._broker.url,
            **self.environment,
        }

    def _wait_for_api(self) -> None:
        started = time.monotonic()
        told = False
        while not _answers(f"{self.url}/api/v1/health"):
            waited = time.monotonic() - started
            self._require("api", self._parts["api"].poll() is None and waited < START_TIMEOUT_SECONDS)
            if waited >= TELL_AFTER_SECONDS and not told:
                told = True
                _tell(
                    f"Still waiting for the API after {waited:.0f} s, at most {START_TIMEOUT_SECONDS:.0f} s. "
                    f"Its log: {self._log('api')}"
                )
            time.sleep(0.05)

    def _require(self, name: str, good: bool) -> None:
        if not good:
            log = self._log(name).read_text(errors="replace")[-2000:]
            raise PlatformError(f"{name} did not start. Its log ends with:\n{log}")

    def _log(self, name: str) -> Path:
        logs = self.folder.path / "logs"
        logs.mkdir(exist_ok=True)
        return logs / f"{name}.log"


def run_until_interrupted(data: Path, host: str, port: int, cpu_slots: int, reload: bool) -> str | None:
    """Keep a platform up until Ctrl-C or SIGTERM, or until a part of it ends by itself.

    Prints its address and, while nobody has an account, the link that makes the first owner.

    Returns:
        What went wrong, or None.

    Raises:
        FolderInUseError: ``data`` belongs to a platform that runs.
        PlatformError: a part did not start, or the port is taken.
    """
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # SIGINT too: a shell's background jobs begin with it ignored
        signal.signal(number, signal.default_int_handler)
    folder = DataFolder.take(data)
    listener = listen(host, port)
    try:
        _tell(f"Starting in {folder.path}: broker, database, API, worker and this machine's node agent.")
        with Platform(folder, listener, cpu_slots=cpu_slots, reload=reload) as platform:
            print(f"Trainwright serves at {platform.url} from {folder.path}.", flush=True)
            print(
                "Ctrl-C stops it and what it trains; runs go on from their last checkpoint at the next start."
            )
            _print_first_owner_link(platform)
            try:
                while not (dead := platform.dead_parts()):
                    time.sleep(0.5)
            finally:
                _tell("Stopping: what trains here ends, then agent, worker, API and broker.")
                platform.stop_runs()
            return f"{', '.join(dead)} ended by itself: read the logs in {folder.path / 'logs'}"
    except KeyboardInterrupt:
        _tell("Stopped. Nothing of it runs any more.")
        return None


def _tell(what: str) -> None:
    """What goes on meanwhile, beside what a script may want to read."""
    print(what, file=sys.stderr, flush=True)


def _print_first_owner_link(platform: Platform) -> None:
    try:
        print(f"Make the first account: {platform.command('link', 'first-owner').strip()}", flush=True)
    except PlatformError:
        print(f"Sign in: {platform.url}/sign-in", flush=True)


def end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, and SIGKILL for who does not leave."""
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except (URLError, OSError):
        return False
