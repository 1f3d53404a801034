"""Retention: what it keeps, what its dry run predicts, and concurrent deletions and pins."""

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import delete, select

from tests.backend.datasets.test_delete_races import response_after
from tests.backend.scripted_agent import Scene, Work
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright_backend.checkpoints import downloads
from trainwright_backend.checkpoints.deletion import delete_checkpoint
from trainwright_backend.checkpoints.tables import Checkpoint
from trainwright_backend.core.db import Write, now
from trainwright_backend.core.deletion_queue import LINK_SECONDS, QueuedDeletion
from trainwright_backend.core.ids import new_id, parse_id, public_id
from trainwright_backend.runs.tables import Run

ROUNDS = 25


def retain(scene: Scene, **asked: Any) -> Any:
    response = scene.site.admin.post(f"{scene.site.path}/checkpoints/retention", json=asked)
    assert response.status_code == 200, response.text
    return response.json()


def fates(result: Any) -> list[tuple[int, str, str | None]]:
    return [
        (entry["checkpoint"]["step"], entry["checkpoint"]["kind"], entry["kept"])
        for entry in result["checkpoints"]
    ]


def address(scene: Scene, run_id: str, step: int, kind: str = "state") -> str:
    path = f"{scene.runs}/{run_id}/checkpoints"
    (found,) = [
        item for item in scene.site.admin.get(path).json() if (item["step"], item["kind"]) == (step, kind)
    ]
    return f"{path}/{found['id']}"


def pin(scene: Scene, path: str, pinned: bool = True) -> Any:
    response = scene.site.admin.patch(path, json={"pinned": pinned})
    assert response.status_code == 200, response.text
    return response.json()


@pytest.fixture
def ended(scene: Scene) -> Work:
    """A run that has ended, with checkpoints at 2, 4, 6, 8 and 10, and an export."""
    work = scene.running(last_step=1, checkpoint={"keep": 10})
    for step in (2, 4, 6, 8, 10):
        work.step(step - (step > 2), step)
        work.save(step)
    assert work.order("completing") == "go"
    work.save(10, "export")
    assert work.ended("finished", step=10) == "succeeded"
    return work


def test_retention_returns_the_reason_to_keep_each_checkpoint(scene: Scene, ended: Work) -> None:
    pin(scene, address(scene, ended.run_id, 2))
    scene.site.admin.get(f"{address(scene, ended.run_id, 6)}/files")
    reply = retain(scene, keep_last=1, keep_every_steps=4)
    assert fates(reply) == [
        (10, "export", "export"),
        (10, "state", "newest"),
        (8, "state", "multiple"),
        (6, "state", "downloading"),
        (4, "state", "multiple"),
        (2, "state", "pinned"),
    ]
    assert reply["freed"] == {"dry_run": True, "bytes": 0, "checkpoints": 0}
    reply = retain(scene, keep_last=0, delete_exports=True)
    assert [step for step, _, kept in fates(reply) if kept is None] == [10, 8, 4]
    assert fates(reply)[0] == (10, "export", "export"), "a run's newest export is kept"


def test_a_live_run_always_keeps_two_valid_states(scene: Scene) -> None:
    work = scene.running(last_step=3, checkpoint={"keep": 10})
    for step in (1, 2, 3):
        work.save(step)
    assert fates(retain(scene, keep_last=0, dry_run=False)) == [
        (3, "state", "live"),
        (2, "state", "live"),
        (1, "state", None),
    ]
    refused = scene.site.admin.delete(address(scene, work.run_id, 3))
    assert (refused.status_code, refused.json()["code"]) == (409, "checkpoint_needed")
    scene.cancel(work.run_id)
    work.ended("stopped")
    assert [kept for *_, kept in fates(retain(scene, keep_last=0))] == [None, None]


def test_pinned_and_downloading_checkpoints_survive_pruning(scene: Scene) -> None:
    work = scene.running(last_step=6)
    work.save(1)
    pin(scene, address(scene, work.run_id, 1))
    work.save(2)
    scene.site.admin.get(f"{address(scene, work.run_id, 2)}/archive")
    for step in (3, 4, 5):
        work.save(step)
    kept = [item["step"] for item in scene.site.admin.get(f"{scene.runs}/{work.run_id}/checkpoints").json()]
    assert kept == [5, 4, 2, 1]


