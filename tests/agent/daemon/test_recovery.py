"""A starting agent recovers attempt folders from every condition in which they can be left."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from tests.agent.api import ScriptedApi, ScriptedRun
from tests.agent.folders import make_attempt, step_line, write_events
from tests.agent.machine import Machine, wait_for
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.job_spec import Outcome
from trainwright_agent.daemon.attempts import kill_and_end_lost_attempt, start_supervisor
from trainwright_agent.processes import MARKER_VARIABLE, boot_id
from trainwright_agent.workspace import AttemptFolder, ClaimRecord, SupervisorRecord, Workspace


def drop_claim(folder: AttemptFolder) -> None:
    """As if the agent had died between writing the claim id and the API's response."""
    folder.write_record(ClaimRecord(run_id="run_1", claim_id=folder.claim_id))


def record_supervisor(folder: AttemptFolder, boot: str) -> None:
    (folder.path / "supervisor.lock").touch()
    record = SupervisorRecord(boot_id=boot, pid=os.getpid())
    (folder.path / "supervisor.json").write_text(record.model_dump_json())


@pytest.fixture
def abandoned(api: ScriptedApi, machine: Machine) -> tuple[ScriptedRun, AttemptFolder]:
    """A run claimed by an agent that has died."""
    run = api.place(steps=5, ranks=1)
    folder = make_attempt(machine.data, run.run_id)
    run.claim_id = folder.claim_id
    run.claims.append(folder.claim_id)
    return run, folder


@pytest.mark.parametrize("answered", [True, False])
def test_an_attempt_without_a_supervisor_is_claimed_again_and_started(
    machine: Machine, abandoned: tuple[ScriptedRun, AttemptFolder], answered: bool
) -> None:
    run, folder = abandoned
    if not answered:
        drop_claim(folder)
    machine.start_agent()
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "finished"
    assert run.claims == [folder.claim_id] * 2


def test_an_attempt_without_a_supervisor_is_deleted_when_the_claim_is_refused(
    api: ScriptedApi, machine: Machine, abandoned: tuple[ScriptedRun, AttemptFolder]
) -> None:
    run, _ = abandoned
    run.claim_id, run.closed = "another", True
    machine.start_agent()
    machine.wait_until_idle()
    assert not run.renewals


@pytest.mark.parametrize(("boot", "code"), [("this", "supervisor_lost"), ("another", "node_rebooted")])
def test_a_dead_supervisors_attempt_is_shipped_and_reported(
    machine: Machine, abandoned: tuple[ScriptedRun, AttemptFolder], boot: str, code: str
) -> None:
    run, folder = abandoned
    record_supervisor(folder, boot_id() if boot == "this" else boot)
    write_events(folder.path, step_line(1), step_line(2), torn=b'{"type":')
    survivor = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={MARKER_VARIABLE: folder.marker}
    )
    machine.start_agent()
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == code
    assert run.steps == [1, 2]
    assert survivor.wait(5) == -signal.SIGKILL
    survivor.communicate()
    machine.wait_until_idle()


@pytest.mark.slow(target="faults")
@pytest.mark.parametrize("left_behind", ["supervisor.json", "exit.json"])
def test_a_late_supervisor_exits_if_the_attempt_already_had_one(
    machine: Machine, abandoned: tuple[ScriptedRun, AttemptFolder], left_behind: str
) -> None:
    run, folder = abandoned
    machine.write_identity()
    if left_behind == "supervisor.json":
        record_supervisor(folder, boot_id())
    else:
        folder.write_exit(Outcome(code=EndCode.STOPPED, message="m"))
    assert start_supervisor(folder).wait(20) == 0
    assert not run.renewals


def test_without_those_files_a_supervisor_starts_work(
    machine: Machine, abandoned: tuple[ScriptedRun, AttemptFolder]
) -> None:
    """The negative control of the test above."""
    run, folder = abandoned
    machine.write_identity()
    supervisor = start_supervisor(folder)
    machine.supervisors.add(supervisor.pid)
    wait_for(lambda: run.renewals, "a renewal")
    supervisor.kill()
    supervisor.wait()


def test_the_end_of_a_lost_attempt_is_written_under_its_lock(
    abandoned: tuple[ScriptedRun, AttemptFolder],
) -> None:
    _, folder = abandoned
    with folder.lock():  # by a late supervisor
        assert not kill_and_end_lost_attempt(folder, EndCode.SUPERVISOR_LOST)
        assert folder.exit() is None
    assert kill_and_end_lost_attempt(folder, EndCode.SUPERVISOR_LOST)
    assert folder.exit() is not None


@pytest.mark.slow(target="faults")
def test_a_file_system_error_ends_the_attempt_with_the_reason(
    machine: Machine, abandoned: tuple[ScriptedRun, AttemptFolder]
) -> None:
    run, folder = abandoned
    shutil.rmtree(folder.path / "out")
    (folder.path / "out").write_text("where a folder should be")
    machine.start_agent()
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "crashed"
    assert "The node returned an error" in run.end["message"]


@pytest.mark.slow(target="faults")
def test_a_fetch_that_crashes_fails_the_attempt(
    api: ScriptedApi,
    machine: Machine,
    abandoned: tuple[ScriptedRun, AttemptFolder],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, folder = abandoned
    drop_claim(folder)
    run.downloads.append(api.store("data/train-1.bin", b"x"))
    monkeypatch.setattr(
        api, "with_new_link", lambda download, number: download | {"url": "http://[no-address/"}
    )
    machine.start_agent()
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "fetch_failed"
    assert not run.steps


def test_an_ended_attempt_is_shipped_and_reported_after_a_reboot(
    machine: Machine, abandoned: tuple[ScriptedRun, AttemptFolder]
) -> None:
    run, folder = abandoned
    record_supervisor(folder, "another")
    write_events(folder.path, step_line(1))
    folder.write_exit(Outcome(code=EndCode.DIVERGED, message="loss is nan", rank=1))
    machine.start_agent()
    wait_for(lambda: run.ends, "an end")
    assert (run.end["code"], run.end["rank"]) == ("diverged", 1)
    assert run.steps == [1]
    machine.wait_until_idle()


def test_an_accepted_end_is_repeated_and_the_folder_deleted(
    machine: Machine, abandoned: tuple[ScriptedRun, AttemptFolder]
) -> None:
    run, folder = abandoned
    record_supervisor(folder, boot_id())
    folder.write_exit(Outcome(code=EndCode.CRASHED, message="m"))
    run.closed = True
    machine.start_agent()
    machine.wait_until_idle()
    assert len(run.ends) == 1


@pytest.mark.slow(target="faults")
def test_an_unreadable_folder_does_not_block_the_others(api: ScriptedApi, machine: Machine) -> None:
    workspace = Workspace(machine.data)
    workspace.prepare()
    (workspace.runs / "0broken").mkdir()
    (workspace.runs / "0broken" / "claim.json").write_text('{"from": "a newer agent"}')
    run = api.place(steps=2, ranks=1)
    machine.start_agent()
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "finished"


def test_the_response_to_a_claim_is_stored_unchanged(
    machine: Machine, abandoned: tuple[ScriptedRun, AttemptFolder]
) -> None:
    run, folder = abandoned
    drop_claim(folder)
    run.order = "wait"
    machine.start_agent()
    wait_for(lambda: run.renewals, "a renewal")
    claim = json.loads((folder.path / "claim.json").read_text())["claim"]
    assert (claim["fence"], claim["job"]["run_id"]) == (1, "run_1")
