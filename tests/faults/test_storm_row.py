"""Row F5 of the fault table: an API that is killed while people submit and cancel runs as fast as they can."""

import os
import signal
import time
from collections.abc import Mapping

import pytest

from tests.faults.disturbed_run import LONG_FAULTS, DisturbedRun
from tests.faults.rows import FaultRow
from tests.faults.storm import Storm, check_acknowledged, listed_runs
from tests.live import PATIENT_TIMERS, Live, rank_processes, small_spec
from trainwright.client import TeamClient
from trainwright.contracts.api.datasets import Dataset

STORM_SECONDS = 1.0


@pytest.fixture(scope="module")
def timers() -> Mapping[str, float]:
    """Leases outlast the start of an API, so that the run trains on."""
    return PATIENT_TIMERS


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
    listed = listed_runs(team)
    with row.checking("runs"):
        check_acknowledged(storm, listed)
        assert run.show().attempt == 1
    with row.control():
        check_acknowledged(storm, [item for item in listed if item[0] != acknowledged])