def test_a_dry_run_predicts_what_is_freed_and_needed_checkpoints_are_kept(scene: Scene) -> None:
    rng = random.Random(9)
    work = scene.start()
    work.finish(10)
    cancelled, live, fork = (scene.submit() for _ in range(3))
    scene.cancel(cancelled)
    ids = [work.run_id, cancelled, live]
    for _ in range(ROUNDS):
        _add_checkpoints(scene, rng, ids, fork)
        before = _all(scene)
        asked = {
            "keep_last": rng.choice([0, 1, 2, 5]),
            "keep_every_steps": rng.choice([None, 1, 3, 7]),
            "delete_exports": rng.random() < 0.5,
            "runs": rng.choice([None, ids[:1], ids[1:]]),
        }
        reply = retain(scene, **asked)
        assert _all(scene).keys() == before.keys(), "a dry run changes nothing"
        done = retain(scene, **asked, dry_run=False)
        assert done["checkpoints"] == reply["checkpoints"]
        assert done["freed"] == reply["freed"] | {"dry_run": False}
        after = _all(scene)
        gone = {public_id("ckpt", one.id): one for key, one in before.items() if key not in after}
        assert gone.keys() == {
            entry["checkpoint"]["id"] for entry in reply["checkpoints"] if entry["kept"] is None
        }
        assert reply["freed"]["bytes"] == sum(item.bytes for item in gone.values())
        _check_nothing_needed_was_deleted(scene, list(gone.values()), list(after.values()), live, fork)
        assert not retain(scene, **asked)["freed"]["checkpoints"], "there is nothing left to free"


def _add_checkpoints(scene: Scene, rng: random.Random, ids: list[str], fork: str) -> None:
    """Other checkpoints of all kinds, and a fork that starts from one of them."""
    with scene.database.write() as session:
        session.execute(delete(Checkpoint))
        made = [item for run_id in ids for item in _random(rng, parse_id("run", run_id))]
        session.add_all(made)
        row = session.get_one(Run, parse_id("run", fork))
        row.forked_checkpoint_id = rng.choice(made).id if made else None
        for step in range(rng.randint(0, 2)):
            session.add(_one(rng, row.id, step, CheckpointKind.STATE, valid=True))


def _random(rng: random.Random, run_id: Any) -> Iterator[Checkpoint]:
    for step in rng.sample(range(1, 30), rng.randint(0, 8)):
        kind = rng.choice([CheckpointKind.STATE] * 3 + [CheckpointKind.EXPORT])
        yield _one(rng, run_id, step, kind, valid=rng.random() < 0.8)


def _one(rng: random.Random, run_id: Any, step: int, kind: CheckpointKind, valid: bool) -> Checkpoint:
    named = new_id()
    return Checkpoint(
        id=named,
        run_id=run_id,
        attempt=1,
        fence=1,
        kind=kind,
        step=step,
        prefix=f"x/{named}",
        files=[],
        bytes=rng.randint(1, 1_000),
        created=now(),
        committed=now(),
        valid=valid,
        pinned=rng.random() < 0.2,
        links_until=rng.choice([None, None, now() - timedelta(hours=1), now() + timedelta(hours=1)]),
    )


def _all(scene: Scene) -> dict[Any, Checkpoint]:
    with scene.database.read() as session:
        return {row.id: row for row in session.scalars(select(Checkpoint))}


def _check_nothing_needed_was_deleted(
    scene: Scene, gone: list[Checkpoint], left: list[Checkpoint], live: str, fork: str
) -> None:
    live_id, fork_id = parse_id("run", live), parse_id("run", fork)
    with scene.database.read() as session:
        begins_from = session.get_one(Run, fork_id).forked_checkpoint_id
    own = [item for item in left if item.run_id == fork_id]
    for item in gone:
        assert not item.pinned
        assert item.links_until is None or item.links_until < now()
        assert item.run_id != fork_id, "the fork has not ended and has at most two"
        assert item.id != begins_from or len(own) >= 2
    both = [item for item in (*gone, *left) if item.run_id == live_id and item.kind is CheckpointKind.STATE]
    newest = sorted((point for point in both if point.valid), key=lambda point: point.step)[-2:]
    assert all(item in left for item in newest)


