"""Passwords and sessions."""

import time
from datetime import timedelta

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pwdlib import PasswordHash
from pydantic import SecretStr
from sqlalchemy import select, update
from zxcvbn import frequency_lists

from tests.backend.conftest import PASSWORD, Site
from trainwright_backend.auth import attempts, passwords
from trainwright_backend.auth.tables import Account, BrowserSession, SignInAttempt
from trainwright_backend.core.db import now
from trainwright_backend.core.errors import Invalid
from trainwright_backend.core.settings import Settings

EMAIL = "ada@acme.example"


def sign_in(client: TestClient, password: str = PASSWORD, email: str = EMAIL) -> int:
    return client.post("/api/v1/auth/sign-in", json={"email": email, "password": password}).status_code


def test_a_password_signs_in_and_out_again(site: Site) -> None:
    browser = site.anonymous()
    assert browser.get("/api/v1/me").status_code == 401
    response = browser.post("/api/v1/auth/sign-in", json={"email": " ADA@acme.example", "password": PASSWORD})
    assert response.json()["email"] == EMAIL and response.json()["teams"][0]["role"] == "owner"
    cookie = response.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=lax" in cookie and "secure" not in cookie
    assert browser.get("/api/v1/me").json() == response.json()
    token = browser.cookies["trainwright"]
    assert browser.post("/api/v1/auth/sign-out").status_code == 204
    assert browser.get("/api/v1/me").status_code == 401
    browser.cookies.set("trainwright", token)
    assert browser.get("/api/v1/me").status_code == 401, "the session itself has ended, not only the cookie"


def test_over_https_the_cookie_is_bound_to_the_host(site: Site, settings: Settings) -> None:
    site.app.state.settings = settings.model_copy(update={"public_url": "https://localhost"})
    response = site.anonymous().post("/api/v1/auth/sign-in", json={"email": EMAIL, "password": PASSWORD})
    cookie = response.headers["set-cookie"]
    assert cookie.startswith("__Host-trainwright=") and "Secure" in cookie and "Path=/" in cookie


def test_a_wrong_password_and_an_unknown_address_get_the_same_response(site: Site) -> None:
    responses = [
        site.anonymous().post("/api/v1/auth/sign-in", json={"email": email, "password": "not the password"})
        for email in (EMAIL, "nobody@acme.example")
    ]
    assert [response.status_code for response in responses] == [401, 401]
    bodies = [response.json() | {"request_id": ""} for response in responses]
    assert bodies[0] == bodies[1]


def test_an_unknown_address_costs_a_hash_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    verified: list[str] = []
    verify = PasswordHash.verify

    def recorded(hasher: PasswordHash, password: str, hashed: str) -> bool:
        verified.append(hashed)
        return verify(hasher, password, hashed)

    monkeypatch.setattr(PasswordHash, "verify", recorded)
    for email in (EMAIL, "nobody@acme.example"):
        sign_in(site.anonymous(), "not the password", email)
    assert len(verified) == 2 and verified[0] != verified[1]
    settings = {hashed.rsplit("$", 2)[0] for hashed in verified}
    assert settings == {"$argon2id$v=19$m=19456,t=2,p=1"}


@pytest.mark.parametrize("email", [EMAIL, "nobody@acme.example"])
def test_the_21st_attempt_is_not_evaluated_until_the_wait_ends(site: Site, email: str) -> None:
    make_attempts(site.app, email, passwords.MAX_ATTEMPTS - 1)
    browser = site.anonymous()
    assert sign_in(browser, "wrong", email) == 401
    response = browser.post("/api/v1/auth/sign-in", json={"email": email, "password": PASSWORD})
    assert (response.status_code, response.json()["code"]) == (429, "too_many_attempts")
    assert 0 < int(response.headers["retry-after"]) <= 600
    assert sign_in(browser, "wrong", "other@else.example") == 401, "others are not affected"
    for left, wait in ((90, "2 minutes"), (50, "1 minute")):
        with site.app.state.database.write() as session:
            past = now() - attempts.WINDOW + timedelta(seconds=left)
            session.execute(update(SignInAttempt).values(time=past))
        refused = browser.post("/api/v1/auth/sign-in", json={"email": email, "password": PASSWORD})
        assert f"Try again in {wait}, or" in refused.json()["detail"]
    with site.app.state.database.write() as session:
        session.execute(update(SignInAttempt).values(time=now() - attempts.WINDOW))
    assert sign_in(browser, PASSWORD, email) == (200 if email == EMAIL else 401)


def test_a_successful_sign_in_neither_counts_nor_resets_attempts(site: Site) -> None:
    make_attempts(site.app, EMAIL, passwords.MAX_ATTEMPTS - 1)
    assert [sign_in(site.anonymous()) for _ in range(3)] == [200, 200, 200]
    assert [sign_in(site.anonymous(), "wrong"), sign_in(site.anonymous())] == [401, 429]


