"""The agent's data folder, with one folder per attempt.

::

    DIR/agent.json settings.json agent.lock
    DIR/cache/<sha256>                  token shards, hard-linked into the attempts that use them
    DIR/runs/<claim id>/
        claim.json                      run and claim id; after the claim also the API's response
        supervisor.lock supervisor.json locked while a supervisor is alive; its boot id and pid
        deadline.json                   when the supervisor stops its children unless it can renew
        job.json data/ resume/ out/     the trainer's files
        exit.json                       the outcome; no process of the attempt is left
        shipped.json                    checkpoints that the API has committed

A supervisor is alive while its lock is locked: a pid in a file may have been reused, and a process may exist without
working. `Condition` lists all conditions of an attempt's folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from pydantic import ValidationError

from trainwright.contracts.agent_protocol import Claim
from trainwright.contracts.base import Envelope
from trainwright.contracts.job_spec import Outcome
from trainwright.durable_files import write_durably
from trainwright_agent import processes

Record = TypeVar("Record", bound=Envelope)

_DEADLINE_BYTES = 512


class AlreadyRunningError(Exception):
    """Another process holds the lock."""


class ClaimRecord(Envelope):
    """``claim.json``."""

    run_id: str
    claim_id: str
    claim: Claim | None = None


class SupervisorRecord(Envelope):
    """``supervisor.json``: the process that took the lock last."""

    boot_id: str
    pid: int


class Deadline(Envelope):
    """``deadline.json``."""

    boot_id: str
    deadline: float
    """CLOCK_BOOTTIME at which the supervisor stops its children."""

    kill_at: float
    """CLOCK_BOOTTIME after which the agent kills the supervisor if children are still alive."""


class Condition(Enum):
    """The condition of an attempt's folder, by its lock and files."""

    UNSTARTED = auto()
    """No supervisor ever took the lock: claim, or repeat the claim, and start one."""
    SUPERVISED = auto()
    """A supervisor holds the lock."""
    ENDED = auto()
    """``exit.json`` exists: ship and report."""
    LOST = auto()
    """The supervisor died."""
    REBOOTED = auto()
    """The supervisor belonged to an earlier boot."""


@dataclass(frozen=True)
class AttemptFolder:
    """``DIR/runs/<claim id>``."""

    path: Path

    @property
    def claim_id(self) -> str:
        return self.path.name

    @property
    def exit_file(self) -> Path:
        return self.path / "exit.json"

    @property
    def deadline_file(self) -> Path:
        return self.path / "deadline.json"

    @property
    def log_file(self) -> Path:
        """The supervisor's own log."""
        return self.path / "supervisor.log"

    def record(self) -> ClaimRecord:
        return ClaimRecord.model_validate_json((self.path / "claim.json").read_bytes())

    def granted_claim(self) -> Claim | None:
        """The claim that the API granted; None before its response."""
        return self.record().claim

    @property
    def marker(self) -> str:
        return processes.marker(self.record().run_id, self.claim_id)

    def write_record(self, record: ClaimRecord) -> None:
        write_durably(self.path / "claim.json", record.model_dump_json(indent=1).encode())

    def supervisor(self) -> SupervisorRecord | None:
        return _read(self.path / "supervisor.json", SupervisorRecord)

    def write_supervisor(self) -> None:
        record = SupervisorRecord(boot_id=processes.boot_id(), pid=os.getpid())
        write_durably(self.path / "supervisor.json", record.model_dump_json().encode())

    def deadline(self) -> Deadline | None:
        """The supervisor's deadline; None before its first acknowledged renewal."""
        return _read(self.deadline_file, Deadline)

    def exit(self) -> Outcome | None:
        return _read(self.exit_file, Outcome)

    def write_exit(self, outcome: Outcome) -> None:
        write_durably(self.exit_file, outcome.model_dump_json(indent=1).encode())

    def is_locked(self) -> bool:
        return is_file_locked(self._lock_file)

    def lock(self) -> AbstractContextManager[None]:
        """Take the folder's lock, to supervise the attempt or to record its end.

        Raises:
            AlreadyRunningError: another process holds it.
        """
        return file_lock(self._lock_file)

    @property
    def is_untouched(self) -> bool:
        """The attempt never had a supervisor and has no outcome. Reliable only while holding the lock."""
        return self.supervisor() is None and not self.exit_file.exists()

    @property
    def _lock_file(self) -> Path:
        return self.path / "supervisor.lock"

    def condition(self) -> Condition:
        # The lock first: a supervisor writes exit.json before it releases the lock.
        if self.is_locked():
            return Condition.SUPERVISED
        if self.exit_file.exists():
            return Condition.ENDED
        supervisor = self.supervisor()
        if supervisor is None:
            return Condition.UNSTARTED
        return Condition.LOST if supervisor.boot_id == processes.boot_id() else Condition.REBOOTED

    def shipped_steps(self) -> set[int]:
        """Steps of the checkpoints that were committed, or abandoned after a refusal."""
        try:
            return set(json.loads((self.path / "shipped.json").read_bytes()))
        except (FileNotFoundError, ValueError):
            return set()

    def write_shipped_steps(self, steps: set[int]) -> None:
        write_durably(self.path / "shipped.json", json.dumps(sorted(steps)).encode())

    def delete(self) -> None:
        """Remove the folder. It is renamed first, so that a partly removed one is not taken for an attempt."""
        trash = self.path.with_name(f".trash-{self.path.name}")
        with suppress(FileNotFoundError):
            self.path.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)


