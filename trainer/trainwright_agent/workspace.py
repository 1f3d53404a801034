"""The agent's data folder: one folder an attempt, and what its files and its lock say about it.

::

    DIR/agent.json settings.json agent.lock
    DIR/cache/<sha256>                  token shards, hard-linked into the attempts that use them
    DIR/runs/<claim id>/
        claim.json                      run and claim id before claiming; the API's answer after it
        supervisor.lock supervisor.json held while a supervisor lives; boot id and pid of the one that took it
        deadline.json                   when it begins to stop its children unless it can renew
        job.json data/ resume/ out/     what the trainer sees
        exit.json                       how the attempt ended; nothing of it lives any more
        shipped.json                    checkpoints that the API has committed

Alive means a lock is held: a pid in a file may belong to somebody else, and a process may be there without working.
`Condition` is the whole table of what a folder can mean.
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
from trainwright_agent import processes
from trainwright_agent.files import write_durably

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
    """``supervisor.json``: who took the lock last."""

    boot_id: str
    pid: int


class Deadline(Envelope):
    """``deadline.json``."""

    boot_id: str
    deadline: float
    """CLOCK_BOOTTIME at which the supervisor begins to stop its children."""

    kill_at: float
    """CLOCK_BOOTTIME after which the agent kills the supervisor if children still live."""


class Condition(Enum):
    """What a folder means, by its lock and files."""

    UNSTARTED = auto()
    """No supervisor ever took the lock: claim, or claim again, and start one."""
    SUPERVISED = auto()
    """The lock is held."""
    ENDED = auto()
    """``exit.json`` is there: ship and report."""
    LOST = auto()
    """The supervisor vanished."""
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
        """What the supervisor itself has to say."""
        return self.path / "supervisor.log"

    def record(self) -> ClaimRecord:
        return ClaimRecord.model_validate_json((self.path / "claim.json").read_bytes())

    def granted(self) -> Claim | None:
        """The API's answer to the claim, if it has come."""
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
        return is_held(self._lock_file)

    def lock(self) -> AbstractContextManager[None]:
        """Be the one who works in the folder: as its supervisor, or as who settles what one left.

        Raises:
            AlreadyRunningError: somebody else is.
        """
        return held(self._lock_file)

    @property
    def is_fresh(self) -> bool:
        """No supervisor ever took the folder and no end is written. Certain only for who holds the lock."""
        return self.supervisor() is None and not self.exit_file.exists()

    @property
    def _lock_file(self) -> Path:
        return self.path / "supervisor.lock"

    def condition(self) -> Condition:
        # The lock first: a supervisor writes exit.json before it lets go.
        if self.is_locked():
            return Condition.SUPERVISED
        if self.exit_file.exists():
            return Condition.ENDED
        supervisor = self.supervisor()
        if supervisor is None:
            return Condition.UNSTARTED
        return Condition.LOST if supervisor.boot_id == processes.boot_id() else Condition.REBOOTED

    def shipped_steps(self) -> set[int]:
        """Steps of the checkpoints that were committed, or given up as refused."""
        try:
            return set(json.loads((self.path / "shipped.json").read_bytes()))
        except (FileNotFoundError, ValueError):
            return set()

    def write_shipped_steps(self, steps: set[int]) -> None:
        write_durably(self.path / "shipped.json", json.dumps(sorted(steps)).encode())

    def delete(self) -> None:
        """Remove the folder; one that was half removed is never taken for an attempt."""
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
        """Make the folders, closed to others, and clear away what a crash left half made."""
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
        """A folder for a new attempt under a fresh claim id, complete before it has its name."""
        claim_id = uuid4().hex
        draft = AttemptFolder(self.runs / f".new-{claim_id}")
        draft.path.mkdir(mode=0o700)
        draft.write_record(ClaimRecord(run_id=run_id, claim_id=claim_id))
        return AttemptFolder(draft.path.rename(self.runs / claim_id))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder.

        Raises:
            AlreadyRunningError: another agent holds it.
        """
        with held(self.data / "agent.lock", str(os.getpid())):
            yield

    def agent_pid(self) -> int | None:
        """Pid of the agent that holds the folder, if one does."""
        path = self.data / "agent.lock"
        if not is_held(path):
            return None
        text = path.read_text()
        return int(text) if text.isdigit() else None


@contextmanager
def held(path: Path, text: str = "") -> Iterator[None]:
    """Take the lock ``path`` and keep it; children do not inherit it.

    Args:
        path: the lock file.
        text: written into it once it is held.

    Raises:
        AlreadyRunningError: somebody holds it.
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


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock ``path``.

    The question itself takes the lock for a moment. A supervisor that starts in that moment leaves; but then none has
    ever started in the folder, and the next look starts another.
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
    """``deadline.json`` kept open and overwritten in place.

    The room is taken once and stays, so a full disk cannot keep a healthy supervisor's deadline from moving on.
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
