"""Migrations create the tables of the code, and keep the rows of older releases, on both databases."""

import re
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text

from trainwright.contracts.curation import CurationSpec
from trainwright.contracts.end_codes import EndCode
from trainwright_backend.auth.tables import Account, ApiKey, OneTimeLink
from trainwright_backend.core.db import Base, Database, now
from trainwright_backend.datasets.tables import Dataset, DatasetVersion, Preparation
from trainwright_backend.metrics.tables import MetricMark, MetricSeries
from trainwright_backend.migrations.run import config, migrate
from trainwright_backend.nodes.tables import JoinToken, Node
from trainwright_backend.runs.tables import Attempt, Placement, PlacementEnd, Run, RunEvent, RunSummary
from trainwright_backend.teams.tables import LedgerEntry, Quota, SlotTime
from trainwright_backend.uploads.tables import StoredFile

pytestmark = pytest.mark.both_databases


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """SQLAlchemy URL of a database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'empty.sqlite3'}"
    return str(request.getfixturevalue("fresh_postgres_database"))


@contextmanager
def upgraded(url: str, rows: list[tuple[str, dict[str, Any]]], revision: str = "0001") -> Iterator[Database]:
    """A database of an older ``revision`` with ``rows``, upgraded to the current tables."""
    database = Database(url)
    with database.write() as session:
        command.upgrade(config(session.connection()), revision)
        for name, values in rows:
            table = sa.Table(name, sa.MetaData(), autoload_with=session.connection())
            given = {key: _plain(value, database) for key, value in values.items()}
            session.execute(table.insert().values(given))
    migrate(database)
    yield database
    database.dispose()


def _plain(value: object, database: Database) -> object:
    """The value in the form of reflected columns, which have UUIDs as text on SQLite."""
    return value.hex if isinstance(value, UUID) and database.is_sqlite else value


def old_preparation(version_id: UUID, team_id: UUID, **differs: Any) -> tuple[str, dict[str, Any]]:
    """The row of a preparation that is ready."""
    manifest = {"train": {"tokens": 5_000_000_000}, "validation": {"tokens": 7}}
    made = {"id": uuid4(), "version_id": version_id, "team_id": team_id, "digest": "0" * 64, "created": now()}
    work = {"failures": 0, "may_be_repeated": False, "touched": now(), "shards_done": 1, "shards_total": 1}
    asked = {"tokenizer": {"kind": "bytes"}, "validation_fraction": 0.01}
    return "preparation", made | work | asked | {"state": "ready", "manifest": manifest} | differs


def old_dataset(*numbers: int) -> list[tuple[str, dict[str, Any]]]:
    """The rows of a dataset with these versions."""
    team_id, dataset_id = uuid4(), uuid4()
    made = {"created": now()}
    team = {"id": team_id, "slug": "acme", "name": "Acme"} | made
    dataset = {"id": dataset_id, "team_id": team_id, "name": "old", "created_by_name": "Ada"} | made
    version = {"dataset_id": dataset_id, "bytes": 9, "digest": "0" * 64} | made
    versions = [("dataset_version", version | {"id": uuid4(), "number": number}) for number in numbers]
    return [("team", team), ("dataset", dataset), *versions]


def test_migrations_create_the_tables_of_the_code(database_url: str) -> None:
    database = Database(database_url)
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
    database.dispose()


def test_a_table_without_a_migration_is_detected(database_url: str) -> None:
    database = Database(database_url)
    with database.write() as session:
        session.execute(text("DROP TABLE quota_ledger"))
    with database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata)
    database.dispose()


@pytest.mark.slow(target="databases")
def test_migrating_again_changes_nothing(database_url: str) -> None:
    database = Database(database_url)
    before = described(database)
    migrate(database)
    assert described(database) == before and before["alembic_version"], "no table, column or index differs"
    database.dispose()


def described(database: Database) -> dict[str, list[str]]:
    """The columns, indexes and constraints of every table, by the table's name."""
    inspector = sa.inspect(database.engine)
    kinds = (
        inspector.get_columns,
        inspector.get_indexes,
        inspector.get_unique_constraints,
        inspector.get_foreign_keys,
    )
    return {
        name: [str(item) for kind in kinds for item in kind(name)] for name in inspector.get_table_names()
    }


@pytest.fixture
def of_0003(tmp_path: Path) -> Iterator[Database]:
    """A SQLite database before the migration that edits a table's definition."""
    database = Database(f"sqlite:///{tmp_path / 'old.sqlite3'}")
    with database.write() as session:
        command.upgrade(config(session.connection()), "0003")
    yield database
    database.dispose()


