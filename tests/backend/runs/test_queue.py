"""The order of the queue: priorities and positions within a team, and fair shares between teams."""

from datetime import date, timedelta
from uuid import UUID

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from tests.backend.conftest import Site, upload_letters
from tests.backend.scripted_agent import Scene
from trainwright_backend.auth.tables import Team
from trainwright_backend.core.db import now
from trainwright_backend.core.ids import new_id
from trainwright_backend.runs.tables import Run
from trainwright_backend.scheduling.fair_share import REMEMBERED_SECONDS, FairOrder
from trainwright_backend.teams.slot_quota import SlotBudget
from trainwright_backend.teams.tables import SlotTime
from trainwright_backend.teams.usage import decayed_usage


def submit(scene: Scene, name: str, priority: str = "normal", by: TestClient | None = None) -> str:
    spec = scene.spec() | {"name": name}
    response = (by or scene.site.admin).post(scene.runs, json=spec, params={"priority": priority})
    assert response.status_code == 201, response.text
    assert response.json()["priority"] == priority
    return str(response.json()["id"])


def queue(scene: Scene) -> list[str]:
    """Names of the waiting runs."""
    found = scene.site.admin.get(f"{scene.site.path}/queue").json()["items"]
    assert [run["position"] for run in found] == list(range(1, len(found) + 1))
    return [run["name"] for run in found]


def test_runs_start_by_priority_then_submission_and_the_queue_shows_why_they_wait(scene: Scene) -> None:
    for name, priority in (("low", "low"), ("first", "normal"), ("second", "normal"), ("high", "high")):
        submit(scene, name, priority)
    assert queue(scene) == ["high", "first", "second", "low"]
    scene.site.admin.put(f"{scene.site.path}/quota/cpu", json={"limit": 1})
    scene.control.sweep()
    found = scene.site.admin.get(f"{scene.site.path}/queue").json()["items"]
    full = "needs 1 CPU slot; your team uses 1 of 1 (high)"
    assert [run["sentence"] for run in found] == [
        "placed on node-a",
        full,
        f"{full}; 2nd in line, behind first",
        f"{full}; 3rd in line, behind second",
    ]
    assert [scene.show(run["id"])["sentence"] for run in found] == [run["sentence"] for run in found]
    assert {(run["created_by"], run["mine"], run["slots"], run["device"]) for run in found} == {
        ("Ada", True, 1, "cpu")
    }
    page = scene.site.admin.get(f"{scene.site.path}/queue", params={"limit": 3}).json()
    rest = scene.site.admin.get(f"{scene.site.path}/queue", params={"cursor": page["next_cursor"]}).json()
    assert (page["items"] + rest["items"], rest["next_cursor"]) == (found, None)


def test_people_reorder_only_their_own_runs(scene: Scene) -> None:
    editor, order = scene.site.member("editor"), f"{scene.site.path}/queue/order"
    mine = [submit(scene, f"mine {number}", by=editor) for number in range(2)]
    other = submit(scene, "other")
    mine.append(submit(scene, "mine 2", by=editor))
    assert editor.put(order, json={"runs": mine[::-1]}).status_code == 200
    assert queue(scene) == ["mine 2", "mine 1", "other", "mine 0"]
    low = submit(scene, "low", "low", editor)
    running = submit(scene, "running", "high")
    scene.control.sweep()
    scene.agent.claim(running)
    for runs, status, code in (
        ([mine[0], other], 403, "not_your_run"),
        ([mine[0], low], 422, "invalid"),
        ([mine[0], mine[0]], 422, "invalid"),
        ([mine[0], running], 409, "run_not_queued"),
        ([mine[0], "run_none"], 404, "not_found"),
        ([mine[0]], 422, "invalid"),
    ):
        response = (scene.site.admin if running in runs else editor).put(order, json={"runs": runs})
        assert (response.status_code, response.json()["code"]) == (status, code), runs
    assert scene.site.admin.put(order, json={"runs": [other, mine[2]]}).status_code == 200, "an owner may"
    assert queue(scene)[-4:] == ["mine 1", "mine 2", "mine 0", "low"]


