"""The order to save: the supervisor waits for the trainer to save, and exits immediately if there is nothing to
save."""

import json
import time

import pytest

from tests.agent.api import ScriptedApi, ScriptedRun
from tests.agent.machine import Machine, wait_for


def test_the_saved_checkpoint_is_shipped_before_the_end(api: ScriptedApi, machine: Machine) -> None:
    run = api.place(steps=10_000)
    machine.start_agent()
    wait_for(lambda: run.phases[-1:] == ["running"], "steps")
    run.order = "save"
    wait_for(lambda: run.ends, "an end")
    machine.wait_until_idle()
    assert (run.end["code"], run.end["step"]) == ("saved", run.steps[-1])
    assert run.commits[-1]["step"] == run.steps[-1]
    assert [commit["kind"] for commit in run.commits] == ["state"] * len(run.commits), "nothing was exported"
    assert without_end(run) == ["starting", "running"]


def test_an_order_to_save_before_the_first_go_starts_nothing(api: ScriptedApi, machine: Machine) -> None:
    run = api.place(resume={"step": 20, "digest": "0" * 64})
    run.order = "save"
    machine.start_agent()
    wait_for(lambda: run.ends, "an end")
    machine.wait_until_idle()
    assert (run.end["code"], run.end["step"], run.steps) == ("stopped", 20, [])
    assert without_end(run) == ["starting"]


@pytest.mark.slow(target="faults")
def test_a_trainer_without_a_step_has_nothing_to_save_and_is_stopped(
    api: ScriptedApi, machine: Machine
) -> None:
    run = api.place(name="silent")
    machine.start_agent()
    machine.rank_pids()
    run.order = "save"
    wait_for(lambda: run.ends, "an end")
    machine.wait_until_idle()
    assert (run.end["code"], run.end["step"]) == ("stopped", 0)


def test_an_order_to_save_ends_the_export(api: ScriptedApi, machine: Machine) -> None:
    run = api.place(name="slow", steps=5)
    machine.start_agent()
    wait_for(lambda: run.phases[-1:] == ["completing"], "exporting")
    run.order = "save"
    wait_for(lambda: run.ends, "an end")
    machine.wait_until_idle()
    assert (run.end["code"], run.end["step"]) == ("saved", 5)
    assert [(commit["kind"], commit["step"]) for commit in run.commits] == [("state", 5)]


@pytest.mark.slow(target="faults")
def test_a_trainer_that_finishes_before_it_sees_the_order_is_not_exported(
    api: ScriptedApi, machine: Machine
) -> None:
    run = api.place(name="stopless", steps=25)
    machine.start_agent()
    wait_for(lambda: run.phases[-1:] == ["running"], "steps")
    run.order = "save"
    wait_for(lambda: run.ends, "an end")
    machine.wait_until_idle()
    assert run.steps == list(range(1, 26)), "it was not interrupted"
    assert (run.end["code"], run.end["step"]) == ("saved", 25)
    assert {commit["kind"] for commit in run.commits} == {"state"}


@pytest.mark.slow(target="faults")
@pytest.mark.parametrize("name", ["stopless", "stopless stubborn"])
def test_a_kill_after_an_order_to_save_is_obeyed_immediately(
    api: ScriptedApi, machine: Machine, name: str
) -> None:
    run = api.place(name=name, steps=10_000)
    machine.start_agent()
    wait_for(lambda: run.phases[-1:] == ["running"], "steps")
    run.order = "save"
    stop_file = machine.attempt().path / "stop.json"
    wait_for(stop_file.exists, "the stop file")
    assert json.loads(stop_file.read_text()) == {}
    run.order = "kill"
    ordered = time.monotonic()
    wait_for(lambda: not machine.processes(), "no process left")
    allowance = 1.5  # scheduling on a busy machine
    assert time.monotonic() - ordered < api.timers.renewal_seconds + api.timers.grace_seconds + allowance
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "stopped"
    machine.wait_until_idle()


@pytest.mark.slow(target="faults")
def test_a_trainer_that_fails_while_saving_is_reported_as_failed(api: ScriptedApi, machine: Machine) -> None:
    run = api.place(name="stopless crash", steps=10_000)
    machine.start_agent()
    wait_for(lambda: run.phases[-1:] == ["running"], "steps")
    run.order = "save"
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "diverged"
    machine.wait_until_idle()


def without_end(run: ScriptedRun) -> list[str]:
    """The reported phases before the end: a supervisor whose end is already reported does not renew once more."""
    return [phase for phase in run.phases if phase != "ended"]