def refuse_the_edit(database: Database) -> tuple[str, str, int]:
    """Make the edit fail. Returns the error, the table's definition, and whether definitions are writable."""
    with database.engine.connect() as connection:
        message = ""
        try:
            command.upgrade(config(connection), "0004")
        except (RuntimeError, sa.exc.DatabaseError) as error:
            message = str(error)
        connection.rollback()
        definition = connection.execute(text("SELECT sql FROM sqlite_schema WHERE name = 'run'")).scalar_one()
        return message, definition, connection.execute(text("PRAGMA writable_schema")).scalar_one()


def definition_of_runs(database: Database) -> str:
    with database.read() as session:
        return str(session.execute(text("SELECT sql FROM sqlite_schema WHERE name = 'run'")).scalar_one())


def test_an_unexpected_table_definition_is_left_unchanged_and_reported(of_0003: Database) -> None:
    with of_0003.write() as session:
        session.execute(text("ALTER TABLE run RENAME COLUMN preparation_id TO shards_id"))
    before = definition_of_runs(of_0003)
    message, after, writable = refuse_the_edit(of_0003)
    assert "stands 0 times in its definition" in message and "shards_id CHAR(32) NOT NULL" in message
    assert (after, writable) == (before, 0)


def test_a_forbidden_edit_is_reported_and_definitions_remain_protected(
    of_0003: Database,
) -> None:
    def forbid(action: int, table: str | None, *_: object) -> int:
        edits = action == sqlite3.SQLITE_UPDATE and table in ("sqlite_master", "sqlite_schema")
        return sqlite3.SQLITE_DENY if edits else sqlite3.SQLITE_OK

    def arm(connection: sqlite3.Connection, _: object) -> None:
        connection.set_authorizer(forbid)

    before = definition_of_runs(of_0003)
    of_0003.engine.dispose()
    sa.event.listen(of_0003.engine, "connect", arm)
    message, after, writable = refuse_the_edit(of_0003)
    assert "not authorized" in message or "prohibited" in message
    assert (after, writable) == (before, 0)


def test_a_run_without_its_data_stops_the_edit_and_is_named(of_0003: Database) -> None:
    with closing(sqlite3.connect(str(of_0003.engine.url.database))) as heedless:
        filled = [name for _, name, _, required, *_ in heedless.execute("PRAGMA table_info(run)") if required]
        heedless.execute(f"INSERT INTO run ({', '.join(filled)}) VALUES ({', '.join('1' * len(filled))})")
        heedless.commit()
    before = definition_of_runs(of_0003)
    message, after, writable = refuse_the_edit(of_0003)
    assert "row 1 refers to a preparation that is not there" in message
    assert (after, writable) == (before, 0)


@pytest.mark.slow(target="databases")
def test_an_old_version_still_has_no_limit_of_rejected_documents(empty_url: str) -> None:
    with upgraded(empty_url, old_dataset(1)) as database, database.read() as session:
        (version,) = session.scalars(sa.select(DatasetVersion))
        assert CurationSpec.model_validate(version.curation).rejected_limit == 1.0


@pytest.mark.slow(target="databases")
def test_changes_of_an_old_version_name_the_curation(empty_url: str) -> None:
    rows = old_dataset(1)
    table, version = rows[-1]
    changes = ["Added a.jsonl (0123).", "recipe.read.field: empty → text"]
    work = {"recipe": {}, "state": "ready", "failures": 0, "touched": now()}
    rows[-1] = (table, version | work | {"changes": changes})
    rows[1][1]["last_version"] = 1
    with upgraded(empty_url, rows, "0007") as database, database.read() as session:
        (changes,) = session.scalars(sa.select(DatasetVersion.changes))
        assert changes == ["Added a.jsonl (0123).", "curation.read.field: empty → text"]


def test_upgraded_tables_have_no_constraint_of_an_older_name(empty_url: str) -> None:
    old_names = re.compile(r"(_reading|_piece|_slice|doomed|guess|no_debt)")
    with upgraded(empty_url, []) as database:
        inspector = sa.inspect(database.engine)
        for table in (
            "parsed_file",
            "file_chunk",
            "version_chunk",
            "preparation_chunk",
            "deletion_queue",
            "quota",
        ):
            named = [
                inspector.get_pk_constraint(table),
                *inspector.get_foreign_keys(table),
                *inspector.get_unique_constraints(table),
                *inspector.get_check_constraints(table),
                *inspector.get_indexes(table),
            ]
            names = [str(item["name"]) for item in named]
            assert names and not [name for name in names if old_names.search(name)]


