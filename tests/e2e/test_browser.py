"""The browser tests of runs: Playwright drives Chromium against a live platform, one for each of them.

Those of the pages around runs are in ``test_pages``, so that two cores share the minutes.
"""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.e2e.long_run import growing_run, waiting_runs
from tests.e2e.restarted_api import api_by_switch
from tests.live import (
    EMAIL,
    SCALED_TIMERS,
    Live,
    finished,
    live_platform,
    small_spec,
    write_letters,
)

ONE_SLOT = {"device": "cpu", "slots_per_node": 1}

PATIENT = SCALED_TIMERS | {"lease_seconds": 90.0, "margin_seconds": 20.0}
"""The run's lease outlives the API's absence, however busy the machine is."""

SLOW_STEPS = {
    "batch": {"sequence_tokens": 256, "micro_sequences": 4, "global_sequences": 64},
    "schedule": {"steps": 100, "warmup_steps": 5},
    "validation": {"every_steps": 1_000, "sequences": 8},
    "checkpoint": {"every_steps": 50},
}
"""Few and long, so that the table beside a chart has a row for each of them while the run lasts."""


@pytest.mark.timeout(420)
def test_a_person_trains_a_model_in_the_browser(repository: Path, tmp_path: Path) -> None:
    with live_platform(tmp_path / "data") as live:
        drive(repository, live, "main.spec.ts")


@pytest.mark.timeout(420)
def test_a_person_reads_what_fp8_does_to_a_run(repository: Path, tmp_path: Path) -> None:
    with live_platform(tmp_path / "data") as live:
        live.team.upload("letters", [write_letters(tmp_path / "letters.jsonl")])
        drive(repository, live, "fp8.spec.ts")


@pytest.mark.timeout(420)
def test_a_person_reads_a_run_of_a_million_steps_while_it_grows(repository: Path, tmp_path: Path) -> None:
    with live_platform(tmp_path / "data") as live:
        dataset = live.team.upload("letters", [write_letters(tmp_path / "letters.jsonl")])
        with growing_run(live, dataset) as run_id:
            waiting_runs(live, dataset, ["night 1", "night 2"])
            drive(repository, live, "long.spec.ts", {"TRAINWRIGHT_E2E_RUN": run_id})


@pytest.mark.timeout(420)
def test_a_person_holds_names_and_compares_runs(repository: Path, tmp_path: Path) -> None:
    with live_platform(tmp_path / "data") as live:
        dataset = live.team.upload("letters", [write_letters(tmp_path / "letters.jsonl")])
        short = {"resources": {"device": "cpu", "slots_per_node": 1}, "checkpoint": {"every_steps": 5}}
        runs = [
            live.team.submit(small_spec(dataset, name=name, optimizer={"learning_rate": rate}, **short))
            for name, rate in (("pilot-1", 1e-3), ("pilot-2", 3e-3))
        ]
        for run in runs:
            finished(live.team, run.id)
        endless = {
            "schedule": {"steps": 1_000_000, "warmup_steps": 5},
            "checkpoint": {"every_steps": 100_000},
        }
        runs.append(live.team.submit(small_spec(dataset, name="endless", **endless)))
        named = ",".join(run.id for run in runs)
        drive(repository, live, "pages2.spec.ts", {"TRAINWRIGHT_E2E_RUNS": named})


@pytest.mark.timeout(480)
def test_a_person_watches_a_run_through_breaks_and_a_viewer_sees_it_all(
    repository: Path, tmp_path: Path
) -> None:
    with live_platform(tmp_path / "data", PATIENT, cpu_slots=2) as live:
        dataset = live.team.upload("letters", [write_letters(tmp_path / "letters.jsonl", documents=2_000)])
        short = live.team.submit(small_spec(dataset, name="short", resources=ONE_SLOT))
        assert finished(live.team, short.id, seconds=240).state == "succeeded"
        long = live.team.submit(small_spec(dataset, name="long", resources=ONE_SLOT, **SLOW_STEPS))
        switch = tmp_path / "switch"
        more = {
            "TRAINWRIGHT_E2E_IDS": f"{short.id},{long.id},{dataset.id}",
            "TRAINWRIGHT_E2E_SWITCH": str(switch),
        }
        with api_by_switch(live, switch):
            drive(repository, live, "people.spec.ts", more)


def drive(
    repository: Path, live: Live, spec: str, more: Mapping[str, str] | None = None, seconds: float = 400
) -> None:
    environment = os.environ | {
        "TRAINWRIGHT_E2E_URL": live.platform.url,
        "TRAINWRIGHT_E2E_LINK": live.platform.command("link", "sign-in", EMAIL).strip(),
        **(more or {}),
    }
    # Playwright empties the folder of its traces before it begins, also while others write there.
    own = ["--output", str(repository / "tests" / "e2e" / "test-results" / spec)]
    node = [str(repository / "infra" / "with-node.sh"), "npm", "run", "e2e", "--", spec, *own]
    done = subprocess.run(
        node, cwd=repository, env=environment, capture_output=True, text=True, timeout=seconds
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
