"""Sign-in with an identity provider: a certified one, and one that forges what it can."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from sqlalchemy import select

from tests.backend.auth.forging_provider import (
    Claims,
    ForgingProvider,
    new_key,
    signed,
    signed_with_public_key,
    unsigned,
)
from tests.backend.auth.oidc_scene import (
    ADA,
    GRACE,
    REDIRECT,
    accounts,
    change,
    finish,
    finish_with,
    me,
    provider,
    query_of,
    roles,
    settings,
    sign_in,
    start,
)
from tests.backend.conftest import PASSWORD, Site
from tests.certified_provider import certified_provider, refuse_at, sign_in_at
from trainwright.contracts.api.people import Role
from trainwright_backend.auth import identity_provider
from trainwright_backend.auth.tables import BrowserSession
from trainwright_backend.core.settings import settings_from

__all__ = ["provider", "settings"]


@pytest.fixture(scope="module")
def certified(repository: Path) -> Iterator[str]:
    people = {name: {**GRACE, "sub": name} for name in ("grace",)}
    with certified_provider(repository, people) as issuer:
        yield issuer


def test_a_person_signs_in_at_a_certified_provider(site: Site, certified: str) -> None:
    change(site, oidc_issuer=certified)
    site.app.state.identity_provider = identity_provider.IdentityProvider(site.app.state.settings)
    browser, stranger = site.anonymous(), site.anonymous()
    assert browser.get("/api/v1/auth/oidc").json() == {"name": "Lab login"}
    returned = sign_in_at(start(browser, "/acme/runs"), "grace")
    start(stranger)
    assert finish_with(stranger, returned) == (401, "sign_in_not_started"), "the state of another browser"
    response = browser.post(
        "/api/v1/auth/oidc/finish",
        json={
            "state": returned["state"],
            "authorization_code": returned["code"],
            "issuer": returned["iss"],
        },
    )
    assert response.status_code == 200, response.text
    assert response.json()["next"] == "/acme/runs"
    person = me(browser)
    assert (person["name"], person["email"], person["site_admin"]) == ("Grace", GRACE["email"], False)
    assert person["has_password"] is False and roles(browser) == {"acme": "editor"}
    [session] = browser.get("/api/v1/me/sessions").json()
    assert session["provider"] == "Lab login"

    again = site.anonymous()
    returned = sign_in_at(start(again), "grace")
    cookies = dict(again.cookies)
    assert finish_with(again, returned)[0] == 200 and me(again)["id"] == person["id"]
    replaying = site.anonymous()
    replaying.cookies.update(cookies)
    assert finish_with(replaying, returned) == (401, "sign_in_expired"), "a code is valid once"
    assert replaying.get("/api/v1/me").status_code == 401

    cancelling = site.anonymous()
    assert finish_with(cancelling, refuse_at(start(cancelling))) == (401, "provider_refused")


def test_the_request_to_the_provider_has_state_nonce_and_a_pkce_challenge(site: Site) -> None:
    browser = site.anonymous()
    first, second = query_of(start(browser)), query_of(start(browser))
    assert first["response_type"] == "code" and first["redirect_uri"] == REDIRECT
    assert first["code_challenge_method"] == "S256" and len(first["code_challenge"]) == 43
    for name in ("state", "nonce", "code_challenge"):
        assert first[name] != second[name]
    cookie = browser.post("/api/v1/auth/oidc/start", json={}).headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=lax" in cookie and "max-age=600" in cookie


def foreign_key(provider: ForgingProvider, claims: Claims) -> str:
    return signed(new_key(), claims)


def changed_after_signing(provider: ForgingProvider, claims: Claims) -> str:
    header, _, signature = signed(provider.key, claims).split(".")
    return f"{header}.{signed(provider.key, claims | {'sub': 'ada'}).split('.')[1]}.{signature}"


ATTACKS: dict[str, tuple[Claims, Callable[[ForgingProvider, Claims], str] | None]] = {
    "the nonce of another sign-in": ({"nonce": "f" * 64}, None),
    "no nonce": ({"nonce": None}, None),
    "for another application": ({"aud": "other"}, None),
    "for two applications": ({"aud": ["trainwright", "other"]}, None),
    "given to another application": ({"azp": "other"}, None),
    "of another issuer": ({"iss": "https://login.example.org"}, None),
    "expired": ({"exp": int(time.time()) - 120}, None),
    "of the future": ({"iat": int(time.time()) + 3_600}, None),
    "without an end": ({"exp": None}, None),
    "of nobody": ({"sub": ""}, None),
    "with an endless subject": ({"sub": "a" * 256}, None),
    "unsigned": ({}, unsigned),
    "signed with a foreign key": ({}, foreign_key),
    "signed with the public key as a secret": ({}, signed_with_public_key),
    "changed after signing": ({}, changed_after_signing),
    "no token": ({}, lambda provider, claims: "not a token"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_forged_token_signs_nobody_in(site: Site, provider: ForgingProvider, attack: str) -> None:
    claims, provider.sign = ATTACKS[attack]
    browser, before = site.anonymous(), accounts(site)
    assert sign_in(browser, provider, **claims) == (401, "sign_in_not_proven")
    assert browser.get("/api/v1/me").status_code == 401 and accounts(site) == before
    provider.sign = None
    assert sign_in(browser, provider) == (200, "")


def test_clocks_may_differ_by_a_minute(site: Site, provider: ForgingProvider) -> None:
    late = {"exp": int(time.time()) - 50, "iat": int(time.time()) + 50}
    assert sign_in(site.anonymous(), provider, **late) == (200, "")


def test_a_response_of_another_issuer_or_without_its_promised_issuer_is_refused(
    site: Site, provider: ForgingProvider
) -> None:
    provider.document = {"authorization_response_iss_parameter_supported": True}
    browser = site.anonymous()
    for issuer in ("https://login.example.org", None):
        state = query_of(start(browser))["state"]
        assert finish(browser, state=state, authorization_code="any", issuer=issuer) == (
            401,
            "sign_in_not_proven",
        )
    assert "/token" not in provider.requests


def test_a_response_is_of_use_only_in_the_browser_that_began_and_for_ten_minutes(
    site: Site, provider: ForgingProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim, attacker = site.anonymous(), site.anonymous()
    state = query_of(start(attacker))["state"]
    assert finish(victim, state=state, authorization_code="any") == (401, "sign_in_not_started")
    start(victim)
    assert finish(victim, state=state, authorization_code="any") == (401, "sign_in_not_started")
    later = int(time.time()) + 601
    monkeypatch.setattr("itsdangerous.timed.TimestampSigner.get_timestamp", lambda _: later)
    assert finish(attacker, state=state, authorization_code="any") == (401, "sign_in_not_started")
    assert "/token" not in provider.requests


def test_another_person_at_the_userinfo_endpoint_is_refused(site: Site, provider: ForgingProvider) -> None:
    provider.user_info = {"sub": "ada", "email": ADA}
    assert sign_in(site.anonymous(), provider, email=None) == (401, "sign_in_not_proven")
    provider.user_info = {"sub": GRACE["sub"], "email": "GRACE@lab.example"}
    browser = site.anonymous()
    assert sign_in(browser, provider, email=None) == (200, "") and me(browser)["email"] == GRACE["email"]


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://login.example.org"},
        {"token_endpoint": "http://login.example.org/token"},
        {"token_endpoint": "file:///etc/passwd"},
        {"jwks_uri": None},
    ],
)
def test_a_discovery_document_that_cannot_be_trusted_is_refused(
    site: Site, provider: ForgingProvider, document: dict[str, Any]
) -> None:
    provider.document = document
    response = site.anonymous().post("/api/v1/auth/oidc/start", json={})
    assert (response.status_code, response.json()["code"]) == (503, "provider_unavailable")


def test_the_provider_cannot_send_the_server_into_its_own_network(
    site: Site, provider: ForgingProvider
) -> None:
    provider.document = {"token_endpoint": "https://10.0.0.1/token"}
    assert sign_in(site.anonymous(), provider) == (503, "provider_unavailable")


def test_discovery_and_keys_are_requested_once_and_new_keys_are_found(
    site: Site, provider: ForgingProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [sign_in(site.anonymous(), provider) for _ in range(3)] == [(200, "")] * 3
    assert provider.requests.count("/.well-known/openid-configuration") == 1
    assert provider.requests.count("/keys") == 1
    provider.key = new_key()
    assert sign_in(site.anonymous(), provider)[0] == 401, (
        "keys are a minute old at least before they are requested again"
    )
    monkeypatch.setattr(identity_provider, "KEYS_SECONDS", 0.0)
    assert sign_in(site.anonymous(), provider) == (200, "")
    assert provider.requests.count("/keys") == 2


def test_a_provider_that_is_down_leaves_the_password(site: Site, provider: ForgingProvider) -> None:
    state = query_of(start(browser := site.anonymous()))["state"]
    site.app.state.identity_provider = identity_provider.IdentityProvider(
        site.app.state.settings.model_copy(update={"oidc_issuer": "http://127.0.0.1:9"})
    )
    assert finish(browser, state=state, authorization_code="any") == (503, "provider_unavailable")
    assert browser.post("/api/v1/auth/sign-in", json={"email": ADA, "password": PASSWORD}).status_code == 200


def test_a_sign_in_is_in_the_audit_log_without_its_code(site: Site, provider: ForgingProvider) -> None:
    query = query_of(start(browser := site.anonymous()))
    provider.claims = GRACE | {"nonce": query["nonce"]}
    assert finish(browser, state=query["state"], authorization_code="the code")[0] == 200
    [entry] = site.admin.get("/api/v1/audit", params={"action": "finish_provider_sign_in"}).json()["items"]
    assert entry["name"] == "Grace" and entry["via"] == "browser"
    assert json.loads(entry["details"])["authorization_code"] == "..." and "the code" not in json.dumps(entry)


def test_a_session_of_the_provider_ends_after_the_hours_of_the_settings(
    site: Site, provider: ForgingProvider
) -> None:
    change(site, oidc_session_hours=2.0)
    assert sign_in(site.anonymous(), provider) == (200, "")
    with site.app.state.database.read() as session:
        row = session.scalars(select(BrowserSession).where(BrowserSession.provider == "Lab login")).one()
    assert 1.9 < (row.expires - row.created).total_seconds() / 3600 < 2.1


COMPLETE = {
    "TRAINWRIGHT_SECRET_KEY": "-" * 32,
    "TRAINWRIGHT_OIDC_ISSUER": "https://login.example.org",
    "TRAINWRIGHT_OIDC_CLIENT_ID": "trainwright",
    "TRAINWRIGHT_OIDC_CLIENT_SECRET": "secret",
}


def test_complete_settings_are_read_from_the_environment() -> None:
    groups = '{"ml": {"lab": "editor"}}'
    found = settings_from(COMPLETE | {"TRAINWRIGHT_OIDC_GROUPS": groups, "TRAINWRIGHT_OIDC_NETWORKS": ""})
    assert found.oidc_label == "login.example.org" and found.oidc_groups == {"ml": {"lab": Role.EDITOR}}
    assert found.allowed_oidc_networks == []
    assert (
        settings_from(dict.fromkeys(COMPLETE, "") | {"TRAINWRIGHT_SECRET_KEY": "-" * 32}).oidc_issuer is None
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"TRAINWRIGHT_OIDC_CLIENT_SECRET": ""}, "TRAINWRIGHT_OIDC_CLIENT_SECRET is missing"),
        (
            {"TRAINWRIGHT_OIDC_ISSUER": "", "TRAINWRIGHT_OIDC_CLIENT_ID": ""},
            "ISSUER and TRAINWRIGHT_OIDC_CLIENT_ID are missing",
        ),
        ({"TRAINWRIGHT_OIDC_ISSUER": "http://login.example.org"}, "is not the address of a provider"),
        ({"TRAINWRIGHT_OIDC_ISSUER": "https://login.example.org?a=b"}, "is not the address of a provider"),
        ({"TRAINWRIGHT_OIDC_SCOPES": "email"}, "lacks the scope openid"),
        ({"TRAINWRIGHT_OIDC_GROUPS": "ml=lab"}, "is not JSON"),
        ({"TRAINWRIGHT_OIDC_GROUPS": '{"ml": {"lab": "king"}}'}, "oidc_groups.ml.lab"),
        ({"TRAINWRIGHT_OIDC_NETWORKS": '["10.0.0.0/99"]'}, "10.0.0.0/99"),
    ],
)
def test_settings_that_are_half_set_or_wrong_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        settings_from(COMPLETE | given)
    assert said in str(refused.value)
