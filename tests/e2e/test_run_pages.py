"""Browser tests of the pages of runs: starting, watching, comparing and ending them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.browser import ONE_SLOT, Browser, only_audited
from tests.e2e.million_steps import growing_run, waiting_runs
from tests.live import PATIENT_TIMERS, Live, finished, live_platform, small_spec, write_letters

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_platform(tmp_path_factory.mktemp("platform") / "data", PATIENT_TIMERS) as running:
        yield running


def test_a_person_trains_a_model_in_the_browser(browser: Browser) -> None:
    browser.run("first-run.spec.ts")


@only_audited
def test_a_person_pauses_names_and_compares_runs(browser: Browser, tmp_path: Path) -> None:
    dataset = browser.team.upload("letters", [write_letters(tmp_path / "letters.jsonl")])
    short = {"resources": ONE_SLOT, "checkpoint": {"every_steps": 5}}
    runs = [
        browser.team.submit(small_spec(dataset, name=name, optimizer={"learning_rate": rate}, **short))
        for name, rate in (("pilot-1", 1e-3), ("pilot-2", 3e-3))
    ]
    for run in runs:
        finished(browser.team, run.id)
    endless = {
        "schedule": {"steps": 1_000_000, "warmup_steps": 5},
        "checkpoint": {"every_steps": 100_000},
    }
    runs.append(browser.team.submit(small_spec(dataset, name="endless", **endless)))
    browser.run("run-actions.spec.ts", {"TRAINWRIGHT_E2E_RUNS": ",".join(run.id for run in runs)})


@only_audited
def test_a_person_reads_what_fp8_does_to_a_run(browser: Browser, tmp_path: Path) -> None:
    browser.team.upload("letters", [write_letters(tmp_path / "letters.jsonl")])
    browser.run("fp8.spec.ts")


@only_audited
def test_a_person_reads_a_run_of_a_million_steps_while_it_grows(browser: Browser, tmp_path: Path) -> None:
    dataset = browser.team.upload("letters", [write_letters(tmp_path / "letters.jsonl")])
    with growing_run(browser.live, browser.team, dataset) as run_id:
        waiting_runs(browser.team, dataset, ["night 1", "night 2"])
        browser.run("million-steps.spec.ts", {"TRAINWRIGHT_E2E_RUN": run_id})
