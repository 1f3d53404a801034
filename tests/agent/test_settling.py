"""An agent that starts finds folders in every state they can be left in, and does what is left to do."""

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
from trainwright_agent.loop import start_supervisor, write_lost_end
from trainwright_agent.processes import MARKER_VARIABLE, boot_id
from trainwright_agent.workspace import AttemptFolder, ClaimRecord, SupervisorRecord, Workspace


def forget_answer(folder: AttemptFolder) -> None:
    """The agent died between writing the claim id and the answer."""
    folder.write_record(ClaimRecord(run_id="run_1", claim_id=folder.claim_id))


def name_supervisor(folder: AttemptFolder, boot: str) -> None:
    (folder.path / "supervisor.lock").touch()
    record = SupervisorRecord(boot_id=boot, pid=os.getpid())
    (folder.path / "supervisor.json").write_text(record.model_dump_json())


@pytest.fixture
def left(api: ScriptedApi, machine: Machine) -> tuple[ScriptedRun, AttemptFolder]:
    """A run that was claimed by an agent that is no more."""
    run = api.place(steps=5, ranks=1)
    folder = make_attempt(machine.data, run.run_id)
    run.claim_id = folder.claim_id
    run.claims.append(folder.claim_id)
    return run, folder


@pytest.mark.parametrize("answered", [True, False])
def test_never_supervised_is_claimed_again_and_started(
    machine: Machine, left: tuple[ScriptedRun, AttemptFolder], answered: bool
) -> None:
    run, folder = left
    if not answered:
        forget_answer(folder)
    machine.start_agent()
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "finished"
    assert run.claims == [folder.claim_id] * 2


def test_never_supervised_and_refused_is_deleted(
    api: ScriptedApi, machine: Machine, left: tuple[ScriptedRun, AttemptFolder]
) -> None:
    run, _ = left
    run.claim_id, run.closed = "another", True
    machine.start_agent()
    machine.wait_until_idle()
    assert not run.renewals


@pytest.mark.parametrize(("boot", "code"), [("this", "supervisor_lost"), ("another", "node_rebooted")])
def test_a_vanished_supervisor_is_reported_with_all_it_left(
    machine: Machine, left: tuple[ScriptedRun, AttemptFolder], boot: str, code: str
) -> None:
    run, folder = left
    name_supervisor(folder, boot_id() if boot == "this" else boot)
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


@pytest.mark.parametrize("left_behind", ["supervisor.json", "exit.json"])
def test_a_supervisor_that_comes_up_late_leaves_a_folder_that_had_another(
    machine: Machine, left: tuple[ScriptedRun, AttemptFolder], left_behind: str
) -> None:
    run, folder = left
    machine.join_by_hand()
    if left_behind == "supervisor.json":
        name_supervisor(folder, boot_id())
    else:
        folder.write_exit(Outcome(code=EndCode.STOPPED, message="m"))
    assert start_supervisor(folder).wait(20) == 0
    assert not run.renewals


def test_without_those_files_a_supervisor_begins(
    machine: Machine, left: tuple[ScriptedRun, AttemptFolder]
) -> None:
    """The negative control of the test above."""
    run, folder = left
    machine.join_by_hand()
    supervisor = start_supervisor(folder)
    machine.supervisors.add(supervisor.pid)
    wait_for(lambda: run.renewals, "a renewal")
    supervisor.kill()
    supervisor.wait()


def test_the_end_of_a_lost_attempt_is_written_under_its_lock(
    left: tuple[ScriptedRun, AttemptFolder],
) -> None:
    _, folder = left
    with folder.lock():  # a late supervisor is just looking
        assert not write_lost_end(folder, EndCode.SUPERVISOR_LOST)
        assert folder.exit() is None
    assert write_lost_end(folder, EndCode.SUPERVISOR_LOST)
    assert folder.exit() is not None


def test_a_node_that_refuses_a_folder_ends_the_attempt_with_the_reason(
    machine: Machine, left: tuple[ScriptedRun, AttemptFolder]
) -> None:
    run, folder = left
    shutil.rmtree(folder.path / "out")
    (folder.path / "out").write_text("where a folder should be")
    machine.start_agent()
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "crashed"
    assert "The node refused" in run.end["message"]


def test_a_fetch_that_breaks_off_is_no_success(
    api: ScriptedApi, machine: Machine, left: tuple[ScriptedRun, AttemptFolder]
) -> None:
    run, folder = left
    forget_answer(folder)
    run.downloads.append({**api.store("data/train-1.bin", b"x"), "url": "http://[no-address/"})
    machine.start_agent()
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "fetch_failed"
    assert not run.steps


def test_an_ended_attempt_is_shipped_and_reported_whatever_the_boot(
    machine: Machine, left: tuple[ScriptedRun, AttemptFolder]
) -> None:
    run, folder = left
    name_supervisor(folder, "another")
    write_events(folder.path, step_line(1))
    folder.write_exit(Outcome(code=EndCode.DIVERGED, message="loss is nan", rank=1))
    machine.start_agent()
    wait_for(lambda: run.ends, "an end")
    assert (run.end["code"], run.end["rank"]) == ("diverged", 1)
    assert run.steps == [1]
    machine.wait_until_idle()


def test_an_end_that_was_accepted_before_is_repeated_and_the_folder_deleted(
    machine: Machine, left: tuple[ScriptedRun, AttemptFolder]
) -> None:
    run, folder = left
    name_supervisor(folder, boot_id())
    folder.write_exit(Outcome(code=EndCode.CRASHED, message="m"))
    run.closed = True
    machine.start_agent()
    machine.wait_until_idle()
    assert len(run.ends) == 1


def test_a_folder_that_cannot_be_read_does_not_hold_up_the_others(api: ScriptedApi, machine: Machine) -> None:
    workspace = Workspace(machine.data)
    workspace.prepare()
    (workspace.runs / "0broken").mkdir()
    (workspace.runs / "0broken" / "claim.json").write_text('{"from": "a newer agent"}')
    run = api.place(steps=2, ranks=1)
    machine.start_agent()
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "finished"


def test_the_answer_to_a_claim_is_kept_word_for_word(
    machine: Machine, left: tuple[ScriptedRun, AttemptFolder]
) -> None:
    run, folder = left
    forget_answer(folder)
    run.order = "wait"
    machine.start_agent()
    wait_for(lambda: run.renewals, "a renewal")
    claim = json.loads((folder.path / "claim.json").read_text())["claim"]
    assert (claim["fence"], claim["job"]["run_id"]) == (1, "run_1")
