"""Limits of hours, storage, runs and priorities are exact, pause runs without ending them, and send notices."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from httpx import Response
from sqlalchemy import func, select

from tests.backend.conftest import send_file
from tests.backend.runs.conftest import Served
from tests.backend.scripted_agent import Control, Scene, Work
from trainwright.contracts.run_state import RunState
from trainwright_backend.core.db import now
from trainwright_backend.core.ids import parse_id
from trainwright_backend.runs.tables import PlacementSlot, Run
from trainwright_backend.teams.tables import LimitNotice

pytestmark = pytest.mark.usefixtures("in_the_middle_of_a_month")


def limit(scene: Scene, **limits: Any) -> None:
    response = scene.site.admin.put(f"{scene.site.path}/limits", json=limits)
    assert response.status_code == 200, response.text


def limit_me(scene: Scene, **limits: Any) -> None:
    me = scene.site.admin.get("/api/v1/me").json()["id"]
    response = scene.site.admin.put(f"{scene.site.path}/limits/members/{me}", json=limits)
    assert response.status_code == 200, response.text


def my_storage(scene: Scene, name: str = "Ada") -> dict[str, Any]:
    """What a member stores, without their limit."""
    response = scene.site.admin.get(f"{scene.site.path}/limits/members")
    [storage] = [item["storage"] for item in response.json() if item["name"] == name]
    return storage | {"limit_bytes": None}


def use(scene: Scene) -> dict[str, Any]:
    response = scene.site.admin.get(f"{scene.site.path}/limits")
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def resume(scene: Scene, run_id: str) -> Response:
    return scene.site.admin.post(f"{scene.runs}/{run_id}/resume")


def pause_as_ordered(work: Work, step: int) -> str:
    """Act as the node: save, and report it."""
    assert work.order("running") == "save"
    work.save(step)
    return work.ended("saved", step=step)


def used_for(scene: Scene, run_id: str, hours: float) -> None:
    """Pretend that the run's time was last metered this long ago, within this month."""
    with scene.database.write() as session:
        session.get_one(Run, parse_id("run", run_id)).metered_until = now() - timedelta(hours=hours)


def test_used_up_hours_pause_a_run_that_can_resume_after_the_limit_is_raised(scene: Scene) -> None:
    work = scene.running(2)
    used_for(scene, work.run_id, 1)
    limit(scene, cpu_hours_per_month=2.1)
    scene.control.sweep()
    assert work.order("running") == "go"
    limit(scene, cpu_hours_per_month=2.0)
    scene.control.sweep()
    Control(scene.site.app).sweep()  # another process
    assert pause_as_ordered(work, 3) == "paused"
    shown = scene.show(work.run_id)
    assert shown["reason"] == "quota_hours"
    assert "2.0 of 2 CPU slot-hours" in shown["sentence"]
    refused = resume(scene, work.run_id)
    assert (refused.status_code, refused.json()["code"]) == (403, "quota_exceeded")
    limit(scene, cpu_hours_per_month=100)
    assert resume(scene, work.run_id).status_code == 202
    scene.control.sweep()
    again = scene.agent.claim(work.run_id)
    assert again.claim.job.resume is not None and again.claim.job.resume.step == 3


def test_a_member_s_hours_block_only_their_own_runs(scene: Scene) -> None:
    work = scene.running(1)
    used_for(scene, work.run_id, 1)
    limit_me(scene, cpu_hours_per_month=1)
    editor = scene.site.member("editor")
    scene.control.sweep()
    assert pause_as_ordered(work, 3) == "paused"
    mine = scene.submit()
    theirs = editor.post(scene.runs, json=scene.spec()).json()["id"]
    scene.control.sweep()
    assert "Ada used 1.0 of 1 CPU slot-hours" in scene.show(mine)["sentence"]
    scene.agent.claim(theirs)


