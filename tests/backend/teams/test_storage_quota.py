"""The storage quota of a team: announced bytes count immediately, and concurrent uploads cannot exceed the limit."""

import random
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
from sqlalchemy import select

from tests.backend.conftest import Site
from trainwright_backend.auth.tables import Team
from trainwright_backend.core.db import Database
from trainwright_backend.core.errors import AppError
from trainwright_backend.teams.storage_quota import (
    release_storage,
    reserve_storage,
    set_storage_limit,
    storage_use,
)


@pytest.fixture
def team_id(site: Site) -> UUID:
    with site.app.state.database.write() as session:
        team_id = session.scalars(select(Team.id)).one()
        set_storage_limit(session, team_id, 1_000)
    return team_id


def take(database: Database, team_id: UUID, count: int) -> bool:
    try:
        with database.write() as session:
            reserve_storage(session, team_id, count)
    except AppError as error:
        assert (error.code, error.status) == ("storage_exceeded", 403)
        return False
    return True


def used(database: Database, team_id: UUID) -> int:
    with database.read() as session:
        return storage_use(session, team_id).used_bytes


def test_a_new_team_has_the_installation_s_limit(site: Site) -> None:
    site.other_team("globex")
    for team in ("acme", "globex"):
        client = site.admin if team == "acme" else site.member("viewer", team)
        assert client.get(f"/api/v1/teams/{team}").json()["storage"] == {
            "limit_bytes": 2**40,
            "used_bytes": 0,
        }


def test_a_refusal_has_limit_used_and_requested_bytes_and_a_remedy(database: Database, team_id: UUID) -> None:
    assert take(database, team_id, 600)
    with pytest.raises(AppError) as refused, database.write() as session:
        reserve_storage(session, team_id, 2_048)
    assert refused.value.extensions == {"limit": 1_000, "used": 600, "asked": 2_048}
    assert "2 KiB" in refused.value.detail and "0.98 KiB" in refused.value.detail
    assert "Delete datasets or uploads" in refused.value.detail
    assert used(database, team_id) == 600
    assert take(database, team_id, 400), "up to the limit itself"


@pytest.mark.both_databases
def test_concurrent_reservations_stay_within_the_limit(database: Database, team_id: UUID) -> None:
    with ThreadPoolExecutor(8) as pool:
        admitted = list(pool.map(lambda _: take(database, team_id, 150), range(20)))
    assert sum(admitted) == 6 and used(database, team_id) == 900


def test_after_any_sequence_the_use_equals_the_sum(database: Database, team_id: UUID) -> None:
    choose = random.Random(7)
    held: list[int] = []
    for _ in range(60):
        if held and choose.random() < 0.45:
            with database.write() as session:
                release_storage(session, team_id, held.pop())
        else:
            count = choose.randint(1, 400)
            if take(database, team_id, count):
                held.append(count)
        assert used(database, team_id) == sum(held) <= 1_000


def test_releasing_more_than_reserved_is_an_assertion_error(database: Database, team_id: UUID) -> None:
    assert take(database, team_id, 5)
    with pytest.raises(AssertionError), database.write() as session:
        release_storage(session, team_id, 6)
    assert used(database, team_id) == 5


def test_a_site_admin_changes_the_limit_and_stored_files_stay(site: Site, team_id: UUID) -> None:
    database = site.app.state.database
    assert take(database, team_id, 800)
    path = f"{site.path}/storage"
    assert site.admin.put(path, json={"limit_bytes": 500}).json() == {"limit_bytes": 500, "used_bytes": 800}
    assert not take(database, team_id, 1)
    assert site.admin.put(path, json={"limit_bytes": -1}).status_code == 422
    assert site.admin.put("/api/v1/teams/nobody/storage", json={"limit_bytes": 1}).status_code == 404
    assert site.member("owner").put(path, json={"limit_bytes": 2**50}).status_code == 403
