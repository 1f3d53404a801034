"""Which account a person at the identity provider signs in to, and what their groups give."""

from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update

from tests.backend.auth.forging_provider import ForgingProvider
from tests.backend.auth.oidc_scene import (
    ADA,
    GRACE,
    accounts,
    change,
    finish,
    me,
    provider,
    query_of,
    roles,
    settings,
    sign_in,
)
from tests.backend.conftest import PASSWORD, Site
from trainwright_backend.auth.tables import Account, ExternalIdentity
from trainwright_backend.core.oidc_settings import NewAccounts
from trainwright_backend.teams.one_time_links import sign_in_link

__all__ = ["provider", "settings"]


@pytest.mark.both_databases
def test_the_key_of_an_account_is_issuer_and_subject(site: Site, provider: ForgingProvider) -> None:
    browser, renamed, other = site.anonymous(), site.anonymous(), site.anonymous()
    assert sign_in(browser, provider) == (200, "")
    assert sign_in(renamed, provider, email="hopper@lab.example") == (200, "")
    assert me(renamed)["id"] == me(browser)["id"] and me(renamed)["email"] == GRACE["email"]
    assert sign_in(other, provider, sub="grace-2", email="other@lab.example") == (200, "")
    assert me(other)["id"] != me(browser)["id"]
    [identity] = browser.get("/api/v1/me/oidc").json()
    assert (identity["subject"], identity["email"]) == ("grace-1", "hopper@lab.example")
    with site.app.state.database.write() as session:
        session.execute(update(ExternalIdentity).values(issuer="https://login.example.org"))
    assert sign_in(site.anonymous(), provider) == (401, "account_not_linked"), "the subject of another issuer"


@pytest.mark.parametrize(
    ("trusted", "verified", "confirmed", "linked"),
    [
        (True, True, True, True),
        (False, True, True, False),
        (True, False, True, False),
        (True, "true", True, False),
        (True, True, False, False),
    ],
)
def test_an_address_finds_an_account_only_if_provider_and_account_prove_it(
    site: Site, provider: ForgingProvider, trusted: bool, verified: object, confirmed: bool, linked: bool
) -> None:
    change(site, oidc_trust_email=trusted)
    victim = site.member("viewer", email="bob@acme.example")
    with site.app.state.database.write() as session:
        session.execute(
            update(Account).where(Account.email == "bob@acme.example").values(email_verified=confirmed)
        )
    browser = site.anonymous()
    response = sign_in(browser, provider, email="BOB@acme.example", email_verified=verified)
    assert response == ((200, "") if linked else (401, "account_not_linked"))
    if linked:
        assert me(browser)["id"] == me(victim)["id"]
    else:
        assert browser.get("/api/v1/me").status_code == 401


def test_the_account_of_a_site_admin_is_linked_by_its_owner_only(
    site: Site, provider: ForgingProvider
) -> None:
    change(site, oidc_trust_email=True)
    browser = site.anonymous()
    assert sign_in(browser, provider, email=ADA) == (401, "account_not_linked")
    assert browser.post("/api/v1/auth/sign-in", json={"email": ADA, "password": PASSWORD}).status_code == 200
    wrong = browser.post("/api/v1/me/oidc", json={"current_password": "not the password"})
    assert wrong.status_code == 422 and wrong.json()["errors"][0]["field"] == "current_password"
    query = query_of(begin_link(browser))
    provider.claims = GRACE | {"nonce": query["nonce"], "email": "anything@else.example"}
    assert finish(browser, state=query["state"], authorization_code="any") == (200, "")
    elsewhere = site.anonymous()
    assert sign_in(elsewhere, provider) == (200, "") and me(elsewhere)["email"] == ADA
    assert me(elsewhere)["site_admin"] is True


def begin_link(browser: TestClient) -> str:
    response = browser.post("/api/v1/me/oidc", json={"current_password": PASSWORD})
    assert response.status_code == 200, response.text
    return str(response.json()["url"])