def test_a_deleted_run_frees_what_its_dry_run_predicts_and_a_pin_prevents_it(
    scene: Scene, ended: Work
) -> None:
    path = f"{scene.runs}/{ended.run_id}"
    reply = scene.site.admin.delete(path, params={"dry_run": True})
    assert reply.status_code == 200, reply.text
    held = scene.site.admin.get(f"{path}/checkpoints").json()
    assert reply.json() == {"dry_run": True, "bytes": sum(item["bytes"] for item in held), "checkpoints": 6}
    assert pin(scene, address(scene, ended.run_id, 4))["pinned"]
    refused = scene.site.admin.delete(path)
    assert (refused.status_code, refused.json()["code"]) == (409, "checkpoint_pinned")
    assert "step 4 is pinned" in refused.json()["detail"]
    pin(scene, address(scene, ended.run_id, 4), pinned=False)
    assert scene.site.admin.delete(path).json() == reply.json() | {"dry_run": False}
    scene.control.sweep()
    assert not list(scene.site.app.state.store.root.rglob("step-4/manifest.json"))


def test_only_a_deletion_and_not_its_dry_run_is_in_the_audit_log(scene: Scene, ended: Work) -> None:
    admin, checkpoint = scene.site.admin, address(scene, ended.run_id, 4)

    def logged() -> list[str]:
        return [item["action"] for item in admin.get(f"{scene.site.path}/audit").json()["items"]]

    def delete(*, dry_run: bool) -> None:
        assert admin.delete(checkpoint, params={"dry_run": dry_run}).status_code == 200
        retain(scene, keep_last=1, dry_run=dry_run)
        assert admin.delete(f"{scene.runs}/{ended.run_id}", params={"dry_run": dry_run}).status_code == 200

    name = admin.get(f"{scene.runs}/{ended.run_id}").json()["name"]
    before = logged()
    delete(dry_run=True)
    assert logged() == before
    delete(dry_run=False)
    assert logged() == ["delete_run", "retain_checkpoints", "delete_checkpoint", *before]
    newest, *_ = admin.get(f"{scene.site.path}/audit", params={"q": name}).json()["items"]
    assert newest["action"] == "delete_run" and newest["details"].endswith(f'{{"name": "{name}"}}')


def test_bytes_of_a_deleted_checkpoint_remain_while_links_to_it_are_valid(scene: Scene, ended: Work) -> None:
    path = address(scene, ended.run_id, 4)
    files = scene.site.admin.get(f"{path}/files").json()
    bytes_before = sum(file["bytes"] for file in files)
    assert scene.site.admin.delete(path, params={"dry_run": True}).json()["bytes"] == bytes_before
    assert scene.site.admin.delete(path).json() == {
        "dry_run": False,
        "bytes": bytes_before,
        "checkpoints": 1,
    }
    assert scene.site.admin.get(f"{path}/files").status_code == 404
    scene.control.sweep()
    assert scene.site.anonymous().get(files[0]["url"]).status_code == 200
    with scene.database.write() as session:
        for row in session.scalars(select(QueuedDeletion)).all():
            row.delete_at = now()
    scene.control.sweep()
    assert scene.site.anonymous().get(files[0]["url"]).status_code == 404


def test_links_outlive_the_run_of_a_checkpoint_that_was_deleted_before(scene: Scene, ended: Work) -> None:
    path = address(scene, ended.run_id, 4)
    files = scene.site.admin.get(f"{path}/files").json()
    assert scene.site.admin.delete(path).status_code == 200
    assert scene.site.admin.delete(f"{scene.runs}/{ended.run_id}").status_code == 200
    scene.control.sweep()
    assert scene.site.anonymous().get(files[0]["url"]).status_code == 200


def test_an_earlier_deleted_checkpoint_does_not_delay_deleting_its_runs_bytes(
    scene: Scene, ended: Work
) -> None:
    assert scene.site.admin.delete(address(scene, ended.run_id, 4)).status_code == 200
    scene.control.sweep()
    assert list(scene.site.app.state.store.root.rglob("step-*/manifest.json"))
    assert scene.site.admin.delete(f"{scene.runs}/{ended.run_id}").status_code == 200
    scene.control.sweep()
    assert not list(scene.site.app.state.store.root.rglob("step-*/manifest.json"))


