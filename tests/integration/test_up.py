"""`trainwright-server up`: Ctrl-C leaves no process, and a run that was training resumes at the next start."""

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.live import (
    PATIENT_TIMERS,
    TEAM,
    eventually,
    finished,
    live_environment,
    marked_processes,
    small_spec,
    write_letters,
)
from trainwright.client import Client
from trainwright.contracts.api.people import OneTimeLink
from trainwright.contracts.run_state import RunState
from trainwright_backend.local.platform import bind_socket


@contextmanager
def up(folder: Path, port: int) -> Iterator[list[str]]:
    """Run the command in a process until Ctrl-C; yields the lines that it prints once it is serving."""
    command = [sys.executable, "-m", "trainwright_backend.cli", "up"]
    process = subprocess.Popen(
        [*command, "--data", str(folder), "--port", str(port)],
        env=os.environ | live_environment(PATIENT_TIMERS),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield [process.stdout.readline() for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow(target="faults")
def test_ctrl_c_stops_everything_and_the_next_start_resumes(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with bind_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    with up(folder, port) as lines, Client(address) as client:
        token = lines[-1].strip().rsplit("/", 1)[-1]
        password = secrets.token_urlsafe(16)
        client.use_link(OneTimeLink(token=token, name="Ada", email="a@b.c", password=password, team=TEAM))
        key = client.create_key("tests").secret
        with Client(address, key) as keyed:
            team = keyed.team(TEAM)
            eventually(lambda: any(node.online for node in keyed.nodes()), "the node joins", 60)
            dataset = team.upload("letters", [write_letters(tmp_path / "letters.jsonl")])
            batch = {"sequence_tokens": 128, "micro_sequences": 8, "global_sequences": 32}
            spec = small_spec(dataset, batch=batch, schedule={"steps": 150, "warmup_steps": 5})
            run = team.submit(spec)
            eventually(lambda: team.run(run.id).summary.step >= 15, "the run is training", 90)
    assert marked_processes(folder) == []

    with up(folder, port) as lines, Client(address, key) as client:
        assert "Sign in" in lines[-1]
        team = client.team(TEAM)
        run = finished(team, run.id)
        assert run.state is RunState.SUCCEEDED, run.sentence
        marks = team.metrics(run.id).attempts
        assert run.attempt == 2
        assert marks[1].resume_step >= 10, "it resumed from a checkpoint"
    assert marked_processes(folder) == []
