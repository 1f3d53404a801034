"""API keys."""

import re
from datetime import timedelta

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