@pytest.mark.slow(target="databases")
def test_numbers_of_old_versions_are_not_reused(empty_url: str) -> None:
    with upgraded(empty_url, old_dataset(1, 3)) as database, database.read() as session:
        assert session.scalars(sa.select(Dataset.last_version)).all() == [3]


@pytest.mark.slow(target="databases")
def test_an_old_preparation_gets_its_token_counts(empty_url: str) -> None:
    rows = old_dataset(1)
    ids = rows[-1][1]["id"], rows[0][1]["id"]
    rows += [old_preparation(*ids), old_preparation(*ids, digest="1" * 64, state="waiting", manifest=None)]
    with upgraded(empty_url, rows) as database, database.read() as session:
        known = sa.select(Preparation.state, Preparation.train_tokens, Preparation.validation_tokens)
        found = {tuple(row) for row in session.execute(known)}
        assert found == {("ready", 5_000_000_000, 7), ("waiting", None, None)}


def old_run() -> list[tuple[str, dict[str, Any]]]:
    """Rows of revision 0008: a run whose lease expired, with a series under its old name."""
    team_id, run_id = uuid4(), uuid4()
    team = {"id": team_id, "slug": "acme", "name": "Acme", "created": now()}
    who = {"team_id": team_id, "created_by_name": "Ada", "name": "old", "folded_name": "old", "device": "cpu"}
    state = {
        "state": "retry_wait",
        "reason": "lease_lapsed",
        "message": "",
        "waiting_reason": "",
        "progress": "",
    }
    counts = {"slots": 1, "fence": 1, "attempt": 1, "event_sequence": 1, "notes": ""}
    run = {"id": run_id, "created": now(), "spec": {}, "charged_until": now(), "hinted": now()}
    event = {"run_id": run_id, "sequence": 1, "time": now(), "fence": 1, "attempt": 1, "message": ""}
    attempt = {"run_id": run_id, "number": 1, "fence": 1, "resume_step": 0, "started": now()}
    placed = {
        "id": uuid4(),
        "run_id": run_id,
        "node_name": "a",
        "device": "cpu",
        "slots": [0],
        "placed": now(),
    }
    ended = {"downloads": [], "renewal": 1, "closed": "lapsed", "end_reason": "lease_lapsed"}
    series = {"run_id": run_id, "attempt": 1, "name": "fp8_flushed", "unit": "fraction", "last_step": 9}
    summary = {"run_id": run_id, "step": 9, "attempt": 1, "spark": [], "spark_stride": 1}
    steps = {"loss": 9, "fp8_flushed": 5}
    return [
        ("team", team),
        ("run", run | who | state | counts),
        ("run_event", event | {"type": "layout_put_back", "reason": "lease_lapsed"}),
        ("attempt", attempt | {"reason": "lease_lapsed"}),
        ("placement", placed | ended),
        ("metric_series", series | {"id": 1, "packed_step": 0, "tail_points": 0}),
        ("metric_mark", {"run_id": run_id, "number": 1, "attempt": 1, "offset": 1, "last_steps": steps}),
        ("run_summary", summary | {"values": {"loss": 2.5, "fp8_flushed": 0.25}}),
    ]


@pytest.mark.slow(target="databases")
def test_an_old_waiting_run_releases_its_slots_and_the_limit_is_unchanged(empty_url: str) -> None:
    rows = [row for row in old_run() if row[0] in ("team", "run")]
    team, run = rows[0][1]["id"], rows[1][1]
    trains = run | {"id": uuid4(), "state": "running"}
    entry = {"team_id": team, "device": "cpu", "reason": "reserve", "slots": 1, "time": now()}
    rows += [
        ("run", trains),
        ("quota", {"team_id": team, "device": "cpu", "slots_limit": 4, "used": 2}),
        *(("quota_ledger", entry | {"id": uuid4(), "run_id": one["id"]}) for one in (run, trains)),
    ]
    with upgraded(empty_url, rows, "0008") as database, database.read() as session:
        quota = session.scalars(sa.select(Quota)).one()
        assert (quota.slots_limit, quota.used, quota.guaranteed_slots) == (4, 1, 0)
        changes = sa.select(LedgerEntry.run_id, LedgerEntry.slots).order_by(LedgerEntry.slots)
        found = [tuple(row) for row in session.execute(changes)]
        assert found[0] == (run["id"], -1) and sum(slots for _, slots in found) == 1


