"""Service accounts: members that are programs, with keys that owners manage, and never more than an editor's rights."""

from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from tests.backend.scripted_agent import Scene, scene
from trainwright_backend.auth.passwords import known_browser_token
from trainwright_backend.auth.tables import Account, ApiKey, Team
from trainwright_backend.core.db import now
from trainwright_backend.core.errors import NotFound
from trainwright_backend.core.ids import new_id, parse_id
from trainwright_backend.teams import service_accounts
from trainwright_backend.teams.one_time_links import sign_in_link
from trainwright_backend.teams.usage import add_slot_time

__all__ = ["scene"]


def create(scene: Scene, name: str = "nightly", role: str = "editor") -> str:
    response = scene.site.admin.post(f"{scene.site.path}/service-accounts", json={"name": name, "role": role})
    assert response.status_code == 201, response.text
    return str(response.json()["id"])


def program(scene: Scene, account: str, scope: str = "manage") -> TestClient:
    """A program with a new key of a service account."""
    key = {"name": scope, "scope": scope, "lifetime_days": 30}
    made = scene.site.admin.post(f"{scene.site.path}/service-accounts/{account}/keys", json=key)
    assert made.status_code == 201, made.text
    found = scene.site.anonymous()
    found.headers["Authorization"] = f"Bearer {made.json()['secret']}"
    return found


def submit(client: TestClient, scene: Scene) -> dict[str, Any]:
    response = client.post(f"{scene.site.path}/runs", json=scene.spec())
    assert response.status_code == 201, response.text
    found: dict[str, Any] = response.json()
    return found


def members(scene: Scene) -> dict[str, dict[str, Any]]:
    response = scene.site.admin.get(f"{scene.site.path}/members", params={"limit": 100})
    return {member["id"]: member for member in response.json()["items"]}


def test_a_service_account_runs_under_its_own_name(scene: Scene) -> None:
    account = create(scene)
    nightly = program(scene, account)
    me = nightly.get("/api/v1/me").json()
    assert (me["name"], me["email"], me["service"], me["site_admin"]) == ("nightly", "", True, False)
    run = submit(nightly, scene)
    assert run["created_by"] == "nightly"
    shown = members(scene)[account]
    assert (shown["service"], shown["email"], shown["role"]) == (True, "", "editor")
    assert [member["service"] for member in members(scene).values()].count(True) == 1
    [entry] = scene.site.admin.get(
        f"{scene.site.path}/audit", params={"action": "submit_run", "limit": 1}
    ).json()["items"]
    assert (entry["name"], entry["user"]) == ("nightly (service account)", account)
    [found] = scene.site.admin.get(f"{scene.site.path}/service-accounts").json()
    [key] = found["keys"]
    assert key["scope"] == "manage" and key["expires"] is not None and "secret" not in key


def test_its_use_counts_for_it(scene: Scene) -> None:
    account = create(scene)
    with scene.database.write() as session:
        team_id = session.scalars(select(Team.id).where(Team.slug == scene.site.team)).one()
        since = now() - timedelta(hours=1)
        add_slot_time(session, team_id, new_id(), parse_id("user", account), "cpu", 2, since, now())
    used = scene.site.admin.get(f"{scene.site.path}/usage", params={"days": 1}).json()["members"]
    assert [(member["user"], member["service"]) for member in used] == [(account, True)]


@pytest.mark.parametrize(
    ("scope", "role", "may_submit"),
    [
        ("read", "editor", False),
        ("submit", "editor", True),
        ("manage", "editor", True),
        ("manage", "viewer", False),
    ],
)
def test_it_may_do_what_both_its_role_and_its_key_allow(
    scene: Scene, scope: str, role: str, may_submit: bool
) -> None:
    client = program(scene, create(scene, role=role), scope)
    assert client.get(f"{scene.site.path}/runs").status_code == 200
    response = client.post(f"{scene.site.path}/runs/validate", json=scene.spec())
    assert response.status_code == 200
    assert (client.post(f"{scene.site.path}/runs", json=scene.spec()).status_code == 201) is may_submit
    assert client.patch(scene.site.path, json={"name": "Mine"}).status_code == 403


