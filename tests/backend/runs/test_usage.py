"""Slot-hours: counted once, by day, in any order of events, and kept when the run is deleted."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from tests.backend.scripted_agent import Control, Scene
from trainwright.commands.usage import show
from trainwright.contracts.api.people import StorageUse
from trainwright.contracts.api.usage import DailyUsage, RunUsage, Usage
from trainwright_backend.core.db import now
from trainwright_backend.core.ids import parse_id
from trainwright_backend.runs.metering import meter_run
from trainwright_backend.runs.tables import Run
from trainwright_backend.teams.tables import SlotTime
from trainwright_backend.teams.usage import seconds_by_day

SLACK_SECONDS = 60.0
"""Allows for the tests' own run time; the checked values are hours."""
HOUR = 3600.0


def set_mark(scene: Scene, run_id: str, hours_ago: float) -> None:
    """Pretend that the run's time was last metered this long ago."""
    with scene.database.write() as session:
        session.get_one(Run, parse_id("run", run_id)).metered_until = now() - timedelta(hours=hours_ago)


def mark(scene: Scene, run_id: str) -> datetime | None:
    with scene.database.read() as session:
        return session.get_one(Run, parse_id("run", run_id)).metered_until


def counted(scene: Scene) -> float:
    """Total slot-seconds."""
    with scene.database.read() as session:
        return session.scalar(select(func.sum(SlotTime.slot_seconds))) or 0.0


def usage(scene: Scene, days: int = 30) -> dict[str, Any]:
    response = scene.site.admin.get(f"{scene.site.path}/usage", params={"days": days})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def about(seconds: float) -> Any:
    return pytest.approx(seconds, abs=SLACK_SECONDS)


def test_a_waiting_run_uses_nothing(scene: Scene) -> None:
    run_id = scene.submit(2)
    scene.control.sweep()
    assert mark(scene, run_id) is None
    assert scene.cancel(run_id).status_code == 202
    assert counted(scene) == 0.0
    assert usage(scene)["days"] == [] and usage(scene)["runs"] == []


@pytest.mark.both_databases
def test_the_sweep_counts_slots_times_seconds_once(scene: Scene) -> None:
    work = scene.running(2)
    set_mark(scene, work.run_id, 3)
    scene.control.sweep()
    assert counted(scene) == about(6 * HOUR)
    scene.control.sweep()
    Control(scene.site.app).sweep()  # another process's loop, or the same one after a restart
    assert counted(scene) == about(6 * HOUR)


def test_a_sweep_skips_recently_metered_runs(scene: Scene) -> None:
    work = scene.running()
    before = mark(scene, work.run_id)
    scene.control.sweep()
    assert mark(scene, work.run_id) == before and counted(scene) == 0.0


@pytest.mark.parametrize("end", ["success", "crash", "cancel"])
def test_the_transition_that_frees_the_slots_meters_the_rest(scene: Scene, end: str) -> None:
    work = scene.running(2, 10)
    set_mark(scene, work.run_id, 1)
    if end == "crash":
        assert work.ended("crashed") == "retry_wait"
    elif end == "cancel":
        assert scene.cancel(work.run_id).status_code == 202
        assert counted(scene) == 0.0, "the node has not released it yet"
        assert work.ended("cancelled") == "cancelled"
    else:
        work.save(10)
        assert work.order("completing") == "go"
        work.save(10, "export")
        assert work.ended("finished", step=10) == "succeeded"
    assert counted(scene) == about(2 * HOUR)
    assert mark(scene, work.run_id) is None
    scene.control.sweep()
    assert counted(scene) == about(2 * HOUR)


def test_time_between_attempts_is_not_metered(scene: Scene) -> None:
    work = scene.running(2)
    set_mark(scene, work.run_id, 1)
    assert work.ended("crashed") == "retry_wait"
    again = scene.again(work.run_id)
    started = mark(scene, work.run_id)
    assert started is not None and now() - started < timedelta(seconds=SLACK_SECONDS)
    set_mark(scene, work.run_id, 2)
    assert again.order("starting") == "go"
    assert again.ended("crashed") == "retry_wait"
    assert counted(scene) == about(6 * HOUR)


@pytest.mark.both_databases
def test_concurrent_metering_counts_once(scene: Scene) -> None:
    work = scene.running(2)
    set_mark(scene, work.run_id, 1)

    def count(_: int) -> None:
        with scene.database.write() as session:
            meter_run(session, parse_id("run", work.run_id))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(8)))
    assert counted(scene) == about(2 * HOUR)


@pytest.mark.both_databases
def test_failed_metering_stores_nothing(scene: Scene) -> None:
    work = scene.running(2)
    set_mark(scene, work.run_id, 1)
    with pytest.raises(RuntimeError), scene.database.write() as session:
        meter_run(session, parse_id("run", work.run_id))
        session.flush()
        raise RuntimeError("the process dies")
    assert counted(scene) == 0.0
    scene.control.sweep()
    assert counted(scene) == about(2 * HOUR)