def test_an_identity_is_linked_to_the_person_who_began_and_to_one_account(
    site: Site, provider: ForgingProvider
) -> None:
    for email in ("bob@acme.example", "eve@acme.example"):
        site.member("viewer", email=email)
    bob, eve = site.anonymous(), site.anonymous()
    for browser, email in ((bob, "bob@acme.example"), (eve, "eve@acme.example")):
        assert (
            browser.post("/api/v1/auth/sign-in", json={"email": email, "password": PASSWORD}).status_code
            == 200
        )
    query = query_of(begin_link(bob))
    provider.claims = GRACE | {"nonce": query["nonce"]}
    session = bob.cookies["trainwright"]
    bob.cookies.set("trainwright", eve.cookies["trainwright"], domain="localhost.local", path="/")
    assert finish(bob, state=query["state"], authorization_code="any") == (401, "not_signed_in")
    bob.cookies.set("trainwright", session, domain="localhost.local", path="/")
    assert finish(bob, state=query["state"], authorization_code="any") == (200, "")
    query = query_of(begin_link(eve))
    provider.claims = GRACE | {"nonce": query["nonce"]}
    assert finish(eve, state=query["state"], authorization_code="any") == (409, "identity_linked")
    [identity] = bob.get("/api/v1/me/oidc").json()
    assert eve.get("/api/v1/me/oidc").json() == []
    assert eve.delete(f"/api/v1/me/oidc/{identity['id']}").status_code == 404
    assert bob.delete(f"/api/v1/me/oidc/{identity['id']}").status_code == 204
    assert bob.get("/api/v1/me/oidc").json() == []
    unlinked = site.admin.get("/api/v1/audit", params={"q": identity["email"]}).json()["items"]
    assert [entry["path"] for entry in unlinked] == [f"/api/v1/me/oidc/{identity['id']}"]


def test_groups_give_roles_that_follow_them_and_leave_those_of_owners_alone(
    site: Site, provider: ForgingProvider
) -> None:
    browser = site.anonymous()
    assert sign_in(browser, provider, groups=["lab", "leads", "gone", 7]) == (200, "")
    assert roles(browser) == {"acme": "owner"}
    assert sign_in(browser, provider, groups="lab") == (200, "") and roles(browser) == {"acme": "editor"}
    assert sign_in(browser, provider, groups=[]) == (200, "") and roles(browser) == {}
    assert sign_in(browser, provider, groups=["lab"]) == (200, "") and roles(browser) == {"acme": "editor"}
    member = me(browser)["id"]
    changed = site.admin.patch(f"{site.path}/members/{member}", json={"role": "viewer"})
    assert changed.status_code == 200, changed.text
    for groups in (["lab"], ["leads"], []):
        assert sign_in(browser, provider, groups=groups) == (200, "") and roles(browser) == {"acme": "viewer"}
    assert me(browser)["site_admin"] is False


def test_groups_take_a_team_its_last_owner_never(site: Site, provider: ForgingProvider) -> None:
    browser = site.anonymous()
    assert sign_in(browser, provider, groups=["leads"]) == (200, "")
    assert site.admin.delete(f"{site.path}/members/me").status_code == 204
    assert sign_in(browser, provider, groups=[]) == (200, "") and roles(browser) == {"acme": "owner"}


@pytest.mark.parametrize(
    ("wanted", "groups", "response"),
    [
        (NewAccounts.NOBODY, ["lab"], (401, "no_account")),
        (NewAccounts.GROUPS, ["lab"], (200, "")),
        (NewAccounts.GROUPS, ["others"], (401, "no_account")),
        (NewAccounts.GROUPS, None, (401, "no_account")),
        (NewAccounts.ANYONE, None, (200, "")),
    ],
)
def test_the_operator_decides_who_gets_an_account(
    site: Site,
    provider: ForgingProvider,
    wanted: NewAccounts,
    groups: list[str] | None,
    response: tuple[int, str],
) -> None:
    change(site, oidc_new_accounts=wanted)
    assert sign_in(site.anonymous(), provider, groups=groups) == response


def test_the_first_account_is_not_the_provider_s(app: Any, provider: ForgingProvider) -> None:
    site = Site(app, TestClient(app))
    assert sign_in(site.anonymous(), provider) == (409, "not_set_up")
    assert accounts(site) == 0


def test_without_an_address_there_is_no_account(site: Site, provider: ForgingProvider) -> None:
    assert sign_in(site.anonymous(), provider, email=None) == (401, "no_address")


def test_an_account_without_a_password_keeps_its_identity_until_a_link_sets_one(
    site: Site, provider: ForgingProvider
) -> None:
    browser = site.anonymous()
    assert sign_in(browser, provider) == (200, "")
    guess = {"email": GRACE["email"], "password": ""}
    assert site.anonymous().post("/api/v1/auth/sign-in", json=guess).status_code == 401
    [identity] = browser.get("/api/v1/me/oidc").json()
    refused = browser.delete(f"/api/v1/me/oidc/{identity['id']}")
    assert (refused.status_code, refused.json()["code"]) == (409, "no_password")
    with site.app.state.database.write() as session:
        link = sign_in_link(session, site.app.state.settings, str(GRACE["email"]))
    used = {"token": link.url.rsplit("/", 1)[-1], "password": "seven quiet otters nap"}
    owner_of_address = site.anonymous()
    assert owner_of_address.post("/api/v1/auth/link", json=used).status_code == 200
    assert owner_of_address.get("/api/v1/me/oidc").json() == [], "the address was not confirmed before"
    assert browser.get("/api/v1/me").status_code == 401
