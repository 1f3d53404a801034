"""A run of 2 × 2 ranks that is laid out anew in the browser, loses a rank, and goes on in the other layout."""

from pathlib import Path

import pytest

from tests.e2e.killed_run import killed_in_its_first_layout
from tests.e2e.test_browser import drive
from tests.live import SCALED_TIMERS, live_platform, series, write_letters

PATIENT = SCALED_TIMERS | {"lease_seconds": 90.0, "margin_seconds": 20.0, "start_seconds": 300.0}
"""Four ranks, a browser and whatever else there is share the cores: only the kill is to end an attempt."""


@pytest.mark.timeout(720)
def test_a_person_changes_the_layout_of_a_run_that_is_killed(repository: Path, tmp_path: Path) -> None:
    with live_platform(tmp_path / "data", PATIENT, cpu_slots=4) as live:
        live.team.upload("letters", [write_letters(tmp_path / "letters.jsonl")])
        with killed_in_its_first_layout(live, at_step=25) as jobs:
            drive(repository, live, "layout.spec.ts", seconds=560)
        [run] = live.team.runs()
        assert (run.state, run.attempt) == ("succeeded", 2)
        axes = [(job.spec.degrees.data, job.spec.degrees.tensor, job.spec.degrees.pipeline) for job in jobs]
        assert axes == [(2, 2, 1), (2, 1, 2)]
        assert jobs[1].resume is not None and jobs[1].resume.step >= 10
        assert list(series(live.team, run.id, "loss")) == list(range(1, run.spec.schedule.steps + 1))
