"""API keys."""

import re
from datetime import datetime, timedelta

import pytest
from sqlalchemy import select, update

from tests.backend.conftest import Site
from trainwright_backend.auth import keys
from trainwright_backend.auth.tables import ApiKey
from trainwright_backend.core.db import now


def test_a_key_acts_as_its_owner_until_it_is_deleted(site: Site) -> None:
    made = site.admin.post("/api/v1/me/keys", json={"name": "laptop"}).json()
    program = site.anonymous()
    program.headers["Authorization"] = f"Bearer {made['secret']}"
    assert program.get("/api/v1/me").json() == site.admin.get("/api/v1/me").json()
    shown = next(key for key in program.get("/api/v1/me/keys").json() if key["id"] == made["id"])
    assert shown["last_used"] is not None and "secret" not in shown
    assert made["secret"].startswith(shown["prefix"])
    assert site.admin.delete(f"/api/v1/me/keys/{made['id']}").status_code == 204
    assert program.get("/api/v1/me").status_code == 401
    assert site.admin.delete(f"/api/v1/me/keys/{made['id']}").status_code == 404


@pytest.mark.both_databases
def test_a_key_is_192_random_bits_with_a_checksum_and_only_its_hash_is_kept(site: Site) -> None:
    secret = site.admin.post("/api/v1/me/keys", json={"name": "k"}).json()["secret"]
    assert re.fullmatch(r"tw_[0-9a-f]{8}_[\w-]{32}[a-z2-7]{7}", secret)
    with site.app.state.database.read() as session:
        rows = session.scalars(select(ApiKey)).all()
    assert all(secret not in str(vars(row)) for row in rows)


@pytest.mark.parametrize("change", ["", "tw_", "x", "Bearer", "tw_00000000_" + "a" * 39])
def test_an_invalid_key_is_refused(site: Site, change: str) -> None:
    program = site.anonymous()
    program.headers["Authorization"] = f"Bearer {change}"
    assert program.get("/api/v1/me").status_code == 401


def test_a_mistyped_key_is_recognized_without_the_database(site: Site) -> None:
    secret = site.admin.post("/api/v1/me/keys", json={"name": "k"}).json()["secret"]
    assert keys.is_well_formed(secret)
    other = "b" if secret[15] != "b" else "c"
    assert not keys.is_well_formed(secret[:15] + other + secret[16:])


def test_keys_of_other_people_are_unknown(site: Site) -> None:
    editor = site.member("editor")
    (key,) = editor.get("/api/v1/me/keys").json()
    assert site.admin.delete(f"/api/v1/me/keys/{key['id']}").status_code == 404
    assert editor.get("/api/v1/me").status_code == 200


@pytest.mark.both_databases
def test_the_last_use_is_recorded_once_a_minute(site: Site) -> None:
    with site.app.state.database.write() as session:
        session.execute(update(ApiKey).values(last_used=now() - timedelta(seconds=30)))
    before = site.admin.get("/api/v1/me/keys").json()[0]["last_used"]
    with site.app.state.database.write() as session:
        session.execute(update(ApiKey).values(last_used=now() - timedelta(minutes=2)))
    assert site.admin.get("/api/v1/me/keys").json()[0]["last_used"] > before


@pytest.mark.both_databases
def test_a_key_expires(site: Site) -> None:
    made = site.admin.post(
        "/api/v1/me/keys", json={"name": "night", "scope": "read", "lifetime_days": 1}
    ).json()
    program = site.anonymous()
    program.headers["Authorization"] = f"Bearer {made['secret']}"
    assert program.get("/api/v1/me").status_code == 200
    left = datetime.fromisoformat(made["expires"]) - now()
    assert timedelta(hours=23) < left < timedelta(hours=24, minutes=1)
    with site.app.state.database.write() as session:
        past = now() - timedelta(seconds=1)
        session.execute(update(ApiKey).where(ApiKey.scope == "read").values(expires=past))
    refused = program.get("/api/v1/me")
    assert refused.status_code == 401
    expected = f"This API key expired on {past:%Y-%m-%d}. Create a new one on the Settings page."
    assert refused.json()["detail"] == expected
    assert made["id"] in [key["id"] for key in site.admin.get("/api/v1/me/keys").json()], (
        "until it is revoked"
    )


@pytest.mark.parametrize(
    "new", [{"scope": "root"}, {"lifetime_days": 0}, {"lifetime_days": 3_651}, {"name": " "}]
)
def test_a_scope_or_lifetime_that_does_not_exist_is_refused(site: Site, new: dict[str, object]) -> None:
    response = site.admin.post("/api/v1/me/keys", json={"name": "k"} | new)
    assert response.status_code == 422 and [item["field"] for item in response.json()["errors"]] == list(new)


def test_a_read_only_key_cannot_join_a_team(site: Site) -> None:
    owner = site.other_team("globex")
    reader = site.anonymous()
    made = site.admin.post("/api/v1/me/keys", json={"name": "reader", "scope": "read"}).json()
    reader.headers["Authorization"] = f"Bearer {made['secret']}"
    invitation = {"email": "ada@acme.example", "role": "owner"}
    site.admin.delete("/api/v1/teams/globex/members/me")
    link = owner.post("/api/v1/teams/globex/invitations", json=invitation).json()["link"].rsplit("/", 1)[-1]
    refused = reader.post("/api/v1/auth/link", json={"token": link})
    assert (refused.status_code, refused.json()["code"]) == (403, "scope_too_low")
    assert "yours has read" in refused.json()["detail"]
    assert site.admin.post("/api/v1/auth/link", json={"token": link}).status_code == 200, (
        "the link is still valid"
    )