def test_links_are_marked_once_a_minute_and_while_an_archive_is_sent(scene: Scene, ended: Work) -> None:
    path = address(scene, ended.run_id, 4)

    def marked() -> datetime:
        with scene.database.read() as session:
            found = session.get_one(Checkpoint, parse_id("ckpt", path.rpartition("/")[2])).links_until
        assert found is not None
        return found

    scene.site.admin.get(f"{path}/files")
    first = marked()
    assert first >= now() + timedelta(seconds=LINK_SECONDS)
    scene.site.admin.get(f"{path}/files")
    assert marked() == first
    with scene.database.write() as session:
        row = session.get_one(Checkpoint, parse_id("ckpt", path.rpartition("/")[2]))
        row.links_until, checkpoint_id = now() + timedelta(seconds=60), row.id
    seconds = iter([0.0, 1.0, downloads.RENEWED_EVERY_SECONDS, downloads.RENEWED_EVERY_SECONDS, 0.0])
    sent = downloads.marked_while_sending(
        iter([b"a", b"b", b"c"]), scene.database, checkpoint_id, lambda: next(seconds)
    )
    assert next(sent) == b"a"
    assert marked() < first
    assert next(sent) == b"b"
    assert marked() >= first


def test_the_audit_log_names_deleted_runs_and_checkpoints(scene: Scene, ended: Work) -> None:
    def told() -> tuple[str, Any]:
        [first, *_] = scene.site.admin.get(f"{scene.site.path}/audit", params={"q": "pilot"}).json()["items"]
        return first["action"], json.loads(first["details"])

    assert scene.site.admin.delete(address(scene, ended.run_id, 2)).status_code == 200
    assert told() == ("delete_checkpoint", {"name": "step 2 of pilot"})
    retain(scene, keep_last=1, dry_run=False)
    action, details = told()
    assert action == "retain_checkpoints" and details["names"] == ["checkpoints of pilot"]
    unknown = [f"run_{new_id().hex}" for _ in range(99)]
    body = {"action": "delete", "runs": [*unknown, ended.run_id]}
    assert scene.site.admin.post(f"{scene.runs}/bulk", json=body).json()[-1]["done"] is True
    [deletion] = scene.site.admin.get(f"{scene.site.path}/audit", params={"action": "act_on_runs"}).json()[
        "items"
    ]
    assert deletion["details"].startswith('{"names": ["pilot"], "action": "delete", "runs": ["run_')
    assert deletion["details"].endswith("…"), "the ids are too many"
    scene.site.admin.post(f"{scene.runs}/bulk", json={"action": "delete", "runs": unknown[:1]})
    entries = scene.site.admin.get(f"{scene.site.path}/audit", params={"action": "act_on_runs"}).json()[
        "items"
    ]
    assert entries == [deletion], "nothing was deleted"


@pytest.mark.slow(target="databases")
@pytest.mark.both_databases
def test_links_requested_while_the_checkpoint_is_deleted_are_refused(scene: Scene, ended: Work) -> None:
    path = address(scene, ended.run_id, 4)

    def remove(session: Write) -> None:
        team = session.get_one(Run, parse_id("run", ended.run_id)).team_id
        delete_checkpoint(session, team, ended.run_id, path.rpartition("/")[2], dry_run=False)

    response = response_after(scene.site, remove, lambda: scene.site.admin.get(f"{path}/files"))
    assert response == (404, "not_found")


@pytest.mark.slow(target="databases")
@pytest.mark.both_databases
def test_retention_keeps_a_checkpoint_that_is_pinned_concurrently(scene: Scene, ended: Work) -> None:
    path = address(scene, ended.run_id, 4)

    def keep(session: Write) -> None:
        row = session.get_one(Checkpoint, parse_id("ckpt", path.rpartition("/")[2]), with_for_update=True)
        row.pinned = True
        session.flush()

    asked = {"keep_last": 1, "dry_run": False}
    route = f"{scene.site.path}/checkpoints/retention"
    assert response_after(scene.site, keep, lambda: scene.site.admin.post(route, json=asked)) == (200, "")
    left = [item["step"] for item in scene.site.admin.get(f"{scene.runs}/{ended.run_id}/checkpoints").json()]
    assert left == [10, 10, 4]


def test_the_checkpoint_of_a_claim_is_kept_while_the_node_fetches_it(scene: Scene) -> None:
    work = scene.running(last_step=3, checkpoint={"keep": 10})
    for step in (1, 2, 3):
        work.save(step)
    work.ended("crashed")
    again = scene.again(work.run_id)
    assert again.claim.job.resume is not None and again.claim.job.resume.step == 3
    retain(scene, keep_last=0, dry_run=False)
    scene.control.sweep()
    assert all(scene.agent.client.get(download.url).status_code == 200 for download in again.claim.downloads)