def test_setting_the_clock_back_removes_no_usage(scene: Scene) -> None:
    work = scene.running(2)
    set_mark(scene, work.run_id, -1)
    ahead = mark(scene, work.run_id)
    with scene.database.write() as session:
        meter_run(session, parse_id("run", work.run_id))
    assert mark(scene, work.run_id) == ahead and counted(scene) == 0.0
    assert work.ended("crashed") == "retry_wait"
    assert counted(scene) == 0.0


def test_a_run_that_an_older_version_started_is_counted_from_the_first_sweep_on(scene: Scene) -> None:
    work = scene.running(2)
    with scene.database.write() as session:
        session.get_one(Run, parse_id("run", work.run_id)).metered_until = None
    scene.control.sweep()
    assert mark(scene, work.run_id) is not None and counted(scene) == 0.0


def test_midnight_in_utc_splits_an_interval() -> None:
    since = datetime(2026, 3, 1, 22, 0, tzinfo=UTC)
    cut = list(seconds_by_day(since, since + timedelta(hours=27)))
    assert cut == [
        (date(2026, 3, 1), 2 * HOUR),
        (date(2026, 3, 2), 24 * HOUR),
        (date(2026, 3, 3), HOUR),
    ]
    elsewhere = since.astimezone(datetime.fromisoformat("2026-03-01T00:00:00+09:00").tzinfo)
    assert list(seconds_by_day(elsewhere, since + timedelta(hours=27))) == cut
    assert list(seconds_by_day(since, since)) == []


def test_usage_is_listed_by_day_and_run(scene: Scene) -> None:
    work = scene.running(2)
    set_mark(scene, work.run_id, 50)
    scene.control.sweep()
    found = usage(scene)
    hours = {day["day"]: day["slot_hours"] for day in found["days"]}
    assert sum(hours.values()) == pytest.approx(100, abs=0.1)
    assert list(hours) == sorted(hours) and 3 <= len(hours) <= 4
    assert [day["device"] for day in found["days"]] == ["cpu"] * len(hours)
    assert [(run["run"], run["name"]) for run in found["runs"]] == [(work.run_id, "pilot")]
    assert found["quota"] == scene.site.admin.get(scene.site.path).json()["quota"]
    today = usage(scene, 1)
    assert [day["day"] for day in today["days"]] == [f"{now().date()}"]
    assert today["runs"][0]["slot_hours"] == pytest.approx(hours[f"{now().date()}"], abs=0.1)


def test_the_usage_of_a_deleted_run_stays_without_its_name(scene: Scene) -> None:
    work = scene.running(2)
    set_mark(scene, work.run_id, 1)
    scene.cancel(work.run_id)
    assert work.ended("cancelled") == "cancelled"
    assert scene.site.admin.delete(f"{scene.runs}/{work.run_id}").is_success
    [gone] = usage(scene)["runs"]
    assert gone["name"] == "" and gone["slot_hours"] == pytest.approx(2, abs=0.05)


def test_usage_is_visible_to_its_own_team_only(scene: Scene) -> None:
    work = scene.running(2)
    set_mark(scene, work.run_id, 1)
    scene.control.sweep()
    stranger = scene.site.other_team("globex")
    assert stranger.get("/api/v1/teams/globex/usage").json()["days"] == []
    assert stranger.get(f"{scene.site.path}/usage").status_code == 404
    for days in (0, 367):
        assert scene.site.admin.get(f"{scene.site.path}/usage", params={"days": days}).status_code == 422


def test_the_command_prints_days_and_runs(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    work = scene.running(2)
    set_mark(scene, work.run_id, 1)
    scene.control.sweep()
    show(Usage.model_validate(usage(scene)))
    printed = capsys.readouterr().out
    assert "cpu: 2 of 8 slots" in printed and "of 1 TiB" in printed
    assert work.run_id in printed and "2.0" in printed


def test_each_run_is_printed_with_its_own_hours(capsys: pytest.CaptureFixture[str]) -> None:
    found = Usage(
        quota=[],
        storage=StorageUse(used_bytes=0, limit_bytes=1),
        days=[
            DailyUsage(day=date(2026, 1, day), device="cpu", slot_hours=hours)
            for day, hours in ((1, 9.25), (2, 8.5))
        ],
        runs=[
            RunUsage(run=f"run_{name}", name=name, device="cpu", slot_hours=hours)
            for name, hours in (("large", 7.75), ("small", 0.5))
        ],
    )
    show(found)
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["2026-01-01", "cpu", "9.25"] in printed and ["2026-01-02", "cpu", "8.50"] in printed
    assert ["run_large", "large", "cpu", "7.75"] in printed and [
        "run_small",
        "small",
        "cpu",
        "0.50",
    ] in printed
