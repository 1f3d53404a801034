"""Row F17 of the fault table: an object store that refuses requests, stalls, or changes bytes while a run stores its checkpoints."""

import itertools
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.backend.conftest import new_bucket
from tests.faults.disturbed_run import PATIENCE_SECONDS, DisturbedRun
from tests.faults.faulty_store import Fault, FaultyStore
from tests.faults.rows import FaultRow
from tests.live import PATIENT_TIMERS, Live, end_runs, eventually, finished, live_platform, series, small_spec
from trainwright.client import TeamClient
from trainwright.contracts.api.datasets import Dataset
from trainwright.contracts.run_state import FINAL, RunState
from trainwright.transport.errors import ApiError, DigestMismatchError

SEED = 20
SHARES = {
    Fault.REFUSES: 0.7,
    Fault.STALLS: 0.5,
    Fault.CHANGES_SENT: 0.5,
    Fault.CHANGES_RETURNED: 0.2,  # clients try a damaged file six times
}
FAULT_SECONDS = 20.0
"""The fault continues so long after the last step."""

READS = 10
"""Downloads of a model from a store that changes bytes."""

STEPS, SAVED_EVERY_STEPS = 60, 10


@pytest.fixture(scope="module")
def store() -> Iterator[FaultyStore]:
    with FaultyStore(SEED).running() as running:
        yield running


@pytest.fixture(scope="module")
def live(store: FaultyStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A platform whose objects are in the faulty store."""
    chosen: Mapping[str, Any] = new_bucket(store.endpoint)
    settings = {f"TRAINWRIGHT_{name.upper()}": str(value) for name, value in chosen.items()}
    folder = tmp_path_factory.mktemp("platform") / "data"
    with live_platform(folder, PATIENT_TIMERS, settings=settings) as running:
        yield running


@pytest.mark.fault_row(name="F17", trials=5, long=10)
def test_a_failing_object_store_loses_nothing(
    row: FaultRow, store: FaultyStore, live: Live, team: TeamClient, dataset: Dataset, tmp_path: Path
) -> None:
    spec = small_spec(
        dataset,
        schedule={"steps": STEPS, "warmup_steps": 5},
        checkpoint={"every_steps": SAVED_EVERY_STEPS},
    )
    reference = finished(team, team.submit(spec).id, PATIENCE_SECONDS)
    undisturbed = series(team, reference.id, "loss")
    for number, fault in enumerate(itertools.islice(itertools.cycle(Fault), row.count)):
        with row.trial(fault.value):
            run = DisturbedRun(team, team.submit(spec).id)
            run.wait_until_it_trains(attempt=1)
            with store.failing(fault, SHARES[fault]):
                _wait_beyond_last_step(run)
                if fault is Fault.CHANGES_RETURNED:  # nothing else reads while a run trains
                    for read in range(READS):
                        team.download(reference.id, tmp_path / f"{number}-{read}")
            over = time.monotonic()
            assert store.disturbed, "no request met the fault"
            found = finished(team, run.id, PATIENCE_SECONDS)
            row.recovered(over)
            assert (found.state, found.attempt) == (RunState.SUCCEEDED, 1), found.sentence
            assert series(team, run.id, "loss") == undisturbed
            check_stored(team, run.id, reference.id, tmp_path / f"{number}")
        end_runs(team)

    lost = team.submit(spec)
    finished(team, lost.id, PATIENCE_SECONDS)
    with store.failing(Fault.CHANGES_RETURNED, 1.0), row.control():
        check_stored(team, lost.id, reference.id, tmp_path / "control")


def _wait_beyond_last_step(run: DisturbedRun) -> None:
    """Fail if the run ends without success while the store fails."""
    eventually(lambda: run.show().summary.step == STEPS, "the last step", PATIENCE_SECONDS)
    last = time.monotonic()
    while time.monotonic() < last + FAULT_SECONDS:
        found = run.show()
        assert found.state not in FINAL or found.state is RunState.SUCCEEDED, found.sentence
        time.sleep(0.5)


def check_stored(team: TeamClient, run_id: str, reference: str, folder: Path) -> None:
    """Fail unless the run has the checkpoints of the undisturbed one, and each of them arrives with its digests."""
    expected = sorted((found.kind, found.step) for found in team.checkpoints(reference) if found.valid)
    found = team.checkpoints(run_id)
    assert sorted((each.kind, each.step) for each in found if each.valid) == expected
    for checkpoint in found:
        try:
            team.download(run_id, folder / checkpoint.id, checkpoint.id)
        except (httpx.TransportError, DigestMismatchError, ApiError) as error:
            raise AssertionError(f"{checkpoint.kind} of step {checkpoint.step}: {error}") from error
