"""Slot-hours by person: in every response, they are the fold of the recorded intervals."""

import csv
import io
import random
from collections import defaultdict
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from sqlalchemy import select

from tests.backend.conftest import Site
from trainwright.commands.usage import print_csv, print_run_csv, show
from trainwright.contracts.api.limits import LimitUse
from trainwright.contracts.api.usage import DailyMemberUsage, DailyRunUsage, Usage
from trainwright_backend.auth.tables import Account, Team
from trainwright_backend.core.db import now
from trainwright_backend.core.ids import new_id, public_id
from trainwright_backend.teams.usage import add_slot_time

HOUR = 3600.0


class Interval(NamedTuple):
    """A period in which a run used slots."""

    run_id: UUID
    user_id: UUID | None
    device: str
    slots: int
    since: datetime
    until: datetime


def team_and_people(site: Site, team: str = "acme") -> tuple[UUID, dict[str, UUID]]:
    with site.app.state.database.read() as session:
        team_id = session.scalars(select(Team.id).where(Team.slug == team)).one()
        return team_id, {row.email: row.id for row in session.execute(select(Account.email, Account.id))}


def random_intervals(people: list[UUID | None], count: int) -> list[Interval]:
    """Several intervals per run, since a run has attempts and is metered repeatedly. Some span midnights."""
    choose, intervals = random.Random(11), []
    runs = [(new_id(), choose.choice(people), choose.choice(["cpu", "cuda"])) for _ in range(count // 3)]
    for _ in range(count):
        run_id, user_id, device = choose.choice(runs)
        since = now() - timedelta(seconds=choose.uniform(HOUR, 40 * 24 * HOUR))
        until = since + timedelta(seconds=choose.choice([30.0, 7.5 * HOUR, 50 * HOUR]))
        intervals.append(Interval(run_id, user_id, device, choose.randint(1, 8), since, min(until, now())))
    return intervals


def record(site: Site, team_id: UUID, intervals: list[Interval]) -> None:
    with site.app.state.database.write() as session:
        for one in intervals:
            add_slot_time(session, team_id, *one)


def fold(intervals: list[Interval], days: int) -> dict[tuple[date, UUID | None, str], float]:
    """Slot-hours by day, person and device, by the overlap of each interval with each day."""
    found: dict[tuple[date, UUID | None, str], float] = defaultdict(float)
    for back in range(days):
        day = now().date() - timedelta(days=back)
        begin = datetime.combine(day, time(), UTC)
        for one in intervals:
            overlap = min(one.until, begin + timedelta(days=1)) - max(one.since, begin)
            if overlap > timedelta():
                hours = one.slots * overlap.total_seconds() / HOUR
                found[day, one.user_id, one.device] += hours
    return found


def by(found: dict[tuple[date, UUID | None, str], float], *parts: int) -> dict[tuple[Any, ...], float]:
    """Sums over the parts of the key that are not named."""
    sums: dict[tuple[Any, ...], float] = defaultdict(float)
    for key, hours in found.items():
        sums[tuple(key[part] for part in parts)] += hours
    return sums


def month_start() -> datetime:
    return datetime.combine(now().date().replace(day=1), time(), UTC)


def close(wanted: dict[Any, float]) -> Any:
    return pytest.approx(wanted, rel=1e-9)


@pytest.mark.both_databases
def test_every_response_is_the_fold_of_the_intervals(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.member("editor")
    gone = site.member("viewer")
    team_id, people = team_and_people(site)
    intervals = random_intervals([*people.values(), None], 90)
    record(site, team_id, intervals)
    assert gone.delete(f"{site.path}/members/me").status_code == 204
    ids = {None if user is None else public_id("user", user): user for user in (*people.values(), None)}
    for days in (1, 7, 30, 366):
        wanted, query = fold(intervals, days), {"days": days}
        usage = Usage.model_validate(site.admin.get(f"{site.path}/usage", params=query).json())
        assert {(ids[one.user], one.device): one.slot_hours for one in usage.members} == close(
            by(wanted, 1, 2)
        )
        assert {(one.day, one.device): one.slot_hours for one in usage.days} == close(by(wanted, 0, 2))
        hours = [one.slot_hours for one in usage.members]
        assert hours == sorted(hours, reverse=True)
        response = site.admin.get(f"{site.path}/usage/members", params=query).json()
        daily = [DailyMemberUsage.model_validate(one) for one in response]
        assert {(one.day, ids[one.user], one.device): one.slot_hours for one in daily} == close(wanted)
        assert [one.day for one in daily] == sorted(one.day for one in daily)
        print_csv(daily)
        rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
        assert {
            (date.fromisoformat(row["day"]), ids[row["user"] or None], row["device"]): float(
                row["slot_hours"]
            )
            for row in rows
        } == close(wanted)
        response = site.admin.get(f"{site.path}/usage/runs", params=query).json()
        runs = [DailyRunUsage.model_validate(one) for one in response]
        by_person: dict[tuple[date, UUID | None, str], float] = defaultdict(float)
        for one in runs:
            by_person[one.day, ids[one.user], one.device] += one.slot_hours
        assert by_person == close(wanted)
        assert len({(one.day, one.run) for one in runs}) == len(runs)
        print_run_csv(runs)
        rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
        assert [(row["run"], float(row["slot_hours"])) for row in rows] == [
            (one.run, one.slot_hours) for one in runs
        ]
    month = [one._replace(since=max(one.since, month_start())) for one in intervals]
    sums = by(fold(month, 31), 2)
    report = LimitUse.model_validate(site.admin.get(f"{site.path}/limits").json())
    assert {(one.device,): one.used for one in report.hours if one.used} == close(sums)
    told = {(one.name, one.in_team, one.user is None) for one in usage.members}
    assert told == {
        ("Ada", True, False),
        ("Editor", True, False),
        ("Viewer", False, False),
        ("", False, True),
    }
    show(usage)
    printed = capsys.readouterr().out
    assert "Viewer (no longer in the team)" in printed and "(unknown)" in printed


def test_other_teams_and_later_days_are_left_out(site: Site) -> None:
    stranger = site.other_team("globex")
    team_id, people = team_and_people(site, "globex")
    owner = people["owner@globex.example"]
    record(site, team_id, random_intervals([owner], 9))
    assert site.admin.get(f"{site.path}/usage/members").json() == []
    assert site.admin.get(f"{site.path}/usage").json()["members"] == []
    theirs = stranger.get("/api/v1/teams/globex/usage/members", params={"days": 366}).json()
    assert theirs and {one["user"] for one in theirs} == {public_id("user", owner)}
    assert stranger.get(f"{site.path}/usage/members").status_code == 404
    for days in (0, 367):
        refused = site.admin.get(f"{site.path}/usage/members", params={"days": days})
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "days")


def test_a_name_that_is_a_formula_is_text_in_the_csv(capsys: pytest.CaptureFixture[str]) -> None:
    one = DailyMemberUsage(
        day=date(2026, 1, 1),
        user="user_x",
        name='=HYPERLINK("x")',
        in_team=True,
        device="cpu",
        slot_hours=1.5,
    )
    print_csv([one])
    [row] = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert row["name"] == '\'=HYPERLINK("x")' and row["slot_hours"] == "1.5"
