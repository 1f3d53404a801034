"""One-time links for the first owner, for invitations, and for signing in without a password."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import func, select, update

from tests.backend.conftest import (
    PASSWORD,
    SECRET,
    Site,
    begin_site,
    client_of,
    first_owner,
    running,
    site_again,
)
from tests.backend.datasets.test_delete_races import response_after
from trainwright.contracts.api.people import Role
from trainwright_backend.auth.tables import Account, OneTimeLink, Team
from trainwright_backend.core.db import now
from trainwright_backend.core.errors import Conflict
from trainwright_backend.core.public_address import local_warning, reachable_address
from trainwright_backend.core.settings import Settings
from trainwright_backend.main import create_app
from trainwright_backend.teams import invitations, one_time_links
from trainwright_backend.teams.members import follow_groups


def use(client: TestClient, **body: object) -> tuple[int, str]:
    response = client.post("/api/v1/auth/link", json=body)
    return response.status_code, response.json().get("code", "")


def invite(site: Site, email: str, role: str = "viewer") -> str:
    response = site.admin.post(f"{site.path}/invitations", json={"email": email, "role": role})
    assert response.status_code == 201, response.text
    return str(response.json()["link"]).rsplit("/", 1)[-1]


def test_no_account_exists_before_the_first_owner_s_link(app: FastAPI, anonymous: TestClient) -> None:
    with app.state.database.read() as session:
        assert session.scalar(select(func.count()).select_from(Account)) == 0
    body = first_owner(app)
    info = anonymous.get(f"/api/v1/auth/link/{body['token']}").json()
    assert info == {
        "purpose": "first_owner",
        "email": None,
        "team": None,
        "needs_account": True,
        "needs_password": False,
    }
    assert use(anonymous, **body) == (200, "")
    me = anonymous.get("/api/v1/me").json()
    assert me["site_admin"] and me["teams"] == [{"slug": "acme", "name": "acme", "role": "owner"}]
    quota = anonymous.get("/api/v1/teams/acme").json()["quota"]
    assert [(each["device"], each["limit"], each["used"]) for each in quota] == [
        ("cuda", 8, 0),
        ("cpu", 8, 0),
    ]
    [entry] = anonymous.get("/api/v1/audit").json()["items"]
    assert [part["text"] for part in entry["sentence"]] == ["Created the first account", "as", "Ada"]


@pytest.mark.both_databases
def test_a_second_first_owner_is_refused(app: FastAPI, anonymous: TestClient) -> None:
    one, two = first_owner(app), first_owner(app)
    assert use(anonymous, **one)[0] == 200
    assert use(client_of(app), **two | {"email": "b@b"}) == (
        409,
        "already_set_up",
    )
    with pytest.raises(Conflict), app.state.database.write() as session:
        one_time_links.first_owner_link(session, app.state.settings)


@pytest.mark.both_databases
def test_a_link_works_once_even_for_concurrent_requests(app: FastAPI) -> None:
    body = first_owner(app)

    def attempt(number: int) -> int:
        return use(client_of(app), **body | {"email": f"{number}@b"})[0]

    with ThreadPoolExecutor(4) as pool:
        responses = sorted(pool.map(attempt, range(4)))
    assert responses[0] == 200 and set(responses[1:]) <= {404, 409}
    with app.state.database.read() as session:
        assert session.scalar(select(func.count()).select_from(Account)) == 1


def test_a_refused_use_does_not_consume_the_link(app: FastAPI, anonymous: TestClient) -> None:
    body = first_owner(app)
    missing = anonymous.post("/api/v1/auth/link", json={"token": body["token"]})
    assert missing.status_code == 422
    assert {problem["field"] for problem in missing.json()["errors"]} == {"name", "email", "password", "team"}
    assert use(anonymous, **body | {"password": "password123"}) == (422, "invalid")
    assert use(anonymous, **body | {"team": "api"}) == (422, "invalid")
    assert use(anonymous, **body) == (200, "")


@pytest.mark.parametrize("slug", ["api", "assets", "sign-in", "link"])
def test_a_slug_that_is_an_address_of_the_platform_is_refused(site: Site, slug: str) -> None:
    response = site.admin.post("/api/v1/teams", json={"slug": slug, "name": "x"})
    assert response.status_code == 422 and response.json()["errors"][0]["field"] == "slug"


@pytest.mark.both_databases
def test_a_slug_is_unique(site: Site) -> None:
    response = site.admin.post("/api/v1/teams", json={"slug": "acme", "name": "x"})
    assert (response.status_code, response.json()["code"]) == (409, "slug_taken")
    assert [problem["field"] for problem in response.json()["errors"]] == ["slug"]


def test_an_invitation_brings_a_newcomer_into_the_team_with_its_role(site: Site) -> None:
    token = invite(site, "Bob@acme.example", "editor")
    browser = site.anonymous()
    info = browser.get(f"/api/v1/auth/link/{token}").json()
    assert info == {
        "purpose": "invitation", "email": "bob@acme.example", "team": "acme", "needs_account": True, "needs_password": False,
    }  # fmt: skip
    assert use(browser, token=token, name="Bob", password=PASSWORD, email="eve@evil.example")[0] == 422
    assert use(browser, token=token, name="Bob", password=PASSWORD) == (200, "")
    assert browser.get("/api/v1/me").json()["teams"][0]["role"] == "editor"
    members = {member["email"]: member["role"] for member in site.admin.get(f"{site.path}/members").json()}
    assert members == {"ada@acme.example": "owner", "bob@acme.example": "editor"}
    assert use(browser, token=token, name="Bob", password=PASSWORD) == (404, "link_not_valid")


def test_an_invitation_never_signs_in_to_an_account_that_exists(site: Site) -> None:
    site.member("viewer", email="bob@acme.example")
    bob = site.anonymous()
    bob.post("/api/v1/auth/sign-in", json={"email": "bob@acme.example", "password": PASSWORD})
    stranger = site.other_team("globex")
    response = stranger.post(
        "/api/v1/teams/globex/invitations", json={"email": "bob@acme.example", "role": "owner"}
    )
    token = response.json()["link"].rsplit("/", 1)[-1]
    assert not bob.get(f"/api/v1/auth/link/{token}").json()["needs_account"]
    for thief in (site.anonymous(), stranger):
        assert use(thief, token=token) == (422, "invalid")
        assert use(thief, token=token, name="Bob", password="another long one") == (401, "not_signed_in")
    assert use(bob, token=token) == (200, "")
    assert [team["slug"] for team in bob.get("/api/v1/me").json()["teams"]] == ["acme", "globex"]


@pytest.mark.slow(target="databases")
def test_viewing_an_invitation_does_not_reveal_whether_its_address_has_an_account(site: Site) -> None:
    site.member("viewer", email="bob@acme.example")
    stranger = site.other_team("globex")

    def responses(email: str) -> list[object]:
        body = {"email": email, "role": "viewer"}
        made = stranger.post("/api/v1/teams/globex/invitations", json=body)
        token = made.json()["link"].rsplit("/", 1)[-1]
        found: list[object] = [made.status_code]
        for client in (stranger, site.anonymous()):
            found.append(client.get(f"/api/v1/auth/link/{token}").json() | {"email": ""})
            for fields in ({}, {"name": "Eve"}, {"password": PASSWORD}):
                response = client.post("/api/v1/auth/link", json={"token": token, **fields})
                found += [response.status_code, response.json() | {"request_id": ""}]
        return found

    assert responses("bob@acme.example") == responses("nobody@acme.example")


def test_an_owner_lists_pending_invitations_without_links_and_revokes_one(site: Site) -> None:
    bob, eve = invite(site, "bob@acme.example"), invite(site, "eve@acme.example", "owner")
    path = f"{site.path}/invitations"
    shown = site.admin.get(path)
    assert [(item["email"], item["role"]) for item in shown.json()] == [
        ("eve@acme.example", "owner"),
        ("bob@acme.example", "viewer"),
    ]
    assert bob not in shown.text and eve not in shown.text
    stranger = site.other_team("globex")
    theirs = f"{path}/{shown.json()[0]['id']}"
    assert stranger.get("/api/v1/teams/globex/invitations").json() == []
    assert stranger.delete(theirs.replace("acme", "globex")).status_code == 404
    assert site.admin.delete(theirs).status_code == 204
    assert site.admin.delete(theirs).status_code == 404
    assert use(site.anonymous(), token=eve, name="Eve", password=PASSWORD) == (404, "link_not_valid")
    assert use(site.anonymous(), token=bob, name="Bob", password=PASSWORD) == (200, "")
    assert site.admin.get(path).json() == []
    assert site.admin.delete(f"{path}/{shown.json()[1]['id']}").status_code == 404, "it was used"


def test_a_member_is_not_invited_again(site: Site) -> None:
    response = site.admin.post(
        f"{site.path}/invitations", json={"email": "ADA@acme.example", "role": "viewer"}
    )
    assert (response.status_code, response.json()["code"]) == (409, "already_member")
    assert [problem["field"] for problem in response.json()["errors"]] == ["email"]


def pending(site: Site) -> list[tuple[str, str]]:
    return [(item["email"], item["role"]) for item in site.admin.get(f"{site.path}/invitations").json()]


def test_a_new_invitation_replaces_an_earlier_one_of_the_same_person(site: Site) -> None:
    others = invite(site, "eve@acme.example")
    first = invite(site, "bob@acme.example", "owner")
    second = invite(site, "Bob@acme.example", "viewer")
    assert pending(site) == [("bob@acme.example", "viewer"), ("eve@acme.example", "viewer")]
    assert use(site.anonymous(), token=first, name="Bob", password=PASSWORD) == (404, "link_not_valid")
    assert use(site.anonymous(), token=second, name="Bob", password=PASSWORD) == (200, "")
    assert site.anonymous().get(f"/api/v1/auth/link/{others}").status_code == 200


def test_a_member_has_no_pending_invitation(site: Site) -> None:
    """An earlier release left an invitation in addition to the one that was used."""
    stale = invite(site, "bob@acme.example", "owner")
    with site.app.state.database.write() as session:
        session.execute(update(OneTimeLink).where(OneTimeLink.purpose == "invitation").values(email="x@y"))
    used = invite(site, "bob@acme.example")
    with site.app.state.database.write() as session:
        session.execute(
            update(OneTimeLink).where(OneTimeLink.email == "x@y").values(email="bob@acme.example")
        )
    assert len(pending(site)) == 2
    assert use(site.anonymous(), token=used, name="Bob", password=PASSWORD) == (200, "")
    assert pending(site) == []
    assert site.anonymous().get(f"/api/v1/auth/link/{stale}").status_code == 404


@pytest.mark.both_databases
def test_an_invitation_is_used_while_the_person_is_added_by_their_groups(site: Site) -> None:
    bob = site.anonymous()
    site.other_team("globex")
    site.member("viewer", "globex", "bob@acme.example")
    me = {"email": "bob@acme.example", "password": PASSWORD}
    assert bob.post("/api/v1/auth/sign-in", json=me).status_code == 200
    token = invite(site, "bob@acme.example", "editor")
    with site.app.state.database.read() as session:
        team_id = session.scalars(select(Team.id).where(Team.slug == "acme")).one()
        bob_id = session.scalars(select(Account.id).where(Account.email == "bob@acme.example")).one()
    response = response_after(
        site,
        lambda session: follow_groups(session, team_id, bob_id, Role.VIEWER),
        lambda: bob.post("/api/v1/auth/link", json={"token": token}),
    )
    assert response == (200, "")
    [role] = [
        item["role"] for item in site.admin.get(f"{site.path}/members").json() if item["name"] == "Viewer"
    ]
    assert role == "viewer" and pending(site) == []


def test_an_invitation_without_a_role_is_for_a_viewer(site: Site) -> None:
    response = site.admin.post(f"{site.path}/invitations", json={"email": "bob@acme.example"})
    assert (response.status_code, response.json()["role"]) == (201, "viewer")


@pytest.mark.parametrize(
    ("public", "host", "start"),
    [
        ("https://train.example.org/", "localhost", "https://train.example.org"),
        ("https://train.example.org", "10.0.0.7:8000", "https://train.example.org"),
        ("http://127.0.0.1:8000", "10.0.0.7:8000", "http://10.0.0.7:8000"),
        ("http://0.0.0.0:8000", "box.lan:8000", "http://box.lan:8000"),
        ("http://127.0.0.1:8000", "localhost:8000", "http://127.0.0.1:8000"),
        ("http://[::1]:8000", "localhost", "http://[::1]:8000"),
    ],
)
def test_an_address_is_the_public_one_or_else_the_requested_one(public: str, host: str, start: str) -> None:
    settings = Settings(secret_key=SECRET, public_url=public)
    address = reachable_address(settings, f"http://{host}")
    assert address == start
    assert (local_warning(address) is not None) == (start in ("http://127.0.0.1:8000", "http://[::1]:8000"))


@pytest.mark.parametrize(("host", "is_local"), [("10.0.0.7:8000", False), ("localhost", True)])
def test_links_and_join_tokens_have_a_reachable_address_or_a_warning(
    settings: Settings, host: str, is_local: bool
) -> None:
    app = create_app(settings.model_copy(update={"allowed_hosts": ["*"]}))
    with running(app, settings):
        site = site_again(app, begin_site(app))
        hosts = {"Host": host}
        invited = site.admin.post(
            f"{site.path}/invitations", json={"email": "bob@acme.example"}, headers=hosts
        ).json()
        token = site.admin.post("/api/v1/join-tokens", json={"name": "box"}, headers=hosts).json()
    assert (invited["link"].rsplit("/link/", 1)[0], token["api"]) == (f"http://{host}",) * 2
    assert (invited["warning"] is not None, token["warning"] is not None) == (is_local, is_local)
    if is_local:
        assert "only on the server's own machine, since it starts with http://localhost." in token["warning"]


def sign_in_url(site: Site, email: str = "ADA@acme.example") -> str:
    with site.app.state.database.write() as session:
        return one_time_links.sign_in_link(session, site.app.state.settings, email).url


def test_a_sign_in_link_signs_in(site: Site) -> None:
    url, browser = sign_in_url(site), site.anonymous()
    assert url.startswith("http://localhost/link/")
    assert use(browser, token=url.rsplit("/", 1)[-1]) == (200, "")
    assert browser.get("/api/v1/me").json()["email"] == "ada@acme.example"
    again = {"email": "ada@acme.example", "password": PASSWORD}
    assert site.anonymous().post("/api/v1/auth/sign-in", json=again).status_code == 200, "it is unchanged"


def test_a_sign_in_link_without_a_new_password_does_not_affect_keys(site: Site) -> None:
    key = site.member("viewer", email="bob@acme.example")
    link = {"token": sign_in_url(site, "bob@acme.example").rsplit("/", 1)[-1]}
    assert use(site.anonymous(), **link) == (200, "")
    assert key.get("/api/v1/me").status_code == 200


def test_a_sign_in_link_recovers_an_account(site: Site) -> None:
    """The inviter may have used the invitation, and knows the password, a key and a session."""
    key, thief = site.member("viewer", email="bob@acme.example"), site.anonymous()
    stolen = {"email": "bob@acme.example", "password": PASSWORD}
    assert thief.post("/api/v1/auth/sign-in", json=stolen).status_code == 200
    link = {"token": sign_in_url(site, "bob@acme.example").rsplit("/", 1)[-1]}
    owner = site.anonymous()
    assert use(owner, **link, password="password123") == (422, "invalid"), "and the link can still be used"
    assert use(owner, **link, password="what only Bob knows") == (200, "")
    assert [client.get("/api/v1/me").status_code for client in (key, thief, owner)] == [401, 401, 200]
    assert thief.post("/api/v1/auth/sign-in", json=stolen).status_code == 401
    mine = stolen | {"password": "what only Bob knows"}
    assert site.anonymous().post("/api/v1/auth/sign-in", json=mine).status_code == 200
    assert site.admin.get("/api/v1/me").status_code == 200, "others keep their access"


@pytest.mark.both_databases
def test_an_expired_link_is_unknown(site: Site) -> None:
    token = invite(site, "bob@acme.example")
    with site.app.state.database.write() as session:
        session.execute(update(OneTimeLink).values(expires=now() - timedelta(seconds=1)))
    browser = site.anonymous()
    assert browser.get(f"/api/v1/auth/link/{token}").status_code == 404
    assert use(browser, token=token, name="Bob", password=PASSWORD) == (404, "link_not_valid")


@pytest.mark.both_databases
def test_the_database_contains_no_link(site: Site) -> None:
    token = invite(site, "bob@acme.example")
    with site.app.state.database.read() as session:
        assert all(token not in str(vars(link)) for link in session.scalars(select(OneTimeLink)))


def test_a_team_has_a_limit_of_pending_invitations(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invitations, "MAX_INVITATIONS", 2)
    path = f"{site.path}/invitations"
    responses = [site.admin.post(path, json={"email": f"{n}@b", "role": "viewer"}) for n in range(3)]
    assert [response.status_code for response in responses] == [201, 201, 409]
    assert responses[2].json()["code"] == "too_many_invitations"
    assert site.admin.delete(f"{path}/{responses[0].json()['id']}").status_code == 204
    assert site.admin.post(path, json={"email": "2@b", "role": "viewer"}).status_code == 201