def test_it_is_no_owner_and_manages_neither_itself_nor_keys(scene: Scene) -> None:
    account = create(scene)
    client = program(scene, account)
    for method, path, body in (
        ("PATCH", "/api/v1/me", {"name": "renamed"}),
        ("POST", "/api/v1/me/keys", {"name": "more"}),
        ("POST", "/api/v1/me/device", {"user_code": "BCDF-GHJK", "approve": True}),
    ):
        response = client.request(method, path, json=body)
        assert (response.status_code, response.json()["code"]) == (403, "service_account"), path
    left = client.delete(f"{scene.site.path}/members/me")
    assert (left.status_code, left.json()["code"]) == (409, "service_account")
    refused = scene.site.admin.patch(f"{scene.site.path}/members/{account}", json={"role": "owner"})
    assert refused.status_code == 422 and refused.json()["errors"][0]["field"] == "role"
    as_owner = {"name": "boss", "role": "owner"}
    assert scene.site.admin.post(f"{scene.site.path}/service-accounts", json=as_owner).status_code == 422
    changed = scene.site.admin.patch(f"{scene.site.path}/members/{account}", json={"role": "viewer"})
    assert (
        changed.status_code == 200
        and client.post(f"{scene.site.path}/runs", json=scene.spec()).status_code == 403
    )
    removed = scene.site.admin.delete(f"{scene.site.path}/members/{account}")
    assert (removed.status_code, removed.json()["code"]) == (409, "service_account")


def test_it_cannot_sign_in(scene: Scene) -> None:
    account = create(scene)
    state = scene.site.app.state
    with state.database.write() as session:
        stored = session.get_one(Account, parse_id("user", account))
        email = stored.email
        with pytest.raises(NotFound):
            sign_in_link(session, state.settings, email)
    browser = scene.site.anonymous()
    browser.cookies.set("trainwright-browser", known_browser_token(state.settings, email))
    for password in ("", "a long enough password"):
        guess = {"email": email, "password": password}
        assert browser.post("/api/v1/auth/sign-in", json=guess).status_code == 401


@pytest.mark.parametrize(("runs", "state"), [("keep", "queued"), ("cancel", "cancelled")])
def test_a_deleted_service_account_leaves_its_runs_as_the_owner_chooses(
    scene: Scene, runs: str, state: str
) -> None:
    account = create(scene)
    client = program(scene, account)
    run = submit(client, scene)
    response = scene.site.admin.delete(f"{scene.site.path}/service-accounts/{account}", params={"runs": runs})
    assert response.status_code == 204, response.text
    assert client.get("/api/v1/me").status_code == 401
    shown = scene.site.admin.get(f"{scene.site.path}/runs/{run['id']}").json()
    assert (shown["state"], shown["created_by"]) == (state, "nightly")
    assert account not in members(scene)
    with scene.database.read() as session:
        user_id = parse_id("user", account)
        assert session.scalars(select(ApiKey).where(ApiKey.user_id == user_id)).all() == []


def test_keys_are_revoked_one_by_one(scene: Scene) -> None:
    account = create(scene)
    first, second = program(scene, account, "read"), program(scene, account, "submit")
    [key] = [key for key in first.get("/api/v1/me/keys").json() if key["scope"] == "read"]
    path = f"{scene.site.path}/service-accounts/{account}/keys/{key['id']}"
    assert scene.site.admin.delete(path).status_code == 204
    assert [client.get("/api/v1/me").status_code for client in (first, second)] == [401, 200]


def test_people_and_accounts_of_other_teams_are_no_service_accounts(scene: Scene) -> None:
    account = create(scene)
    stranger = scene.site.other_team("globex")
    person = scene.site.admin.get("/api/v1/me").json()["id"]
    key = {"name": "stolen"}
    assert stranger.post(f"/api/v1/teams/globex/service-accounts/{account}/keys", json=key).status_code == 404
    assert stranger.delete(f"/api/v1/teams/globex/service-accounts/{account}").status_code == 404
    assert (
        scene.site.admin.post(f"{scene.site.path}/service-accounts/{person}/keys", json=key).status_code
        == 404
    )
    assert scene.site.admin.delete(f"{scene.site.path}/service-accounts/{person}").status_code == 404


def test_names_are_unique_in_a_team_and_their_number_is_limited(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(scene)
    monkeypatch.setattr(service_accounts, "MAX_SERVICE_ACCOUNTS", 2)
    create(scene, "weekly")
    for name, code in ((" nightly ", "name_taken"), ("monthly", "too_many_service_accounts")):
        response = scene.site.admin.post(f"{scene.site.path}/service-accounts", json={"name": name})
        assert (response.status_code, response.json()["code"]) == (409, code)
        fields = [problem["field"] for problem in response.json().get("errors", [])]
        assert fields == (["name"] if code == "name_taken" else [])


@pytest.mark.both_databases
def test_a_team_is_deleted_with_its_service_accounts(scene: Scene) -> None:
    owner = scene.site.other_team("globex")
    path = "/api/v1/teams/globex"
    account = owner.post(f"{path}/service-accounts", json={"name": "nightly"}).json()["id"]
    key = owner.post(f"{path}/service-accounts/{account}/keys", json={"name": "key"}).json()
    client = scene.site.anonymous()
    client.headers["Authorization"] = f"Bearer {key['secret']}"
    assert client.get("/api/v1/me").status_code == 200
    assert owner.delete(path, params={"confirm": "globex"}).status_code == 204
    assert client.get("/api/v1/me").status_code == 401
