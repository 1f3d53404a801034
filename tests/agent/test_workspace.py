"""The meaning of a folder, and that locks and incomplete folders are interpreted correctly."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.agent.folders import make_attempt
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.job_spec import Outcome
from trainwright_agent.daemon.attempts import kill_and_end_lost_attempt
from trainwright_agent.processes import MARKER_VARIABLE, boot_id
from trainwright_agent.workspace import (
    AlreadyRunningError,
    AttemptFolder,
    Condition,
    Deadline,
    DeadlineFile,
    SupervisorRecord,
    Workspace,
    file_lock,
    is_file_locked,
)

EXIT = Outcome(code=EndCode.CRASHED, message="m")


@pytest.fixture
def locks() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize(
    ("supervisor", "locked", "ended", "condition"),
    [
        (None, False, False, Condition.UNSTARTED),
        (None, True, False, Condition.SUPERVISED),
        ("this boot", True, False, Condition.SUPERVISED),
        ("this boot", True, True, Condition.SUPERVISED),
        ("this boot", False, True, Condition.ENDED),
        ("another boot", False, True, Condition.ENDED),
        ("this boot", False, False, Condition.LOST),
        ("another boot", False, False, Condition.REBOOTED),
    ],
)
def test_conditions(
    tmp_path: Path, locks: ExitStack, supervisor: str | None, locked: bool, ended: bool, condition: Condition
) -> None:
    folder = make_attempt(tmp_path)
    if supervisor is not None:
        record = SupervisorRecord(boot_id=boot_id() if supervisor == "this boot" else "other", pid=1)
        (folder.path / "supervisor.json").write_text(record.model_dump_json())
    if locked:
        locks.enter_context(file_lock(folder.path / "supervisor.lock"))
    else:
        (folder.path / "supervisor.lock").touch()
    if ended:
        folder.write_exit(EXIT)
    assert folder.condition() is condition


def test_a_lock_has_one_holder_and_is_released(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_file_locked(path)
    with file_lock(path, "1"):
        assert is_file_locked(path)
        with pytest.raises(AlreadyRunningError), file_lock(path):
            pass
        assert path.read_text() == "1"
    assert not is_file_locked(path)


def test_children_do_not_inherit_a_lock(tmp_path: Path) -> None:
    with file_lock(tmp_path / "lock"):
        child = subprocess.Popen(
            [sys.executable, "-c", "print(flush=True); input()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            close_fds=False,
        )
    try:
        assert child.stdout is not None
        child.stdout.readline()  # the kernel closes inherited files shortly after the parent continues
        assert not is_file_locked(tmp_path / "lock")
    finally:
        child.kill()
        child.communicate()


def test_incomplete_folders_of_a_crash_are_removed(tmp_path: Path) -> None:
    whole = make_attempt(tmp_path)
    workspace = Workspace(tmp_path)
    for name in (".new-1", ".trash-2", "without-a-claim"):
        (workspace.runs / name / "out").mkdir(parents=True)
    workspace.prepare()
    assert [path.name for path in workspace.runs.iterdir()] == [whole.claim_id]


def test_deleting_follows_no_symlink(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    folder = make_attempt(tmp_path / "node")
    (folder.path / "out" / "checkpoints").symlink_to(precious)
    folder.delete()
    folder.delete()
    assert not folder.path.exists()
    assert (precious / "file").exists()


def test_a_deadline_is_overwritten_in_place(tmp_path: Path) -> None:
    folder = AttemptFolder(tmp_path)
    assert folder.deadline() is None
    file = DeadlineFile(folder.deadline_file)
    for deadline in (123456.75, 1.5):
        file.write(Deadline(boot_id="b", deadline=deadline, kill_at=deadline + 1))
        read = folder.deadline()
        assert read is not None
        assert read.deadline == deadline


def test_the_end_of_a_lost_attempt_is_recorded_when_its_processes_are_gone(tmp_path: Path) -> None:
    folder = make_attempt(tmp_path)
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={MARKER_VARIABLE: folder.marker}
    )
    other = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={MARKER_VARIABLE: "run_2/x"}
    )
    try:
        while not kill_and_end_lost_attempt(folder, EndCode.SUPERVISOR_LOST):
            assert folder.exit() is None
        assert child.wait(5) == -9
        assert other.poll() is None
        end = folder.exit()
        assert end is not None
        assert end.code is EndCode.SUPERVISOR_LOST
    finally:
        for process in (child, other):
            process.kill()
            process.communicate()