def test_hours_that_are_used_up_keep_runs_waiting_until_the_limit_is_raised(scene: Scene) -> None:
    limit(scene, cpu_hours_per_month=0, gpu_hours_per_month=5)
    run_id = scene.submit()
    scene.control.sweep()
    assert scene.show(run_id)["sentence"].startswith("your team used 0.0 of 0 CPU slot-hours")
    limit(scene, cpu_hours_per_month=1)
    scene.control.sweep()
    scene.agent.claim(run_id)


@pytest.mark.slow(target="databases")
@pytest.mark.parametrize(("below", "paused"), [(0, False), (1, True)])
@pytest.mark.parametrize("whose", ["team", "member"])
def test_a_run_without_storage_for_its_next_checkpoint_saves_and_is_paused(
    scene: Scene, whose: str, below: int, paused: bool
) -> None:
    set_limit = limit if whose == "team" else limit_me
    work = scene.running(steps=50)
    work.save(3)
    work.step(4, 6)
    work.save(6)
    work.step(7, 8)
    storage = use(scene)["storage"]
    total = sum(storage[f"{part}_bytes"] for part in ("uploads", "prepared", "checkpoint"))
    assert 0 < storage["reserved_bytes"] < storage["checkpoint_bytes"]
    assert storage["prepared_bytes"] > 0
    assert my_storage(scene) == storage, "all of it is theirs"
    set_limit(scene, storage_bytes=total + storage["reserved_bytes"] - below)
    scene.control.sweep()
    assert work.order("running") == ("save" if paused else "go")
    if not paused:
        return
    work.save(8)
    after = use(scene)["storage"]
    assert after["checkpoint_bytes"] <= storage["checkpoint_bytes"] + storage["reserved_bytes"]
    assert work.ended("saved", step=8) == "paused"
    assert scene.show(work.run_id)["reason"] == "quota_storage"
    set_limit(scene, storage_bytes=total)
    refused = resume(scene, work.run_id)
    assert (refused.status_code, refused.json()["code"]) == (403, "storage_exceeded")
    assert scene.state(work.run_id) == "paused"
    set_limit(scene, storage_bytes=2 * total)
    assert resume(scene, work.run_id).status_code == 202