def old_node(name: str, inventory: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    identity = {"id": uuid4(), "name": name, "token_hash": name, "joined": now()}
    return "node", identity | {"inventory": inventory, "busy_slots": {}, "draining": False}


@pytest.mark.slow(target="databases")
def test_an_old_node_keeps_the_slots_that_it_reported(empty_url: str) -> None:
    gpus = [{"index": index} for index in range(2)]
    rows = [
        old_node("gpu-1", {"gpus": gpus, "cpu_slots": 4}),
        old_node("older", {}),
        old_node("local", {"cpu_slots": 2}),
        ("join_token", {"token_hash": "x", "name": "gpu-2", "expires": now()}),
    ]
    with upgraded(empty_url, rows, "0009") as database, database.read() as session:
        allowed = dict(session.execute(sa.select(Node.name, Node.allowed_slots)).all())
        assert allowed == {
            "gpu-1": {"cuda": 2, "cpu": 4},
            "older": {"cuda": 0, "cpu": 2},
            "local": None,
        }
        assert session.scalars(sa.select(JoinToken.any_slots)).all() == [False]


@pytest.mark.slow(target="databases")
def test_an_old_run_has_the_current_codes_and_names(empty_url: str) -> None:
    with upgraded(empty_url, old_run(), "0008") as database, database.read() as session:
        run, attempt = session.scalars(sa.select(Run)).one(), session.scalars(sa.select(Attempt)).one()
        event, placed = (
            session.scalars(sa.select(RunEvent)).one(),
            session.scalars(sa.select(Placement)).one(),
        )
        assert (
            {item.reason for item in (run, attempt, event)} == {placed.end_reason} == {EndCode.LEASE_EXPIRED}
        )
        assert (event.type, placed.closed) == ("layout_rolled_back", PlacementEnd.EXPIRED)
        assert run.metered_until and run.hinted_at
        assert session.scalars(sa.select(MetricSeries.name)).all() == ["fp8_underflow"]
        assert session.scalars(sa.select(MetricMark.last_steps)).all() == [{"loss": 9, "fp8_underflow": 5}]
        assert session.scalars(sa.select(RunSummary.values)).all() == [{"loss": 2.5, "fp8_underflow": 0.25}]
        stored = session.execute(text("SELECT DISTINCT reason FROM run_event")).scalars().all()
        assert stored == ["lease_expired"], "the column's type would also read the old code"


@pytest.mark.slow(target="databases")
def test_old_slot_time_links_and_keys_are_unchanged(empty_url: str) -> None:
    team, run = (row for row in old_run() if row[0] in ("team", "run"))
    account = {
        "id": uuid4(),
        "email": "ada@acme.example",
        "name": "Ada",
        "password_hash": "",
        "created": now(),
    }
    row = {"team_id": team[1]["id"], "day": now().date(), "device": "cpu", "slot_seconds": 9.0}
    times = [("slot_time", row | {"run_id": run_id}) for run_id in (run[1]["id"], uuid4())]
    link = {"id": uuid4(), "hash": "0" * 64, "purpose": "invitation", "email": "bob@acme.example"}
    key = {
        "id": uuid4(),
        "user_id": account["id"],
        "name": "k",
        "prefix": "tw_0",
        "hash": "0" * 64,
        "created": now(),
    }
    rest = {"team_id": team[1]["id"], "role": "viewer", "expires": now()}
    rows = [
        team,
        ("account", account | {"site_admin": False}),
        (run[0], run[1] | {"created_by": account["id"]}),
        *times,
        ("one_time_link", link | rest),
        ("api_key", key),
    ]
    with upgraded(empty_url, rows, "0008") as database, database.read() as session:
        people = {tuple(row) for row in session.execute(sa.select(SlotTime.run_id, SlotTime.user_id))}
        assert people == {(run[1]["id"], account["id"]), (times[1][1]["run_id"], None)}
        kept = session.scalars(sa.select(OneTimeLink)).one()
        assert (kept.email, kept.role, kept.invited_by) == ("bob@acme.example", "viewer", None)
        old_key = session.scalars(sa.select(ApiKey)).one()
        assert (old_key.scope, old_key.expires) == ("manage", None)
        assert session.scalars(sa.select(Account)).one().email_verified


@pytest.mark.slow(target="databases")
@pytest.mark.parametrize(("mfu", "kept"), [([0.5, 0.9], True), ([0.5, 13.31], False)])
def test_an_old_run_shows_no_fraction_above_one(empty_url: str, mfu: list[float], kept: bool) -> None:
    rows = [row for row in old_run() if row[0] in ("team", "run")]
    run_id = rows[1][1]["id"]
    series = {"run_id": run_id, "attempt": 1, "unit": "", "last_step": 2, "packed_step": 0, "tail_points": 2}
    values = {"loss": 2.5, "mfu": mfu[-1]}
    for number, (name, points) in enumerate({"loss": [9.0, 2.5], "mfu": mfu, "hfu": mfu}.items(), start=1):
        chunk = {"series_id": number, "start_step": 1, "end_step": 2, "n": 2}
        rows.append(("metric_series", series | {"id": number, "name": name}))
        rows.append(("metric_chunk", chunk | {"values": struct.pack("<2d", *points)}))
    summary = {"run_id": run_id, "step": 2, "attempt": 1, "spark": [], "spark_stride": 1}
    rows.append(("run_summary", summary | {"values": values}))
    rows[1] = ("run", rows[1][1] | {"mfu": mfu[-1]})
    with upgraded(empty_url, rows, "0008") as database, database.read() as session:
        summary_row = session.scalars(sa.select(RunSummary)).one()
        assert (summary_row.values, summary_row.peak_beaten) == (
            values if kept else {"loss": 2.5},
            not kept,
        )
        assert session.scalars(sa.select(Run.mfu)).all() == [mfu[-1] if kept else None]
        names = session.scalars(sa.select(MetricSeries.name).order_by(MetricSeries.id)).all()
        assert names == (["loss", "mfu", "hfu"] if kept else ["loss"])


@pytest.mark.slow(target="databases")
def test_the_size_of_older_prepared_data_is_that_of_its_manifest_and_shards(empty_url: str) -> None:
    rows = old_dataset(1, 2)
    team, _, *versions = (values for _, values in rows)
    sizes = {
        "train": {"shards": [{"bytes": 5_000_000_000}, {"bytes": 7}]},
        "validation": {"shards": [{"bytes": 2}]},
    }
    ready = old_preparation(versions[0]["id"], team["id"], manifest=sizes, manifest_bytes=30)
    failed = old_preparation(versions[1]["id"], team["id"], manifest=None, state="failed")
    with upgraded(empty_url, [*rows, ready, failed]) as database, database.read() as session:
        found = {row.id: row.stored_bytes for row in session.scalars(sa.select(Preparation))}
        assert found == {ready[1]["id"]: 5_000_000_039, failed[1]["id"]: 0}


@pytest.mark.slow(target="databases")
def test_an_older_file_counts_for_who_uploaded_it_or_created_a_dataset_with_it(empty_url: str) -> None:
    rows = old_dataset(1)
    team, dataset, version = (values for _, values in rows)
    ada, bob = (
        {"id": uuid4(), "email": f"{name}@acme.example", "name": name, "password_hash": "", "created": now()}
        for name in ("ada", "bob")
    )
    dataset |= {"created_by": ada["id"], "last_version": 1}
    version |= {"curation": {}, "changes": [], "state": "ready", "failures": 0, "last_activity": now()}
    stored = {"team_id": team["id"], "bytes": 9, "created": now()}
    files = [stored | {"id": uuid4(), "digest": f"{n}" * 64, "object_key": f"{n}"} for n in range(3)]
    upload = {
        "team_id": team["id"],
        "file_name": "f",
        "bytes": 9,
        "offset": 9,
        "created": now(),
        "expires": now(),
    }
    of_dataset = {"version_id": version["id"], "stored_file_id": files[0]["id"]}
    person = {"site_admin": False, "email_verified": True}
    added = [
        *(("account", account | person) for account in (ada, bob)),
        *(("stored_file", file) for file in files),
        ("dataset_file", of_dataset | {"position": 0, "name": "f"}),
        ("upload", upload | {"id": uuid4(), "created_by": bob["id"], "stored_file_id": files[1]["id"]}),
    ]
    given = [rows[0], *added[:2], *rows[1:], *added[2:]]
    with upgraded(empty_url, given, "0044") as database, database.read() as session:
        found = {file.id: file.created_by for file in session.scalars(sa.select(StoredFile))}
    assert [found[file["id"]] for file in files] == [ada["id"], bob["id"], None]


@pytest.mark.slow(target="databases")
def test_a_paused_run_is_paused_since_its_last_attempt_ended(empty_url: str) -> None:
    team, run, attempt = (values for name, values in old_run() if name in ("team", "run", "attempt"))
    first, last = now(), now() + timedelta(hours=1)
    rows = [
        ("team", team),
        ("run", run | {"state": "paused"}),
        ("attempt", attempt | {"ended": first}),
        ("attempt", attempt | {"number": 2, "ended": last}),
    ]
    with upgraded(empty_url, rows, "0008") as database, database.read() as session:
        assert session.scalars(sa.select(Run.paused)).all() == [last]
