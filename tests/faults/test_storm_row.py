"""Row F5 of the fault table: an API that is killed while people submit and cancel runs as fast as they can."""

import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.faults.disturbed_run import LONG_FAULTS, DisturbedRun
from tests.faults.rows import FaultRow
from tests.live import (
    PATIENT_TIMERS,
    TEAM,
    Live,
    eventually,
    rank_processes,
    small_spec,
)
from trainwright.client import Client, TeamClient
from trainwright.contracts.api.datasets import Dataset
from trainwright.contracts.run_state import RunState
from trainwright.transport.errors import ApiError

STORM_SECONDS = 1.0
CALLERS = 4


@pytest.fixture(scope="module")
def timers() -> Mapping[str, float]:
    """Leases outlast the start of an API, so that the run trains on."""
    return PATIENT_TIMERS


@dataclass
class Storm:
    """People who submit and cancel runs as fast as they can, and what the server acknowledged."""

    live: Live
    spec: Mapping[str, Any]
    submitted: dict[str, str] = field(default_factory=dict)
    """Id by the run's name."""
    cancelled: set[str] = field(default_factory=set)
    _done: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def blowing(self) -> Iterator[None]:
        key = self.live.client.create_key("storm").secret
        callers = [threading.Thread(target=self._call, args=(number, key)) for number in range(CALLERS)]
        for caller in callers:
            caller.start()
        try:
            yield
        finally:
            self._done.set()
            for caller in callers:
                caller.join()

    def wait_for_another(self) -> None:
        """Wait until one more run is submitted."""
        known = len(self.submitted)
        eventually(lambda: len(self.submitted) > known, "runs are submitted again", 60)

    def _call(self, number: int, key: str) -> None:
        with Client(self.live.platform.url, key) as client:
            team = client.team(TEAM)
            count = 0
            while not self._done.is_set():
                count += 1
                name = f"storm-{number}-{count}"
                # The client repeats a request whose answer is lost. What it gives up is not acknowledged.
                with suppress(httpx.TransportError, ApiError):
                    run_id = team.submit({**self.spec, "name": name}).id
                    self.submitted[name] = run_id
                    team.cancel(run_id)
                    self.cancelled.add(run_id)


def check_acknowledged(storm: Storm, listed: Iterable[tuple[str, str, RunState]]) -> None:
    """Fail unless each acknowledged run exists once under its name, and each acknowledged cancel holds."""
    ids: dict[str, list[str]] = {}
    states = {}
    for name, run_id, state in listed:
        ids.setdefault(name, []).append(run_id)
        states[run_id] = state
    lost = [name for name, run_id in storm.submitted.items() if run_id not in ids.get(name, [])]
    assert not lost, f"acknowledged but lost: {lost[:5]}"
    twice = [name for name, found in ids.items() if len(found) > 1]
    assert not twice, f"duplicated: {twice[:5]}"
    running = [run_id for run_id in storm.cancelled if states[run_id] is not RunState.CANCELLED]
    assert not running, f"cancelled, but {running[:5]}"


@pytest.mark.fault_row(name="F5", trials=20, long=500)
def test_an_api_that_is_killed_in_a_storm_loses_and_repeats_nothing(
    row: FaultRow, live: Live, team: TeamClient, dataset: Dataset
) -> None:
    run = DisturbedRun.submit(team, dataset, LONG_FAULTS)
    run.wait_until_it_trains(attempt=1)
    ranks = rank_processes(live.platform.folder.path)
    storm = Storm(live, small_spec(dataset))
    with storm.blowing():
        for _ in range(row.count):
            time.sleep(STORM_SECONDS)
            pid = live.platform.pid("api")
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            killed = time.monotonic()
            live.platform.start_api()
            with row.trial():
                row.recovered(killed)
                storm.wait_for_another()
                assert rank_processes(live.platform.folder.path) == ranks
    assert len(storm.submitted) > row.count
    acknowledged = max(storm.submitted)
    listed = [(item.name, item.id, item.state) for item in team.runs() if item.name.startswith("storm-")]
    with row.checking("runs"):
        check_acknowledged(storm, listed)
        assert run.show().attempt == 1
    with row.control():
        check_acknowledged(storm, [item for item in listed if item[0] != acknowledged])
