"""The browser tests of the pages around runs: data, the form, the table, and every page in both colours."""

from pathlib import Path

import pytest

from tests.e2e.test_browser import ONE_SLOT, drive
from tests.live import eventually, finished, live_platform, small_spec, write_letters


@pytest.mark.timeout(420)
def test_a_person_brings_data_in(repository: Path, tmp_path: Path) -> None:
    with live_platform(tmp_path / "data") as live:
        drive(repository, live, "data.spec.ts")


@pytest.mark.timeout(600)
def test_a_person_lives_in_the_pages_around_a_run(repository: Path, tmp_path: Path) -> None:
    with live_platform(tmp_path / "data", cpu_slots=2) as live:
        dataset = live.team.upload("letters", [write_letters(tmp_path / "letters.jsonl")])
        resources = {"device": "cpu", "slots_per_node": 1}
        run = live.team.submit(small_spec(dataset, name="short", resources=resources))
        assert finished(live.team, run.id).state == "succeeded"
        drive(repository, live, "pages1.spec.ts", seconds=520)


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
