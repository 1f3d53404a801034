"""Device login: a program gets a key once, if a person approves it, and nobody else can."""

from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select, update

from tests.backend.conftest import Site
from trainwright_backend.auth import device_logins
from trainwright_backend.auth.tables import Account, ApiKey, DeviceLogin
from trainwright_backend.core.db import now
from trainwright_backend.teams.one_time_links import sign_in_link

ASKED = {"client": "trainwright on gpu-07", "scope": "submit", "lifetime_days": 30}


def ask(program: TestClient, **changes: Any) -> dict[str, Any]:
    response = program.post("/api/v1/auth/device", json=ASKED | changes)
    assert response.status_code == 201, response.text
    found: dict[str, Any] = response.json()
    return found


def poll(program: TestClient, device_code: str) -> tuple[int, str]:
    """The status, and the key's secret or the error."""
    response = program.post("/api/v1/auth/device/key", json={"device_code": device_code})
    said = response.json()
    assert response.status_code == 200 or said["code"] == said["error"]
    return response.status_code, said.get("secret") or said["code"]


def decide(person: TestClient, user_code: str, approve: bool = True) -> int:
    return person.post("/api/v1/me/device", json={"user_code": user_code, "approve": approve}).status_code


def wait_out_interval(site: Site) -> None:
    with site.app.state.database.write() as session:
        session.execute(update(DeviceLogin).values(polled=None))


@pytest.mark.both_databases
def test_an_approved_program_gets_a_key_of_the_person_once(site: Site) -> None:
    program = site.anonymous()
    asked = ask(program)
    assert asked["verification_uri"] == "http://localhost/sign-in/device"
    assert (
        asked["verification_uri_complete"]
        == f"http://localhost/sign-in/device?user_code={asked['user_code']}"
    )
    assert poll(program, asked["device_code"]) == (400, "authorization_pending")
    person = site.member("editor")
    typed = asked["user_code"].lower().replace("-", " ")
    shown = person.get(f"/api/v1/me/device/{typed}").json()
    assert (shown["user_code"], shown["client"], shown["address"]) == (
        asked["user_code"],
        "trainwright on gpu-07",
        "testclient",
    )
    assert (shown["scope"], shown["lifetime_days"]) == ("submit", 30)
    assert decide(person, typed) == 204
    assert decide(person, typed) == 404, "a code is decided once"
    status, secret = poll(program, asked["device_code"])
    assert status == 200
    assert poll(program, asked["device_code"]) == (400, "expired_token"), "and redeemed once"
    program.headers["Authorization"] = f"Bearer {secret}"
    me = program.get("/api/v1/me").json()
    assert me["email"] == "editor@acme.example"
    key = next(key for key in program.get("/api/v1/me/keys").json() if key["name"] == ASKED["client"])
    assert key["scope"] == "submit" and key["expires"] is not None
    assert program.post("/api/v1/me/keys", json={"name": "more"}).status_code == 403
    found = site.admin.get("/api/v1/audit").json()["items"]
    by_action = {item["action"]: item for item in found}
    assert by_action["redeem_device_code"]["via"] == secret[:11] == key["prefix"]
    assert by_action["decide_device_login"]["user"] == me["id"]
    assert asked["device_code"] not in str(found)


def test_a_refused_program_and_an_expired_code_get_nothing(site: Site) -> None:
    program, person = site.anonymous(), site.admin
    refused, expired = ask(program), ask(program)
    assert decide(person, refused["user_code"], approve=False) == 204
    assert poll(program, refused["device_code"]) == (400, "access_denied")
    assert poll(program, refused["device_code"]) == (400, "expired_token")
    assert decide(person, expired["user_code"]) == 204
    with site.app.state.database.write() as session:
        session.execute(update(DeviceLogin).values(expires=now() - timedelta(seconds=1)))
        before = len(session.scalars(select(ApiKey)).all())
    assert poll(program, expired["device_code"]) == (400, "expired_token")
    assert poll(program, expired["user_code"]) == (400, "expired_token"), "the short code gets nothing"
    assert decide(person, expired["user_code"]) == 404
    with site.app.state.database.read() as session:
        assert len(session.scalars(select(ApiKey)).all()) == before


