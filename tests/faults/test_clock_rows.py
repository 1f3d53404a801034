"""Row F11 of the fault table: a node whose wall clock is wrong or is set keeps its runs."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.disturbed_run import LEASE_SECONDS, LONG_FAULTS, DisturbedRun, check_equal, reference_losses
from tests.faults.rows import FaultRow
from tests.faults.shifted_clock.sitecustomize import FILE, SHIFTS_ALL
from tests.live import Live, LiveAgent, end_runs, live_agent
from trainwright.contracts.api.datasets import Dataset

TEN_MINUTES = 600.0
SHIFTS = {
    "ten minutes fast": (TEN_MINUTES, TEN_MINUTES),
    "ten minutes slow": (-TEN_MINUTES, -TEN_MINUTES),
    "set by twenty minutes": (-TEN_MINUTES, TEN_MINUTES),
}
"""Seconds to add to the node's clock when its agent starts, and once its run trains."""


@contextmanager
def shifted_agent(live: Live, folder: Path, *, all_clocks: bool = False) -> Iterator[tuple[LiveAgent, Path]]:
    """An agent whose clock is wrong by the seconds in the file. It is the only node that takes runs."""
    shift = folder.with_name(f"{folder.name}.shift")
    within = ["env", f"PYTHONPATH={Path(__file__).parent / 'shifted_clock'}", f"{FILE}={shift}"]
    shift.write_text("0")
    with live_agent(live, folder, folder.name, within=[*within, *[f"{SHIFTS_ALL}=1"] * all_clocks]) as agent:
        yield agent, shift


@pytest.mark.fault_row(name="F11", trials=3, long=10)
def test_a_clock_that_is_wrong_ends_no_attempt(
    row: FaultRow, live: Live, dataset: Dataset, tmp_path: Path
) -> None:
    undisturbed = reference_losses(live.team, dataset)
    (own,) = live.client.nodes()
    live.client.set_draining(own.id, True)
    kinds = list(SHIFTS)
    with shifted_agent(live, tmp_path / "shifted") as (_, shift):
        for number in range(row.count):
            kind = kinds[number % len(kinds)]
            at_start, later = SHIFTS[kind]
            shift.write_text(str(at_start))
            run = DisturbedRun.submit(live.team, dataset, LONG_FAULTS)
            with row.trial(kind):
                run.wait_until_it_trains(attempt=1)
                shift.write_text(str(later))
                check_undisturbed(run)
                check_equal(run.losses_so_far(), undisturbed)
            end_runs(live.team)

    with shifted_agent(live, tmp_path / "all", all_clocks=True) as (_, shift):
        run = DisturbedRun.submit(live.team, dataset, LONG_FAULTS)
        run.wait_until_it_trains(attempt=1)
        shift.write_text(str(TEN_MINUTES))
        with row.control():
            check_undisturbed(run)
        shift.write_text("0")
        end_runs(live.team)


def check_undisturbed(run: DisturbedRun) -> None:
    """Fail unless the first attempt still trains after two leases."""
    time.sleep(2 * LEASE_SECONDS)
    found = run.show()
    assert (found.attempt, str(found.state)) == (1, "running"), found.sentence
    run.wait_until_it_trains(attempt=1, beyond=found.summary.step)