def test_the_newest_of_several_runs_is_paused_for_storage(scene: Scene) -> None:
    first, second = scene.running(steps=50), scene.running(steps=50)
    storage = use(scene)["storage"]
    total = sum(storage[f"{part}_bytes"] for part in ("uploads", "prepared", "checkpoint"))
    limit(scene, storage_bytes=total + storage["reserved_bytes"] // 2)
    scene.control.sweep()
    assert first.order("running") == "go" and second.order("running") == "save"
    third = scene.submit()
    assert second.ended("saved", step=3) == "paused"
    scene.control.sweep()
    assert "for its next checkpoints; your team stores" in scene.show(third)["sentence"]


@pytest.mark.both_databases
@pytest.mark.parametrize("whose", ["team", "member"])
def test_an_upload_fits_the_total_storage_to_the_byte(scene: Scene, whose: str) -> None:
    storage = use(scene)["storage"]
    total = sum(storage[f"{part}_bytes"] for part in ("uploads", "prepared", "checkpoint"))
    (limit if whose == "team" else limit_me)(scene, storage_bytes=total + 100)
    headers = {"Tus-Resumable": "1.0.0", "Upload-Metadata": "filename YQ=="}
    refused = scene.site.admin.post(f"{scene.site.path}/uploads", headers=headers | {"Upload-Length": "101"})
    assert (refused.status_code, refused.json()["code"]) == (403, "storage_exceeded")
    assert ("your team stores" if whose == "team" else "you store") in refused.json()["detail"]
    send_file(scene.site.admin, scene.site.path, "a", b"x" * 100)


def test_a_member_s_storage_does_not_limit_others(scene: Scene) -> None:
    """It counts what they uploaded first, what was prepared for their datasets, and the checkpoints of their runs."""
    before = my_storage(scene)
    editor = scene.site.member("editor")
    send_file(editor, scene.site.path, "b", b"y" * 100)
    headers = {"Tus-Resumable": "1.0.0", "Upload-Metadata": "filename Yw==", "Upload-Length": "50"}
    assert editor.post(f"{scene.site.path}/uploads", headers=headers).status_code == 201
    assert my_storage(scene) == before
    assert my_storage(scene, "Editor")["uploads_bytes"] == 150, "also what is not complete"
    send_file(scene.site.admin, scene.site.path, "b", b"y" * 100)
    assert my_storage(scene) == before, "it was there already"
    limit_me(scene, storage_bytes=0)
    mine, theirs = scene.submit(), editor.post(scene.runs, json=scene.spec()).json()["id"]
    scene.control.sweep()
    assert "for its next checkpoints; Ada stores" in scene.show(mine)["sentence"]
    assert scene.show(theirs)["sentence"] == "placed on node-a"
    notices = [notice["sentence"] for notice in use(scene)["notices"]]
    assert "Ada stores 100 % of 0 B; runs whose next checkpoints do not fit are paused." in notices


@pytest.mark.slow(target="databases")
@pytest.mark.both_databases
@pytest.mark.parametrize("whose", ["team", "member"])
def test_parallel_submissions_never_exceed_the_limit_of_waiting_runs(scene: Scene, whose: str) -> None:
    (limit if whose == "team" else limit_me)(scene, queued_runs=5)
    with ThreadPoolExecutor(8) as pool:
        responses = list(pool.map(lambda _: scene.site.admin.post(scene.runs, json=scene.spec()), range(12)))
    assert sorted(response.status_code for response in responses) == [201] * 5 + [403] * 7
    refused = next(response.json() for response in responses if response.status_code == 403)
    assert refused["code"] == "quota_exceeded" and "5 waiting runs" in refused["detail"]
    with scene.database.read() as session:
        queued = select(func.count()).select_from(Run).where(Run.state == RunState.QUEUED)
        assert session.scalar(queued) == 5


@pytest.mark.slow(target="databases")
@pytest.mark.both_databases
@pytest.mark.parametrize("limits", [{"concurrent_runs": 1}, {"cpu_slots": 1}, {}])
def test_two_control_loops_place_no_more_runs_than_the_limits_allow(
    scene: Scene, limits: dict[str, int]
) -> None:
    limit_me(scene, **limits)
    limit(scene, concurrent_runs=1 if not limits else None)
    runs = [scene.submit() for _ in range(3)]
    loops = [scene.control, Control(scene.site.app)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda loop: loop.sweep(), loops * 2))
    with scene.database.read() as session:
        assert session.scalar(select(func.count()).select_from(PlacementSlot)) == 1
    sentences = [scene.show(run)["sentence"] for run in runs[1:]]
    assert all("at once" in sentence for sentence in sentences), sentences
    work = scene.agent.claim(runs[0])
    assert scene.cancel(runs[0]).status_code == 202
    assert work.ended("cancelled") == "cancelled"
    scene.control.sweep()
    scene.agent.claim(runs[1])


def test_a_run_that_exceeds_its_member_s_slots_is_refused(scene: Scene) -> None:
    limit_me(scene, cpu_slots=1)
    refused = scene.site.admin.post(scene.runs, json=scene.spec(2))
    [problem] = refused.json()["errors"]
    assert refused.status_code == 422 and problem["field"] == "resources.slots_per_node"
    assert "you may use 1 CPU slot at once" in problem["message"]


def test_the_highest_priority_is_that_of_the_role_in_the_team_and_of_the_member(scene: Scene) -> None:
    def submit(priority: str) -> int:
        query = {"priority": priority}
        return scene.site.admin.post(scene.runs, json=scene.spec(), params=query).status_code

    assert submit("high") == 201
    limit(scene, owner_priority="normal")
    assert (submit("high"), submit("normal")) == (403, 201)
    limit_me(scene, highest_priority="low")
    assert (submit("normal"), submit("low")) == (403, 201)


