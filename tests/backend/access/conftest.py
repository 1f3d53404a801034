from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import delete, select, update

from tests.backend.access.rules import TEAM, UNKNOWN_IDS, Caller, Ids
from tests.backend.conftest import PASSWORD, Site, send_file
from tests.backend.datasets.test_tokenizers import TRAINED
from tests.backend.scripted_agent import Scene, scene
from tests.backend.scripted_agent import patient_settings as settings
from trainwright.contracts.api.people import KeyScope, Role
from trainwright_backend.auth.tables import Account, ApiKey, Membership
from trainwright_backend.core.db import now
from trainwright_backend.core.ids import parse_id

__all__ = ["scene", "settings"]

OTHER_TEAM = "initech"


@pytest.fixture
def people(site: Site) -> dict[str, TestClient]:
    """One client for each kind of person; the site admin belongs to no team."""
    found = {"anonymous": site.anonymous(), "stranger": site.other_team(OTHER_TEAM)}
    found |= {role: site.member(role) for role in ("viewer", "editor", "owner")}
    with site.app.state.database.write() as session:
        admin = select(Account.id).where(Account.site_admin).scalar_subquery()
        session.execute(delete(Membership).where(Membership.user_id == admin))
    return found | {"site admin": site.admin}


@pytest.fixture
def rows(scene: Scene) -> Ids:
    """Ids of rows that exist, all of one team."""
    return {**create_rows(scene), "node": scene.site.admin.get("/api/v1/nodes").json()[0]["id"]}


@pytest.fixture
def callers(scene: Scene, rows: Ids, people: dict[str, TestClient]) -> list[Caller]:
    """Callers with all kinds of credentials, those with fewer rights first."""
    site = scene.site
    browser = site.anonymous()
    credentials = {"email": f"owner@{TEAM}.example", "password": PASSWORD}
    assert browser.post("/api/v1/auth/sign-in", json=credentials).status_code == 200
    owner = Caller("owner", people["owner"], role=Role.OWNER)
    admin = Caller("site admin", people["site admin"], is_site_admin=True)
    return [
        Caller("nobody", people["anonymous"], is_person=False),
        Caller("owner's expired key", _expired_key(site, browser), is_person=False),
        Caller("node", scene.agent.client, is_person=False, is_node=True),
        Caller("owner of another team", people["stranger"]),
        *(_with_scope(site, owner, scope) for scope in (KeyScope.READ, KeyScope.SUBMIT)),
        Caller("viewer", people["viewer"], role=Role.VIEWER),
        Caller("editor", people["editor"], role=Role.EDITOR),
        _service_account(site, owner),
        _with_scope(site, admin, KeyScope.READ),
        admin,
        owner,
        replace(owner, kind="owner's browser", client=browser),
    ]


def _with_scope(site: Site, person: Caller, scope: KeyScope) -> Caller:
    made = person.client.post("/api/v1/me/keys", json={"name": f"to {scope}", "scope": scope})
    assert made.status_code == 201, made.text
    return Caller(
        f"{person.kind}'s key with the scope {scope}",
        _with_secret(site, made.json()["secret"]),
        role=person.role,
        is_site_admin=person.is_site_admin,
        scope=scope,
    )


def _service_account(site: Site, owner: Caller) -> Caller:
    """An editor that is a program, with a key that allows all that its role does."""
    path = f"/api/v1/teams/{TEAM}/service-accounts"
    account = owner.client.post(path, json={"name": "nightly", "role": "editor"}).json()["id"]
    made = owner.client.post(f"{path}/{account}/keys", json={"name": "key", "scope": "manage"})
    assert made.status_code == 201, made.text
    program = _with_secret(site, made.json()["secret"])
    return Caller("service account", program, role=Role.EDITOR, is_service=True)


def _expired_key(site: Site, person: TestClient) -> TestClient:
    made = person.post("/api/v1/me/keys", json={"name": "expired", "lifetime_days": 1}).json()
    with site.app.state.database.write() as session:
        expired = {"expires": now() - timedelta(seconds=1)}
        session.execute(update(ApiKey).where(ApiKey.id == parse_id("key", made["id"])).values(expired))
    return _with_secret(site, made["secret"])


def _with_secret(site: Site, secret: str) -> TestClient:
    program = site.anonymous()
    program.headers["Authorization"] = f"Bearer {secret}"
    return program


def create_rows(scene: Scene) -> Ids:
    """Create a row of each kind that a team has and that has an id in addresses."""
    admin, team = scene.site.admin, scene.site.path
    work = scene.running(last_step=10)
    work.log(b"a line with a word\n")
    work.save(10)
    assert work.order("completing") == "go"
    work.save(10, "export")
    assert work.ended("finished", step=10) == "succeeded"

    def new(path: str, **body: Any) -> str:
        response = admin.post(f"{team}/{path}", json=body)
        assert response.status_code == 201, response.text
        return str(response.json()["id"])

    dataset = admin.get(f"{team}/datasets/{scene.dataset}").json()
    (checkpoint, *_) = admin.get(f"{team}/runs/{work.run_id}/checkpoints").json()
    return {
        **UNKNOWN_IDS,
        "team": scene.site.team,
        "dataset": scene.dataset,
        "preparation": dataset["versions"][0]["preparations"][0]["id"],
        "run": work.run_id,
        "checkpoint": checkpoint["id"],
        "upload": send_file(admin, team, "more.txt", b"one more text"),
        "tokenizer": new("tokenizers", name="own", upload=send_file(admin, team, "tokenizer.json", TRAINED)),
        "recipe": new("recipes", name="small", spec={}),
        "view": new("views", name="all", view={}),
        "webhook": new("webhooks", url="https://hooks.example.com/"),
        "invitation": new("invitations", email=f"new@{scene.site.team}.example"),
        "member": admin.get("/api/v1/me").json()["id"],
        "key": admin.get("/api/v1/me/keys").json()[0]["id"],
    }
