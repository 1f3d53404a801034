"""The browser tests: Playwright drives Chromium against a live platform, one for each of them."""

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
    eventually,
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
def test_a_person_brings_data_in(repository: Path, tmp_path: Path) -> None:
    with live_platform(tmp_path / "data") as live:
        drive(repository, live, "data.spec.ts")


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


@pytest.mark.timeout(600)
def test_a_person_lives_in_the_pages_around_a_run(repository: Path, tmp_path: Path) -> None:
    with live_platform(tmp_path / "data", cpu_slots=2) as live:
        dataset = live.team.upload("letters", [write_letters(tmp_path / "letters.jsonl")])
        resources = {"device": "cpu", "slots_per_node": 1}
        run = live.team.submit(small_spec(dataset, name="short", resources=resources))
        assert finished(live.team, run.id).state == "succeeded"
        drive(repository, live, "pages1.spec.ts", seconds=520)


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


@pytest.mark.timeout(960)
def test_every_page_is_readable_in_light_and_dark_on_a_phone_and_on_a_wide_screen(
    repository: Path, tmp_path: Path
) -> None:
    with live_platform(tmp_path / "data") as live:
        dataset = live.team.upload("letters", [write_letters(tmp_path / "letters.jsonl")])
        in_fp8 = {"name": "eight bits", "precision": {"kind": "fp8"}, "resources": ONE_SLOT}
        done = live.team.submit(small_spec(dataset, **in_fp8))
        assert finished(live.team, done.id, seconds=180).state == "succeeded"
        long = {"name": "held", "schedule": {"steps": 1_000_000, "warmup_steps": 5}, "resources": ONE_SLOT}
        held = live.team.submit(small_spec(dataset, **long))
        eventually(lambda: live.team.run(held.id).summary.step >= 20, "it trains", 120)
        live.team.pause(held.id)
        eventually(lambda: live.team.run(held.id).state == "paused", "it is held", 60)
        more = {"TRAINWRIGHT_E2E_IDS": f"{done.id},{held.id},{dataset.id}"}
        drive(repository, live, "every.spec.ts", more, seconds=700)


def drive(
    repository: Path, live: Live, spec: str, more: Mapping[str, str] | None = None, seconds: float = 400
) -> None:
    environment = os.environ | {
        "TRAINWRIGHT_E2E_URL": live.platform.url,
        "TRAINWRIGHT_E2E_LINK": live.platform.command("link", "sign-in", EMAIL).strip(),
        **(more or {}),
    }
    node = [str(repository / "infra" / "with-node.sh"), "npm", "run", "e2e", "--", spec]
    done = subprocess.run(
        node, cwd=repository, env=environment, capture_output=True, text=True, timeout=seconds
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
