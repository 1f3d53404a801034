"""Browser tests of data, the run form, the table, every page, and a run with interruptions."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.api_switch import api_switch
from tests.e2e.browser import ONE_SLOT, Browser, only_audited
from tests.e2e.layout_change import killed_in_its_first_layout
from tests.live import (
    PATIENT_TIMERS,
    Live,
    eventually,
    finished,
    live_platform,
    series,
    small_spec,
    write_letters,
)

SLOW_STEPS = {
    "batch": {"sequence_tokens": 256, "micro_sequences": 4, "global_sequences": 64},
    "schedule": {"steps": 100, "warmup_steps": 5},
    "validation": {"every_steps": 1_000, "sequences": 8},
    "checkpoint": {"every_steps": 50},
}
"""Few and long, so that the table next to a chart has a row for each of them while the run lasts."""

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_platform(tmp_path_factory.mktemp("platform") / "data", PATIENT_TIMERS, cpu_slots=4) as running:
        yield running


@only_audited
def test_a_person_brings_data_in(browser: Browser) -> None:
    browser.run("datasets.spec.ts")


@only_audited
def test_a_person_writes_copies_filters_and_deletes_runs(browser: Browser, tmp_path: Path) -> None:
    dataset = browser.team.upload("letters", [write_letters(tmp_path / "letters.jsonl")])
    run = browser.team.submit(small_spec(dataset, name="short", resources=ONE_SLOT))
    assert finished(browser.team, run.id).state == "succeeded"
    browser.run("run-form-and-list.spec.ts")


@only_audited
def test_people_join_change_roles_and_leave(browser: Browser) -> None:
    browser.run("people.spec.ts")


@only_audited
def test_every_page_is_accessible(browser: Browser, tmp_path: Path) -> None:
    dataset = browser.team.upload("letters", [write_letters(tmp_path / "letters.jsonl")])
    in_fp8 = {"name": "eight bits", "precision": {"kind": "fp8"}, "resources": ONE_SLOT}
    sampled = {"every_steps": 10, "sequences": 8, "prompts": ["Letter ", "the ship"]}
    done = browser.team.submit(small_spec(dataset, validation=sampled, **in_fp8))
    assert finished(browser.team, done.id, seconds=180).state == "succeeded"
    long = {"name": "held", "schedule": {"steps": 1_000_000, "warmup_steps": 5}, "resources": ONE_SLOT}
    held = browser.team.submit(small_spec(dataset, **long))
    eventually(lambda: browser.team.run(held.id).summary.step >= 20, "it trains", 120)
    browser.team.pause(held.id)
    eventually(lambda: browser.team.run(held.id).state == "paused", "it is paused", 60)
    ids = {"TRAINWRIGHT_E2E_IDS": f"{done.id},{held.id},{dataset.id}"}
    browser.run("every-page.spec.ts", ids)


@only_audited
def test_a_person_watches_a_run_through_interruptions_and_a_viewer_sees_it_all(
    browser: Browser, tmp_path: Path
) -> None:
    dataset = browser.team.upload("letters", [write_letters(tmp_path / "letters.jsonl", documents=2_000)])
    short = browser.team.submit(small_spec(dataset, name="short", resources=ONE_SLOT))
    assert finished(browser.team, short.id, seconds=240).state == "succeeded"
    long = browser.team.submit(small_spec(dataset, name="long", resources=ONE_SLOT, **SLOW_STEPS))
    switch = tmp_path / "switch"
    environment = {
        "TRAINWRIGHT_E2E_IDS": f"{short.id},{long.id},{dataset.id}",
        "TRAINWRIGHT_E2E_SWITCH": str(switch),
    }
    with api_switch(browser.live, switch):
        browser.run("interruptions.spec.ts", environment)


@only_audited
def test_a_person_changes_the_layout_of_a_run_that_is_killed(browser: Browser, tmp_path: Path) -> None:
    """The run starts on 2 × 2 ranks, gets another layout in the browser, loses a rank, and continues in that layout."""
    browser.team.upload("letters", [write_letters(tmp_path / "letters.jsonl")])
    with killed_in_its_first_layout(browser.live, browser.team, at_step=25) as jobs:
        browser.run("layout-change.spec.ts")
    [run] = browser.team.runs()
    assert (run.state, run.attempt) == ("succeeded", 2)
    axes = [(job.spec.degrees.data, job.spec.degrees.tensor, job.spec.degrees.pipeline) for job in jobs]
    assert axes == [(2, 2, 1), (2, 1, 2)]
    assert jobs[1].resume is not None and jobs[1].resume.step >= 10
    assert list(series(browser.team, run.id, "loss")) == list(range(1, run.spec.schedule.steps + 1))
