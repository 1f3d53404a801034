"""Concurrent operations on a dataset succeed or fail with a reason, in either order."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import delete, select, text, update
from sqlalchemy import event as hooks

from tests.backend.conftest import Site
from tests.backend.datasets.dataset_editor import DatasetEditor, letters
from tests.backend.datasets.row_jobs import run_next_job
from trainwright.contracts.api.datasets import NewDataset
from trainwright.contracts.run_spec import RunSpec
from trainwright_backend.auth.tables import Account, Team
from trainwright_backend.control.queued_deletions import delete_queued_bytes
from trainwright_backend.core.author import Author
from trainwright_backend.core.db import Database, Write, now
from trainwright_backend.core.ids import parse_id
from trainwright_backend.datasets.deletion import delete_dataset
from trainwright_backend.datasets.job_queue import PENDING_PREPARATION, JobKind, resend_stale
from trainwright_backend.datasets.jobs.dispatch import next_job, run_job
from trainwright_backend.datasets.jobs.outcomes import mark_version_failed
from trainwright_backend.datasets.jobs.preparation_jobs import TokenizeChunk
from trainwright_backend.datasets.service import create_dataset, lock_dataset
from trainwright_backend.datasets.tables import (
    DatasetFile,
    DatasetVersion,
    ParsedFile,
    Preparation,
    PreparationChunk,
    VersionChunk,
)
from trainwright_backend.runs.submission import submit_run
from trainwright_backend.uploads.tables import StoredFile

pytestmark = pytest.mark.both_databases

Upload = Callable[..., dict[str, Any]]


def spec_on(dataset: dict[str, Any]) -> dict[str, Any]:
    tokenizer = {
        "kind": "bytes"
    }  # another tokenizer than the upload's, so the submission creates a preparation
    data = {"dataset": dataset["id"], "tokenizer": tokenizer}
    return {"name": "my run", "data": data, "resources": {"device": "cpu"}}


def response_after(
    site: Site, work: Callable[[Write], object], request: Callable[[], Any]
) -> tuple[int, str]:
    """Status and code of a ``request`` that arrives between ``work`` and its commit."""
    response = concurrently(site, work, request, lambda session: None)
    return response.status_code, response.json()["code"] if response.status_code >= 400 else ""


def concurrently(
    site: Site, work: Callable[[Write], object], other: Callable[[], Any], rest: Callable[[Write], object]
) -> Any:
    """The result of ``other`` when it starts between ``work`` and the ``rest`` of the same transaction."""
    database: Database = site.app.state.database
    with ThreadPoolExecutor(1) as threads:
        with database.write() as session:
            work(session)
            given = threads.submit(other)
            if not database.is_sqlite:  # on SQLite it waits for the entire transaction anyway
                wait_for_blocked_query(database)
            rest(session)
        return given.result()


def wait_for_blocked_query(database: Database) -> None:
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    while True:
        with database.read() as session:
            if session.scalar(waiting):
                return


def test_a_submission_during_a_delete_finds_no_dataset(site: Site, upload: Upload) -> None:
    dataset = upload()
    response = response_after(
        site,
        lambda session: delete_dataset(session, team_id(session), dataset["id"]),
        lambda: site.admin.post(f"{site.path}/runs", json=spec_on(dataset)),
    )
    assert response == (422, "invalid")


def test_a_delete_during_a_submission_finds_the_run(site: Site, upload: Upload) -> None:
    dataset = upload()
    spec = RunSpec.model_validate(spec_on(dataset))

    def submit(session: Write) -> None:
        by = Author(session.scalars(select(Account.id)).one(), "Ada")
        submit_run(session, team_id(session), by, spec, None)

    path = f"{site.path}/datasets/{dataset['id']}"
    assert response_after(site, submit, lambda: site.admin.delete(path)) == (409, "dataset_in_use")


@pytest.mark.slow(target="databases")
def test_a_dataset_with_the_same_files_created_during_a_delete_parses_them_again(
    editor: DatasetEditor,
) -> None:
    old = editor.make("old", **{"a.jsonl": letters()})
    new = {"name": "new", "uploads": [editor.send("b.jsonl", letters())]}
    response = response_after(
        editor.site,
        lambda session: delete_dataset(session, team_id(session), old["id"]),
        lambda: editor.post("datasets", new),
    )
    assert response == (201, "")
    check_only_dataset(editor)


def test_a_delete_keeps_files_that_a_new_dataset_uses(editor: DatasetEditor) -> None:
    old = editor.make("old", **{"a.jsonl": letters()})
    new = NewDataset(name="new", uploads=[editor.send("b.jsonl", letters())])

    def make(session: Write) -> None:
        by = Author(session.scalars(select(Account.id)).one(), "Ada")
        create_dataset(session, editor.site.app.state.store, team_id(session), by, new, key=None)

    assert response_after(editor.site, make, lambda: editor.delete(f"datasets/{old['id']}")) == (204, "")
    check_only_dataset(editor)


def test_a_submission_while_the_version_fails_ends_with_its_reason(editor: DatasetEditor) -> None:
    dataset = editor.make(ready=False, **{"a.jsonl": letters()})
    database: Database = editor.site.app.state.database

    def give_up(session: Write) -> None:
        version = session.scalars(select(DatasetVersion).with_for_update()).one()
        mark_version_failed(session, version, "The file is gone.")

    submitted = response_after(editor.site, give_up, lambda: editor.post("runs", spec_on(dataset)))
    assert submitted == ((422, "invalid") if database.is_sqlite else (201, ""))
    with database.write() as session:
        session.change(update(Preparation).values(last_activity=now() - timedelta(minutes=1)))
        left = session.scalars(select(Preparation.id).where(Preparation.state.in_(PENDING_PREPARATION))).all()
        assert len(left) == (0 if database.is_sqlite else 1)
        assert resend_stale(session) == len(left)
        assert [next_job(session, JobKind.PREPARE, item) for item in left] == [None] * len(left)
    with database.read() as session:
        found = session.execute(select(Preparation.state, Preparation.error)).all()
        assert {tuple(row) for row in found} == {("failed", "The file is gone.")}


@pytest.mark.slow(target="databases")
def test_a_mixture_created_during_a_delete_finds_no_dataset(editor: DatasetEditor) -> None:
    dataset = editor.make(**{"a.jsonl": letters()})
    mix = {"name": "mixed", "curation": {"mix": [{"dataset": dataset["id"], "weight": 1}]}}
    response = concurrently(
        editor.site,
        lambda session: lock_dataset(session, team_id(session), dataset["id"]),
        lambda: editor.post("datasets", mix),
        lambda session: delete_dataset(session, team_id(session), dataset["id"]),
    )
    assert editor.problem(response)[0] == "curation.mix.0.dataset"


@pytest.mark.slow(target="databases")
def test_two_versions_that_mix_each_other_s_datasets_are_both_created(editor: DatasetEditor) -> None:
    """Each request holds its first lock until the other one has a lock too, or waits for one."""
    made = [
        editor.make(name, **{f"{name}.jsonl": letters(20, first)}) for first, name in ((0, "a"), (50, "b"))
    ]
    ids = [item["id"] for item in made]
    both, met = threading.Barrier(2), threading.local()

    def hold(_c: object, _cursor: object, statement: str, *_: object) -> None:
        if "FROM dataset" in statement and " FOR " in statement and not hasattr(met, "other"):
            met.other = True
            with suppress(threading.BrokenBarrierError):
                both.wait(1)

    def mix(own: str, other: str) -> int:
        curation = {"mix": [{"dataset": other, "version": 1, "weight": 1}]}
        return editor.post(f"datasets/{own}/versions", {"curation": curation}).status_code

    engine = editor.site.app.state.database.engine
    hooks.listen(engine, "after_cursor_execute", hold)
    try:
        with ThreadPoolExecutor(2) as threads:
            assert list(threads.map(mix, ids, reversed(ids))) == [201, 201]
    finally:
        hooks.remove(engine, "after_cursor_execute", hold)


@pytest.mark.slow(target="databases")
def test_a_delete_while_an_old_version_is_queued_leaves_no_parsed_file(editor: DatasetEditor) -> None:
    made = editor.make(**{"a.jsonl": letters()})
    database: Database = editor.site.app.state.database
    with database.write() as session:  # like rows of the first release
        session.change(update(DatasetVersion).values(state="waiting"))
        session.change(update(DatasetFile).values(parsed_file_id=None))
        session.change(delete(VersionChunk))
        session.change(delete(ParsedFile))
        version_id = session.scalars(select(DatasetVersion.id)).one()
    response = response_after(
        editor.site,
        lambda session: next_job(session, JobKind.CURATE, version_id),
        lambda: editor.delete(f"datasets/{made['id']}"),
    )
    assert response == (204, "")
    assert editor.count(ParsedFile) == editor.count(StoredFile) == 0


@pytest.mark.slow(target="databases")
def test_a_chunk_finishes_while_its_preparation_is_requested_again(editor: DatasetEditor) -> None:
    editor.make(**{"a.jsonl": letters()})
    tokenizer = {"tokenizer": {"kind": "bytes"}}
    path = f"datasets/{editor.get('datasets')['items'][0]['id']}/preparations"
    preparation_id = parse_id("prep", editor.post(path, tokenizer).json()["id"])
    app = editor.site.app
    assert run_next_job(app.state.database, app.state.store, JobKind.PREPARE, preparation_id), "it is planned"
    with app.state.database.write() as session:
        step = next_job(session, JobKind.PREPARE, preparation_id)
    assert isinstance(step, TokenizeChunk)
    concurrently(
        editor.site,
        lambda session: session.get_one(Preparation, preparation_id, with_for_update=True),
        lambda: run_job(app.state.database, app.state.store, step),
        lambda session: session.change(update(PreparationChunk).values(expired_leases=0)),
    )
    with app.state.database.read() as session:
        assert session.get_one(PreparationChunk, (preparation_id, 0)).done


def check_only_dataset(editor: DatasetEditor) -> None:
    """Only one dataset is left, and it is complete."""
    delete_queued_bytes(editor.site.app.state.database, editor.site.app.state.store)
    (left,) = editor.get("datasets")["items"]
    shown = editor.ready(left)
    assert shown["versions"][0]["error"] is None
    assert len(editor.texts(shown)) == 100
    assert shown["versions"][0]["preparations"][0]["state"] == "ready"
    assert editor.count(ParsedFile) == editor.count(StoredFile) == 1


def team_id(session: Write) -> UUID:
    return session.scalars(select(Team.id)).one()