@pytest.mark.both_databases
def test_a_notice_at_a_fraction_of_a_limit_is_sent_once_per_value_of_the_limit(scene: Scene) -> None:
    work = scene.running(2)
    used_for(scene, work.run_id, 1)
    limit(scene, cpu_hours_per_month=2.4)
    limit_me(scene, cpu_hours_per_month=50)
    for _ in range(2):
        scene.control.sweep()
    notices = use(scene)["notices"]
    assert [(one["resource"], one["percent"], one["member"]) for one in notices] == [("cpu_hours", 80, None)]
    assert notices[0]["sentence"].startswith("The team used 80 % of 2.4 CPU slot-hours")
    limit_me(scene, cpu_hours_per_month=2)
    scene.control.sweep()
    added = {(one["percent"], one["member"]) for one in use(scene)["notices"]}
    assert added == {(80, None), (80, "Ada"), (100, "Ada")}
    limit(scene, cpu_hours_per_month=2.5)
    scene.control.sweep()
    with scene.database.read() as session:
        assert session.scalar(select(func.count()).select_from(LimitNotice)) == 4


def test_limits_are_set_by_site_admins_and_by_owners_for_members(scene: Scene) -> None:
    owner = scene.site.other_team("globex")
    path = "/api/v1/teams/globex/limits"
    me = owner.get("/api/v1/me").json()["id"]
    assert owner.put(path, json={}).status_code == 403
    assert owner.put(f"{path}/members/{me}", json={"gpus": 2}).status_code == 200
    shown = {item["user"]: item["limits"]["gpus"] for item in owner.get(f"{path}/members").json()}
    [ada] = shown.keys() - {me}
    assert shown == {me: 2, ada: None}
    assert owner.put(f"{scene.site.path}/limits/members/{ada}", json={}).status_code == 404
    stranger = scene.site.member("editor")
    unknown = owner.put(f"{path}/members/{stranger.get('/api/v1/me').json()['id']}", json={})
    assert unknown.status_code == 404
    for wrong in ({"gpu_hours_per_month": -1}, {"hours": 1}, {"editor_priority": "urgent"}):
        response = scene.site.admin.put(path, json=wrong)
        assert response.status_code == 422 and response.json()["errors"][0]["field"] == next(iter(wrong))


def test_limits_are_shown_and_changed_by_command(scene: Scene, served: Served) -> None:
    key = scene.site.admin.headers["Authorization"].removeprefix("Bearer ")
    assert served.command(key, "limits set cpu_hours_per_month=500 queued_runs=20").exit_code == 0
    assert served.command(key, "limits set queued_runs=").exit_code == 0
    shown = served.command(key, "limits show").output
    assert "CPU slot-hours in" in shown and ", of 500;" in shown and "queued runs: 0, no limit" in shown
    changed = served.command(key, "limits set-member ada@acme.example cpu_slots=3 highest_priority=normal")
    assert changed.exit_code == 0, changed.output
    listed = served.command(key, "limits members").output
    assert "cpu_slots=3, highest_priority=normal" in listed
    assert "cpu: 0 of 9 slots" in served.command(key, "limits slots cpu 9").output
    shared = served.command(key, "limits slots cpu 9 --guaranteed 3").output
    assert "cpu: 0 of 9 slots, 3 guaranteed, 0 borrowed" in shared
    assert "The shares of all teams are 3 CPU slots, and the nodes have 2." in shared
    assert "3 guaranteed" in served.command(key, "usage").output
    wrong = served.command(key, "limits set hours=5")
    assert wrong.exit_code == 1 and "hours" in wrong.output
    unfinished = served.command(key, "limits set queued_runs")
    assert unfinished.exit_code == 1 and "FIELD=VALUE" in unfinished.output