def test_a_program_that_polls_too_fast_must_slow_down(site: Site) -> None:
    program = site.anonymous()
    code = ask(program)["device_code"]
    assert poll(program, code) == (400, "authorization_pending")
    assert poll(program, code) == (400, "slow_down")
    with site.app.state.database.write() as session:
        row = session.scalars(select(DeviceLogin)).one()
        assert row.interval_seconds == 2 * device_logins.INTERVAL_SECONDS
        row.polled = now() - timedelta(seconds=device_logins.INTERVAL_SECONDS + 1)
    assert poll(program, code) == (400, "slow_down"), "the interval is longer now"
    wait_out_interval(site)
    assert poll(program, code) == (400, "authorization_pending")


def test_codes_cannot_be_guessed(site: Site) -> None:
    asked = ask(site.anonymous())
    person = site.member("viewer")
    assert person.get(f"/api/v1/me/device/{asked['user_code']}").status_code == 200
    guesses = [
        person.get("/api/v1/me/device/XXXX-XXXX").status_code for _ in range(device_logins.MAX_GUESSES)
    ]
    assert set(guesses) == {404}
    response = person.get(f"/api/v1/me/device/{asked['user_code']}")
    assert (response.status_code, response.json()["code"]) == (429, "too_many_codes")
    assert decide(person, asked["user_code"]) == 429
    assert decide(site.admin, asked["user_code"]) == 204, "others are not affected"
    assert len(set(device_logins.LETTERS)) ** device_logins.CODE_LETTERS > 2**34


def test_the_database_has_no_usable_code(site: Site) -> None:
    asked = ask(site.anonymous())
    with site.app.state.database.read() as session:
        row = session.scalars(select(DeviceLogin)).one()
        stored = str([getattr(row, column.name) for column in DeviceLogin.__table__.columns])
    assert asked["device_code"] not in stored and asked["user_code"].replace("-", "") not in stored


def test_programs_of_one_address_and_of_all_are_limited(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_logins, "MAX_WAITING_PER_ADDRESS", 2)
    program = site.anonymous()
    first = ask(program)
    ask(program)
    response = program.post("/api/v1/auth/device", json=ASKED)
    assert response.status_code == 429 and int(response.headers["retry-after"]) == 600
    assert decide(site.admin, first["user_code"], approve=False) == 204
    assert poll(program, first["device_code"]) == (400, "access_denied")
    ask(program)
    monkeypatch.setattr(device_logins, "MAX_WAITING_PER_ADDRESS", 20)
    monkeypatch.setattr(device_logins, "MAX_WAITING", 2)
    assert program.post("/api/v1/auth/device", json=ASKED).status_code == 503


def test_a_new_password_ends_what_was_approved(site: Site) -> None:
    program = site.anonymous()
    asked = ask(program)
    person = site.member("viewer")
    assert decide(person, asked["user_code"]) == 204
    with site.app.state.database.write() as session:
        session.execute(
            update(Account).where(Account.email == "viewer@acme.example").values(email_verified=False)
        )
        link = sign_in_link(session, site.app.state.settings, "viewer@acme.example")
    used = {"token": link.url.rsplit("/", 1)[-1], "password": "seven quiet otters nap"}
    assert site.anonymous().post("/api/v1/auth/link", json=used).status_code == 200
    assert poll(program, asked["device_code"]) == (400, "expired_token")


@pytest.mark.parametrize("scope", ["read", "submit", "manage"])
def test_a_key_of_any_scope_revokes_itself(site: Site, scope: str) -> None:
    made = site.admin.post("/api/v1/me/keys", json={"name": "laptop", "scope": scope}).json()
    program = site.anonymous()
    program.headers["Authorization"] = f"Bearer {made['secret']}"
    assert program.delete("/api/v1/me/keys/current").status_code == 204
    assert program.get("/api/v1/me").status_code == 401
    assert site.admin.get("/api/v1/me").status_code == 200


def test_a_browser_has_no_key_to_revoke(site: Site) -> None:
    browser = site.anonymous()
    credentials = {"email": "ada@acme.example", "password": "a long enough password"}
    assert browser.post("/api/v1/auth/sign-in", json=credentials).status_code == 200
    response = browser.delete("/api/v1/me/keys/current")
    assert (response.status_code, response.json()["code"]) == (409, "no_key")