def test_a_team_s_checkpoints_are_paged_newest_first(scene: Scene, ended: Work) -> None:
    pin(scene, address(scene, ended.run_id, 4))
    route = f"{scene.site.path}/checkpoints"

    def steps(**query: Any) -> list[int]:
        found, cursor = [], None
        while True:
            asked = {**query, "limit": 2} | ({"cursor": cursor} if cursor else {})
            page = scene.site.admin.get(route, params=asked).json()
            found += [item["step"] for item in page["items"]]
            cursor = page["next_cursor"]
            if cursor is None:
                return found

    assert steps() == [10, 10, 8, 6, 4, 2]
    assert steps(kind="export") == [10] and steps(pinned=True) == [4]
    assert len(steps(pinned=False)) == 5
    (first, *_) = scene.site.admin.get(route).json()["items"]
    assert (first["run"], first["run_name"], first["contents"]["ranks"]) == (ended.run_id, "pilot", 1)
    assert scene.site.admin.get(route, params={"cursor": "x"}).status_code == 422
    stranger = scene.site.other_team("globex")
    assert stranger.get("/api/v1/teams/globex/checkpoints").json()["items"] == []


def test_one_action_for_many_runs_has_a_result_for_each(scene: Scene, ended: Work) -> None:
    queued = scene.submit()

    def act(verb: str, *runs: str, **more: Any) -> list[tuple[bool, str | None]]:
        body = {"action": verb, "runs": runs, **more}
        response = scene.site.admin.post(f"{scene.runs}/bulk", json=body)
        assert response.status_code == 200, response.text
        assert [item["run"] for item in response.json()] == list(runs)
        return [(item["done"], item["code"]) for item in response.json()]

    both = (queued, ended.run_id)
    assert act("tag", *both, tags=["a", "b"]) == [(True, None)] * 2
    assert act("untag", *both, tags=["b", "c"]) == [(True, None)] * 2
    assert scene.show(queued)["tags"] == scene.show(ended.run_id)["tags"] == ["a"]
    assert act("pause", *both) == [(True, None), (False, "run_is_final")]
    assert act("resume", *both) == [(True, None), (False, "run_not_paused")]
    assert act("delete", *both, "run_x") == [(False, "run_not_final"), (True, None), (False, "not_found")]
    assert act("cancel", queued, queued) == [(True, None)] * 2, "repeating is harmless"
    viewer = scene.site.member("viewer")
    assert viewer.post(f"{scene.runs}/bulk", json={"action": "cancel", "runs": [queued]}).status_code == 403
    refused = scene.site.admin.post(f"{scene.runs}/bulk", json={"action": "tag", "runs": [queued]})
    assert refused.status_code == 422
    many = scene.site.admin.post(
        f"{scene.runs}/bulk", json={"action": "tag", "runs": [queued], "tags": [f"t{n}" for n in range(20)]}
    )
    assert many.json()[0]["code"] == "invalid" and "at most 20 tags" in many.json()[0]["detail"]


@pytest.mark.slow(target="databases")
@pytest.mark.both_databases
def test_a_forks_claim_finds_its_checkpoint_despite_concurrent_retention(scene: Scene, ended: Work) -> None:
    for step, keep_last, goes in ((8, 4, 2), (4, 2, 6), (8, 1, 4)):
        state = address(scene, ended.run_id, step).rsplit("/", 1)[-1]
        body = {"name": "fork", "checkpoint": state, "changes": {"schedule.steps": 20}}
        fork = scene.site.admin.post(f"{scene.runs}/{ended.run_id}/fork", json=body).json()["id"]
        scene.control.sweep()
        with ThreadPoolExecutor(2) as pool:
            kept = pool.submit(retain, scene, keep_last=keep_last)
            work = pool.submit(scene.agent.claim, fork).result()
        why = {(one, kind): reason for one, kind, reason in fates(kept.result())}
        assert why[step, "state"] is not None and why[goes, "state"] is None
        assert work.claim.job.resume is not None and work.claim.job.resume.step == step
        assert all(
            scene.agent.client.get(download.url).status_code == 200 for download in work.claim.downloads
        )
        scene.cancel(fork)
        work.ended("stopped")
    assert (8, "state", None) in fates(retain(scene, keep_last=1)), "no fork needs it anymore"