def test_guesses_by_others_do_not_lock_the_owner_out_of_a_known_browser(site: Site) -> None:
    browser = site.anonymous()
    assert sign_in(browser) == 200
    assert browser.post("/api/v1/auth/sign-out").status_code == 204
    make_attempts(site.app, EMAIL, passwords.MAX_ATTEMPTS)
    assert sign_in(site.anonymous()) == 429
    assert sign_in(browser) == 200
    assert sign_in(browser, email="somebody@else.example") == 401, "it is known for one account only"
    for _ in range(passwords.MAX_ATTEMPTS):
        passwords.count_attempt(site.app.state.database, site.app.state.settings, EMAIL, known_browser=True)
    assert sign_in(browser) == 429, "guesses in it are counted too"


def test_forwarded_addresses_do_not_allow_more_attempts(site: Site) -> None:
    make_attempts(site.app, EMAIL, passwords.MAX_ATTEMPTS)
    browser = site.anonymous()
    browser.headers["X-Forwarded-For"] = "203.0.113.9"
    assert sign_in(browser) == 429


def test_a_person_sees_and_ends_their_sessions(site: Site) -> None:
    laptop, phone = site.anonymous(), site.anonymous()
    assert [sign_in(laptop), sign_in(phone)] == [200, 200]
    shown = phone.get("/api/v1/me/sessions").json()
    newest = shown[0]
    assert newest["current"] and sum(item["current"] for item in shown) == 1
    assert not any(item["current"] for item in site.admin.get("/api/v1/me/sessions").json()), "it uses a key"
    of_laptop = shown[1]["id"]
    stranger = site.other_team("globex")
    assert stranger.delete(f"/api/v1/me/sessions/{of_laptop}").status_code == 404
    assert phone.delete(f"/api/v1/me/sessions/{of_laptop}").status_code == 204
    assert [laptop.get("/api/v1/me").status_code, phone.get("/api/v1/me").status_code] == [401, 200]
    assert of_laptop not in phone.get("/api/v1/me/sessions").text
    assert phone.cookies["trainwright"] not in str(shown), "an id is not a credential"


@pytest.mark.both_databases
def test_a_session_expires(site: Site) -> None:
    browser = site.anonymous()
    sign_in(browser)
    with site.app.state.database.write() as session:
        session.execute(update(BrowserSession).values(expires=now() - timedelta(seconds=1)))
    assert browser.get("/api/v1/me").status_code == 401


@pytest.mark.both_databases
def test_the_database_contains_no_usable_credential(site: Site) -> None:
    browser = site.anonymous()
    sign_in(browser)
    with site.app.state.database.read() as session:
        stored = session.scalars(select(BrowserSession.hash)).all()
        account = session.scalars(select(Account)).one()
    assert browser.cookies["trainwright"] not in stored
    assert PASSWORD not in account.password_hash


@pytest.mark.parametrize(
    "password",
    [
        *("password123", "Qwertyuiop", "aaaaaaaaaaaa", "1234567890", "P@ssw0rd2025", "jennifer1987"),
        *("Password2024!", "trainwright1", "correcthorsebatterystaple", "lovelace-1815", "ab" * 100),
    ],
)
def test_passwords_that_are_easy_to_guess_are_refused(password: str) -> None:
    with pytest.raises(Invalid, match="easy to guess") as refused:
        passwords.hash_password(password, ("Ada Lovelace", "ada@acme.example", None))
    assert password not in str(refused.value)


def test_common_passwords_are_refused() -> None:
    """Every hundredth of the 30,000 most frequent leaked ones, made long enough by a year."""
    for common in list(frequency_lists.FREQUENCY_LISTS["passwords"])[::100]:
        with pytest.raises(Invalid):
            passwords.hash_password(common.ljust(10, "1"))


@pytest.mark.parametrize("password", [PASSWORD, "what only Bob knows", "kX9#vTq2!m", "käse und brot im haus"])
def test_other_passwords_are_hashed(password: str) -> None:
    assert passwords.hash_password(password, ("Ada Lovelace",)).startswith("$argon2id$")


def test_a_long_password_is_judged_quickly() -> None:
    began = time.process_time()
    passwords.hash_password("e3e3i1i1o0o0a4a4s5s5" * 50)
    assert time.process_time() - began < 3


def test_a_refused_password_is_not_repeated_in_the_response(anonymous: TestClient) -> None:
    body = {"token": "t", "password": "short-pw"}
    response = anonymous.post("/api/v1/auth/link", json=body)
    assert response.status_code == 422 and "short-pw" not in response.text


def test_a_secret_key_is_required() -> None:
    with pytest.raises(ValueError, match="secret_key"):
        Settings(secret_key=SecretStr("too short"))


def make_attempts(app: FastAPI, email: str, times: int) -> None:
    for _ in range(times):
        passwords.count_attempt(app.state.database, app.state.settings, email)
