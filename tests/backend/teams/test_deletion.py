"""Deleting teams and accounts, and what happens to the runs of people who are removed."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pkgutil import resolve_name
from threading import Thread

import pytest
from httpx import Response
from sqlalchemy import func, select

from tests.backend.conftest import PASSWORD, Site, send_file, upload_letters
from tests.backend.scripted_agent import Scene, scene
from tests.backend.scripted_agent import patient_settings as settings
from trainwright_backend.auth.tables import Account, ApiKey
from trainwright_backend.core.deletion_queue import QueuedDeletion
from trainwright_backend.datasets.tables import Dataset
from trainwright_backend.runs.tables import Run
from trainwright_backend.uploads.tables import StoredFile

__all__ = ["scene", "settings"]

BLOCKED_SECONDS = 0.5
"""A request that is not blocked by a lock takes less; one that takes longer only makes the test weaker."""


@pytest.mark.slow(target="databases")
@pytest.mark.both_databases
def test_a_team_is_deleted_with_everything_it_has_once_its_runs_have_ended(scene: Scene) -> None:
    site = scene.site
    owner, other = site.member("owner"), site.other_team("globex")
    send_file(site.admin, site.path, "unused", b"some bytes")
    upload_letters(site, name="more")
    work = scene.running(steps=5)
    work.save(3)
    assert owner.delete(site.path, params={"confirm": "globex"}).status_code == 422
    refused = owner.delete(site.path, params={"confirm": "acme"})
    assert (refused.status_code, refused.json()["code"]) == (409, "runs_not_final")
    assert "pilot" in refused.json()["detail"]
    assert other.delete(site.path, params={"confirm": "acme"}).status_code == 404
    assert scene.cancel(work.run_id).status_code == 202
    assert work.ended("cancelled") == "cancelled"
    assert owner.delete(site.path, params={"confirm": "acme"}).status_code == 204
    assert owner.get(site.path).status_code == 404
    with scene.database.read() as session:
        for table in (Run, Dataset, StoredFile):
            assert session.scalar(select(func.count()).select_from(table)) == 0
        prefixes = session.scalars(select(QueuedDeletion.prefix)).all()
        assert [prefix for prefix in prefixes if "/" not in prefix], "the folder of the team is deleted"
    assert other.get("/api/v1/teams/globex").status_code == 200
    again = site.admin.post("/api/v1/teams", json={"slug": "acme", "name": "Acme again"})
    assert again.status_code == 201
    [deletion] = site.admin.get("/api/v1/audit", params={"action": "delete_team"}).json()["items"]
    assert (deletion["name"], deletion["path"]) == ("Owner", site.path)


@pytest.mark.both_databases
def test_a_submission_and_the_deletion_of_its_team_wait_for_each_other(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each begins while the other is in its transaction. Both give a response that says what happened."""
    submit = partial(scene.site.admin.post, scene.runs, json=scene.spec())
    delete = partial(scene.site.admin.delete, scene.site.path, params={"confirm": scene.site.team})

    def during(patch: pytest.MonkeyPatch, place: str, begin: Callable[[], Response]) -> "Future[Response]":
        """Begin a request when another has come to ``place``, and let it run as far as it can."""
        original, response = resolve_name(place), Future[Response]()

        def interrupted(*args: object) -> object:
            thread = Thread(target=lambda: response.set_result(begin()))
            thread.start()
            thread.join(BLOCKED_SECONDS)
            return original(*args)

        patch.setattr(place, interrupted)
        return response

    with monkeypatch.context() as patch:
        deletion = during(patch, "trainwright_backend.runs.submission.choose_precision", delete)
        submission = submit()
        refused = deletion.result()
    assert submission.status_code == 201, submission.text
    assert (refused.status_code, refused.json()["code"]) == (409, "runs_not_final")
    assert scene.cancel(submission.json()["id"]).status_code == 202
    with monkeypatch.context() as patch:
        late = during(patch, "trainwright_backend.checkpoints.team_deletion.latest_link_expiry", submit)
        assert delete().status_code == 204
        assert (late.result().status_code, late.result().json()["code"]) == (404, "not_found")


@pytest.mark.both_databases
def test_of_two_deletions_of_a_team_one_finds_it_deleted(scene: Scene) -> None:
    with ThreadPoolExecutor(2) as pool:
        responses = pool.map(
            lambda _: scene.site.admin.delete(scene.site.path, params={"confirm": "acme"}).status_code,
            range(2),
        )
        assert sorted(responses) == [204, 404]


def test_an_account_is_deleted_with_its_keys_but_not_its_runs(scene: Scene) -> None:
    editor = scene.site.member("editor")
    run_id = editor.post(scene.runs, json=scene.spec()).json()["id"]
    wrong = editor.post("/api/v1/me/delete", json={"current_password": "another password"})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "current_password")
    assert editor.post("/api/v1/me/delete", json={"current_password": PASSWORD}).status_code == 204
    assert editor.get("/api/v1/me").status_code == 401
    assert scene.show(run_id)["created_by"] == "Editor"
    with scene.database.read() as session:
        assert session.scalar(select(func.count()).select_from(Account)) == 1
        assert session.scalar(select(func.count()).select_from(ApiKey)) == 1


def test_the_last_owner_and_the_last_site_admin_cannot_be_deleted(site: Site) -> None:
    mine = {"current_password": PASSWORD}
    refused = site.admin.post("/api/v1/me/delete", json=mine)
    assert (refused.status_code, refused.json()["code"]) == (409, "last_owner")
    assert "(acme)" in refused.json()["detail"]
    site.member("owner")
    refused = site.admin.post("/api/v1/me/delete", json=mine)
    assert (refused.status_code, refused.json()["code"]) == (409, "last_site_admin")
    assert site.path.rsplit("/", 1)[-1] in [
        team["slug"] for team in site.admin.get("/api/v1/me").json()["teams"]
    ]


@pytest.mark.parametrize(("runs", "state"), [("keep", "queued"), ("cancel", "cancelled")])
def test_an_owner_chooses_what_happens_to_the_runs_of_a_removed_person(
    scene: Scene, runs: str, state: str
) -> None:
    editor = scene.site.member("editor")
    run_id = editor.post(scene.runs, json=scene.spec()).json()["id"]
    mine = scene.submit()
    member = editor.get("/api/v1/me").json()["id"]
    path = f"{scene.site.path}/members/{member}"
    assert editor.delete(path, params={"runs": runs}).status_code == 403
    assert scene.site.admin.delete(path, params={"runs": runs}).status_code == 204
    assert (scene.state(run_id), scene.state(mine)) == (state, "queued")
    assert editor.get(scene.runs).status_code == 404
