"""A person changes their name and their password."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update

from tests.backend.auth.test_sign_in import EMAIL, make_attempts, sign_in
from tests.backend.conftest import PASSWORD, Site, client_of
from trainwright_backend.auth import attempts, passwords
from trainwright_backend.auth.tables import Account, SignInAttempt
from trainwright_backend.core.db import now

NEW = "what only Ada knows"


def signed_in(site: Site) -> TestClient:
    browser = site.anonymous()
    assert sign_in(browser) == 200
    return browser


def change(client: TestClient, current: str = PASSWORD, new: str = NEW) -> tuple[int, str, str]:
    """Status, code and message of the response."""
    body = {"current_password": current, "password": new}
    response = client.post("/api/v1/me/password", json=body)
    if response.status_code == 204:
        return 204, "", ""
    assert current not in response.text and new not in response.text, "a refusal repeats no password"
    return response.status_code, response.json()["code"], response.json()["detail"]


@pytest.mark.both_databases
def test_a_new_name_is_shown_to_others_and_old_work_keeps_the_old_one(site: Site) -> None:
    recipe = {"name": "small", "spec": {}}
    assert site.admin.post(f"{site.path}/recipes", json=recipe).status_code == 201
    response = site.admin.patch("/api/v1/me", json={"name": "  Ada Lovelace "})
    assert (response.status_code, response.json()["name"]) == (200, "Ada Lovelace")
    assert response.json() == site.admin.get("/api/v1/me").json()
    [member] = site.admin.get(f"{site.path}/members").json()
    assert (member["name"], member["email"]) == ("Ada Lovelace", EMAIL)
    assert site.admin.get(f"{site.path}/recipes").json()[0]["saved_by"] == "Ada"


@pytest.mark.parametrize("name", ["", "   ", "x" * 81, None, "a\0b"])
def test_an_unreadable_name_is_refused(site: Site, name: object) -> None:
    response = site.admin.patch("/api/v1/me", json={"name": name})
    assert response.status_code == 422
    [problem] = response.json()["errors"]
    assert problem["field"] == "name" and problem["message"]
    assert site.admin.get("/api/v1/me").json()["name"] == "Ada"


def test_a_new_password_signs_other_browsers_out_and_keeps_this_one_and_keys(site: Site) -> None:
    here, elsewhere = signed_in(site), signed_in(site)
    stranger = site.other_team("globex")
    assert change(here) == (204, "", "")
    assert here.get("/api/v1/me").status_code == 200
    assert elsewhere.get("/api/v1/me").status_code == 401
    assert site.admin.get("/api/v1/me").status_code == 200, "keys do not depend on the password"
    assert stranger.get("/api/v1/me").status_code == 200
    assert sign_in(site.anonymous()) == 401
    assert sign_in(site.anonymous(), NEW) == 200


def test_a_key_changes_the_password_and_ends_all_browsers(site: Site) -> None:
    browser = signed_in(site)
    assert change(site.admin)[0] == 204
    assert browser.get("/api/v1/me").status_code == 401


def test_refusals_name_the_field_and_the_remedy(site: Site) -> None:
    browser = signed_in(site)
    status, _, detail = change(browser, current="not the password")
    assert status == 422, "not 401, which would mean that the person is signed out"
    assert detail.startswith("current_password: This is not your current password. Type it again.")
    status, _, detail = change(browser, new="ada@acme.example")
    assert status == 422 and detail.startswith("password: This password is easy to guess. Choose another")
    status, _, detail = change(browser, new=PASSWORD)
    assert status == 422 and detail == "password: This is your current password. Choose another one."
    status, _, detail = change(browser, new="short-pw")
    assert status == 422 and detail == "password: This is too short: write 10 characters or more."
    assert sign_in(site.anonymous()) == 200, "nothing has changed"


def test_guesses_of_the_current_password_are_limited_like_those_at_sign_in(site: Site) -> None:
    make_attempts(site.app, EMAIL, passwords.MAX_ATTEMPTS - 1)
    assert change(site.admin, current="wrong one")[0] == 422
    assert change(site.admin)[:2] == (429, "too_many_attempts"), "even with the right password"
    assert sign_in(site.anonymous()) == 429, "they count together"
    browser = site.anonymous()
    with site.app.state.database.write() as session:
        session.execute(update(SignInAttempt).values(time=now() - attempts.WINDOW))
    assert sign_in(browser) == 200
    make_attempts(site.app, EMAIL, passwords.MAX_ATTEMPTS)
    assert change(browser)[0] == 204, "guesses by others do not lock the person out"


@pytest.mark.both_databases
def test_only_one_of_two_concurrent_changes_succeeds(site: Site) -> None:
    browsers = [signed_in(site), signed_in(site)]
    for browser in browsers:
        browser.portal = None  # each with its own event loop, so that they run concurrently
    news = ["what only Ada knows", "what only Bob knows"]
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(change, browsers, [PASSWORD] * 2, news))
    won = [new for new, (status, *_) in zip(news, done, strict=True) if status == 204]
    assert len(won) == 1, done
    assert sign_in(client_of(site.app), won[0]) == 200


def test_a_change_after_a_recovery_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = signed_in(site)
    hash_password = passwords.hash_password

    def hash_after_recovery(password: str, about: Iterable[str | None] = ()) -> str:
        with site.app.state.database.write() as session:
            session.execute(update(Account).values(password_hash="recovered"))
        return hash_password(password, about)

    monkeypatch.setattr(passwords, "hash_password", hash_after_recovery)
    assert change(browser)[:2] == (409, "password_changed")