class Workspace:
    """The data folder of one agent."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.runs = data / "runs"
        self.cache = data / "cache"

    def prepare(self) -> None:
        """Create the private folders, and remove what a crash left incomplete."""
        for folder in (self.data, self.runs, self.cache):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.data.chmod(0o700)
        for path in self.runs.iterdir():
            if path.name.startswith(".") or not (path / "claim.json").exists():
                shutil.rmtree(path, ignore_errors=True)

    def attempts(self) -> list[AttemptFolder]:
        """All attempts' folders, oldest name first."""
        paths = (path for path in self.runs.iterdir() if not path.name.startswith("."))
        return [AttemptFolder(path) for path in sorted(paths)]

    def create_attempt(self, run_id: str) -> AttemptFolder:
        """Create the folder of a new attempt with a fresh claim id; it is renamed when complete."""
        claim_id = uuid4().hex
        draft = AttemptFolder(self.runs / f".new-{claim_id}")
        draft.path.mkdir(mode=0o700)
        draft.write_record(ClaimRecord(run_id=run_id, claim_id=claim_id))
        return AttemptFolder(draft.path.rename(self.runs / claim_id))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Take the agent's lock on the data folder.

        Raises:
            AlreadyRunningError: another agent holds it.
        """
        with file_lock(self.data / "agent.lock", str(os.getpid())):
            yield

    def agent_pid(self) -> int | None:
        """Pid of the agent that holds the folder's lock, if any."""
        path = self.data / "agent.lock"
        if not is_file_locked(path):
            return None
        text = path.read_text()
        return int(text) if text.isdigit() else None


@contextmanager
def file_lock(path: Path, text: str = "") -> Iterator[None]:
    """Lock the file ``path``; children do not inherit the lock.

    Args:
        path: the lock file.
        text: written into the file once it is locked.

    Raises:
        AlreadyRunningError: another process holds the lock.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunningError(str(path)) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)
        yield
    finally:
        os.close(descriptor)


def is_file_locked(path: Path) -> bool:
    """Whether a process holds the lock file ``path``.

    The check takes the lock for a moment. A supervisor that starts in that moment exits, but then the attempt never had
    a supervisor, and the agent's next heartbeat starts another.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


class DeadlineFile:
    """``deadline.json``, kept open and overwritten in place.

    Its space is allocated once, so a full disk cannot stop a healthy supervisor from extending its deadline.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.posix_fallocate(self._descriptor, 0, _DEADLINE_BYTES)

    def write(self, deadline: Deadline) -> None:
        content = deadline.model_dump_json().encode()
        assert len(content) <= _DEADLINE_BYTES
        os.pwrite(self._descriptor, content.ljust(_DEADLINE_BYTES), 0)


def _read(path: Path, kind: type[Record]) -> Record | None:
    try:
        return kind.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