def test_a_role_cannot_exceed_its_highest_priority(scene: Scene) -> None:
    editor = scene.site.member("editor")
    refused = editor.post(scene.runs, json=scene.spec(), params={"priority": "high"})
    assert (refused.status_code, refused.json()["code"]) == (403, "priority_too_high")
    assert refused.json()["detail"] == (
        "priority high is higher than you can assign in this team as editor. Use normal, or ask an owner of the team."
    )
    first, second = submit(scene, "first", by=editor), submit(scene, "second", by=editor)
    assert editor.patch(f"{scene.runs}/{second}", json={"priority": "high"}).status_code == 403
    assert editor.patch(f"{scene.runs}/{first}", json={"priority": "low"}).json()["priority"] == "low"
    assert queue(scene) == ["second", "first"]
    assert scene.site.admin.patch(f"{scene.runs}/{first}", json={"priority": "high"}).status_code == 200
    assert queue(scene) == ["first", "second"]
    events = scene.site.admin.get(f"{scene.runs}/{first}/events").json()
    assert [event["message"] for event in events if event["type"] == "priority_changed"] == [
        "priority low, by Editor",
        "priority high, by Ada",
    ]


@pytest.mark.both_databases
def test_the_team_with_less_usage_goes_first_and_usage_is_halved_every_week(scene: Scene) -> None:
    other = Site(scene.site.app, scene.site.other_team("globex"), "globex")
    data = {"dataset": upload_letters(other)["id"], "tokenizer": {"kind": "bytes"}}
    with scene.database.read() as session:
        teams = {team.slug: team.id for team in session.scalars(select(Team))}
    today = now().date()
    use(scene, teams["acme"], today - timedelta(days=14), 4_000.0)
    use(scene, teams["acme"], today - timedelta(days=100), 1e9)
    use(scene, teams["globex"], today, 999.0)
    with scene.database.read() as session:
        assert decayed_usage(session, "cpu") == {teams["acme"]: 1_000.0, teams["globex"]: 999.0}
        assert decayed_usage(session, "cuda") == {}
    ours = scene.submit(slots=2)
    theirs = other.admin.post(f"{other.path}/runs", json=scene.spec(slots=2, data=data)).json()["id"]
    other.prepare()
    scene.control.sweep()
    shown = other.admin.get(f"{other.path}/runs/{theirs}").json()
    assert shown["sentence"] == "placed on node-a", "although it was submitted later"
    assert scene.show(ours)["sentence"] == "needs 2 slots, 0 free on 1 node"


def use(scene: Scene, team_id: UUID, day: date, slot_seconds: float) -> None:
    with scene.database.write() as session:
        row = {"run_id": new_id(), "day": day, "device": "cpu", "team_id": team_id, "user_id": None}
        session.add(SlotTime(**row, slot_seconds=slot_seconds))


SUBMITTED = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=24)


@given(
    submitted=SUBMITTED,
    usage=st.lists(st.floats(0, 1e7), min_size=4, max_size=4),
    shares=st.lists(st.integers(0, 6), min_size=4, max_size=4),
)
def test_teams_take_turns_by_share_and_usage_and_each_keeps_its_own_order(
    submitted: list[tuple[int, int]], usage: list[float], shares: list[int]
) -> None:
    """Every run occurs once, the runs of a team are in order, runs within a share go before those that borrow, and no other team
    whose next run is like it has used less."""
    teams = [new_id() for _ in range(4)]
    runs = [Run(id=new_id(), team_id=teams[team], slots=slots) for team, slots in submitted]
    budgets = {team: SlotBudget(100, 0, share) for team, share in zip(teams, shares, strict=True)}
    used = dict(zip(teams, usage, strict=True))
    seen: list[Run] = []
    for run in FairOrder(runs, used, budgets):
        heads = {one.team_id: one for one in reversed(runs) if one not in seen}
        turns = {
            team: (
                budgets[team].used + head.slots > budgets[team].guaranteed,
                used[team] + budgets[team].used * REMEMBERED_SECONDS,
            )
            for team, head in heads.items()
        }
        assert turns[run.team_id] == min(turns.values())
        budgets[run.team_id].used += run.slots
        seen.append(run)
    assert len(seen) == len(runs)
    for team in teams:
        assert [run for run in seen if run.team_id == team] == [run for run in runs if run.team_id == team]
