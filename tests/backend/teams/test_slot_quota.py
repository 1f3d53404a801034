"""The quota ledger: its sum equals the usage, and never exceeds the limit at placement."""

import random
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
from sqlalchemy import func, select

from tests.backend.conftest import Site
from trainwright_backend.auth.tables import Team
from trainwright_backend.core.db import Database
from trainwright_backend.core.ids import new_id
from trainwright_backend.teams.slot_quota import hold, release
from trainwright_backend.teams.tables import LedgerEntry, Quota


@pytest.fixture
def team_id(site: Site) -> UUID:
    with site.app.state.database.read() as session:
        return session.scalars(select(Team.id)).one()


def used_and_sum(database: Database, device: str = "cpu") -> tuple[int, int]:
    with database.read() as session:
        used = session.scalars(select(Quota.used).where(Quota.device == device)).one()
        total = session.scalar(select(func.sum(LedgerEntry.slots)).where(LedgerEntry.device == device))
    return used, total or 0


def take(database: Database, team_id: UUID, slots: int, run_id: UUID) -> bool:
    with database.write() as session:
        return hold(session, team_id, "cpu", slots, run_id)


def test_all_slots_up_to_the_limit_can_be_occupied(database: Database, team_id: UUID) -> None:
    assert take(database, team_id, 6, new_id())
    assert not take(database, team_id, 3, new_id())
    assert used_and_sum(database) == (6, 6)
    assert take(database, team_id, 2, new_id())
    assert used_and_sum(database) == (8, 8)


def test_devices_are_counted_separately(database: Database, team_id: UUID) -> None:
    assert take(database, team_id, 8, new_id())
    with database.write() as session:
        assert hold(session, team_id, "cuda", 8, new_id())
    assert used_and_sum(database, "cuda") == used_and_sum(database, "cpu") == (8, 8)


@pytest.mark.both_databases
def test_after_any_sequence_the_ledger_s_sum_equals_the_use(database: Database, team_id: UUID) -> None:
    choose = random.Random(7)
    held: dict[UUID, int] = {}
    for _ in range(60):
        if held and choose.random() < 0.45:
            run_id = choose.choice(list(held))
            with database.write() as session:
                release(session, team_id, "cpu", held.pop(run_id), run_id)
        else:
            run_id, slots = new_id(), choose.randint(1, 4)
            if take(database, team_id, slots, run_id):
                held[run_id] = slots
        used, total = used_and_sum(database)
        assert used == total == sum(held.values()) <= 8


@pytest.mark.both_databases
def test_concurrent_placements_stay_within_the_limit(database: Database, team_id: UUID) -> None:
    with ThreadPoolExecutor(8) as pool:
        admitted = list(pool.map(lambda _: take(database, team_id, 1, new_id()), range(20)))
    assert sum(admitted) == 8
    assert used_and_sum(database) == (8, 8)


def test_releasing_more_than_held_is_an_assertion_error(database: Database, team_id: UUID) -> None:
    with pytest.raises(AssertionError), database.write() as session:
        release(session, team_id, "cpu", 1, new_id())
    assert used_and_sum(database) == (0, 0)


def test_a_site_admin_changes_the_limit_and_held_slots_stay(
    site: Site, database: Database, team_id: UUID
) -> None:
    assert take(database, team_id, 6, new_id())
    changed = site.admin.put(f"{site.path}/quota/cpu", json={"limit": 4}).json()
    assert (changed["device"], changed["limit"], changed["used"]) == ("cpu", 4, 6)
    assert not take(database, team_id, 1, new_id())
    assert site.admin.put(f"{site.path}/quota/tpu", json={"limit": 4}).status_code == 404
    assert site.admin.put("/api/v1/teams/nobody/quota/cpu", json={"limit": 4}).status_code == 404
    assert site.admin.put(f"{site.path}/quota/cpu", json={"limit": -1}).status_code == 422
