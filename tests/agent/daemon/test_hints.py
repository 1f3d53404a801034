"""Dispatch hints through a real broker, and an agent without one."""

import os
import signal
import time
from pathlib import Path

import pytest
from celery import Celery

from tests.agent.api import ScriptedApi
from tests.agent.machine import Machine, wait_for
from trainwright.contracts.agent_protocol import HINT_TASK, HINTS_KEY_PREFIX, hints_queue


def celery_children(agent_pid: int) -> list[int]:
    found = []
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
            command = (path / "cmdline").read_bytes()
        except OSError:
            continue
        if int(parent) == agent_pid and b"trainwright_agent.daemon.hint_worker" in command:
            found.append(int(path.name))
    return found


@pytest.fixture
def slow_api(api: ScriptedApi, valkey_url: str) -> ScriptedApi:
    """An API with heartbeats so rare that only a hint can trigger the next one."""
    api.timers = api.timers.model_copy(update={"heartbeat_seconds": 60.0})
    api.hints_url = valkey_url
    return api


@pytest.mark.slow(target="faults")
def test_a_hint_triggers_a_heartbeat_and_its_worker_is_replaced_and_dies_with_the_agent(
    slow_api: ScriptedApi, machine: Machine, valkey_url: str
) -> None:
    sender = Celery(broker=valkey_url, set_as_current=False)
    sender.conf.update(
        broker_transport_options={"global_keyprefix": HINTS_KEY_PREFIX}, task_ignore_result=True
    )
    agent = machine.start_agent()
    wait_for(lambda: celery_children(agent.pid), "the hint worker")
    wait_for(lambda: slow_api.heartbeats, "the first heartbeat")
    run = slow_api.place(steps=2, ranks=1)
    sender.send_task(HINT_TASK, args=[run.run_id], queue=hints_queue("box"))
    wait_for(lambda: run.claims, "the claim that the hint triggered")

    (child,) = celery_children(agent.pid)
    environment = Path(f"/proc/{child}/environ").read_bytes()
    assert b"canary-node-token" not in environment
    assert "[tasks]" not in machine.log.read_text(), "the log has no banner of Celery"
    os.kill(child, signal.SIGKILL)
    wait_for(lambda: celery_children(agent.pid) not in ([], [child]), "another worker")
    (child,) = celery_children(agent.pid)
    machine.kill_agent()
    wait_for(lambda: not Path(f"/proc/{child}").exists(), "the worker dies with its agent")
    sender.close()


def test_the_agent_follows_a_broker_that_moves(api: ScriptedApi, machine: Machine, tmp_path: Path) -> None:
    api.hints_url = f"redis+socket://{tmp_path}/before.sock?virtual_host=0"
    agent = machine.start_agent()
    wait_for(lambda: celery_children(agent.pid), "the hint worker")
    api.hints_url = f"redis+socket://{tmp_path}/after.sock?virtual_host=0"

    def knows_the_new_one(pid: int) -> bool:
        try:
            return b"after.sock" in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False

    wait_for(lambda: any(map(knows_the_new_one, celery_children(agent.pid))), "a worker with the new broker")
    wait_for(lambda: len(celery_children(agent.pid)) == 1, "the old one gone")


@pytest.mark.slow(target="faults")
def test_a_dead_broker_does_not_stop_runs(api: ScriptedApi, machine: Machine, tmp_path: Path) -> None:
    api.hints_url = f"redis+socket://{tmp_path}/nobody.sock?virtual_host=0"
    run = api.place(steps=2, ranks=1)
    machine.start_agent()
    began = time.monotonic()
    wait_for(lambda: run.ends, "an end")
    assert time.monotonic() - began < 15
