"""What two people, or a person and a worker, ask of a dataset at once: both end well, or with a reason, in either order."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import delete, select, text, update
from sqlalchemy import event as hooks

from tests.backend.conftest import Site
from tests.backend.datasets.desk import Desk, letters
from trainwright.contracts.api.datasets import NewDataset
from trainwright.contracts.run_spec import RunSpec
from trainwright_backend.auth.tables import Account, Team
from trainwright_backend.control import sweep_bytes
from trainwright_backend.core.db import Database, Write, now
from trainwright_backend.core.ids import parse_id
from trainwright_backend.datasets.deletion import delete_dataset
from trainwright_backend.datasets.messages import UNPREPARED, Work, resend_stale
from trainwright_backend.datasets.service import Maker, create_dataset, lock_dataset
from trainwright_backend.datasets.steps import end_version
from trainwright_backend.datasets.tables import (
    DatasetFile,
    DatasetVersion,
    Preparation,
    PreparationSlice,
    Reading,
    VersionPiece,
)
from trainwright_backend.datasets.tasks import make_step
from trainwright_backend.datasets.work import do_step, next_step
from trainwright_backend.datasets.work_preparations import Tokenize
from trainwright_backend.runs.submission import Submitter, submit_run
from trainwright_backend.uploads.tables import StoredFile

Upload = Callable[..., dict[str, Any]]


def spec_on(dataset: dict[str, Any]) -> dict[str, Any]:
    tokenizer = {"kind": "bytes"}  # another one than the upload's own: the submission makes a preparation
    data = {"dataset": dataset["id"], "tokenizer": tokenizer}
    return {"name": "my run", "data": data, "resources": {"device": "cpu"}}


def answer_after(site: Site, work: Callable[[Write], object], request: Callable[[], Any]) -> tuple[int, str]:
    """Status and code that ``request`` gets when it arrives between ``work`` and its commit."""
    answer = meanwhile(site, work, request, lambda session: None)
    return answer.status_code, answer.json()["code"] if answer.status_code >= 400 else ""


def meanwhile(
    site: Site, work: Callable[[Write], object], other: Callable[[], Any], rest: Callable[[Write], object]
) -> Any:
    """What ``other`` gives when it arrives between ``work`` and the ``rest`` of the same transaction."""
    database: Database = site.app.state.database
    with ThreadPoolExecutor(1) as threads:
        with database.write() as session:
            work(session)
            given = threads.submit(other)
            if not database.is_sqlite:  # there it waits for the whole transaction anyway
                until_somebody_waits(database)
            rest(session)
        return given.result()


def until_somebody_waits(database: Database) -> None:
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    while True:
        with database.read() as session:
            if session.scalar(waiting):
                return


def test_a_submission_during_a_delete_finds_no_dataset(site: Site, upload: Upload) -> None:
    dataset = upload()
    answer = answer_after(
        site,
        lambda session: delete_dataset(session, team_id(session), dataset["id"]),
        lambda: site.admin.post(f"{site.path}/runs", json=spec_on(dataset)),
    )
    assert answer == (422, "invalid")


def test_a_delete_during_a_submission_finds_the_run(site: Site, upload: Upload) -> None:
    dataset = upload()
    spec = RunSpec.model_validate(spec_on(dataset))

    def submit(session: Write) -> None:
        by = Submitter(session.scalars(select(Account.id)).one(), "Ada")
        submit_run(session, team_id(session), by, spec, None)

    path = f"{site.path}/datasets/{dataset['id']}"
    assert answer_after(site, submit, lambda: site.admin.delete(path)) == (409, "dataset_in_use")


def test_a_dataset_of_the_same_bytes_made_during_a_delete_reads_them_again(desk: Desk) -> None:
    old = desk.make("old", **{"a.jsonl": letters()})
    new = {"name": "new", "uploads": [desk.send("b.jsonl", letters())]}
    answer = answer_after(
        desk.site,
        lambda session: delete_dataset(session, team_id(session), old["id"]),
        lambda: desk.post("datasets", new),
    )
    assert answer == (201, "")
    check_only_dataset(desk)


def test_a_delete_while_a_dataset_of_the_same_bytes_is_made_keeps_them(desk: Desk) -> None:
    old = desk.make("old", **{"a.jsonl": letters()})
    new = NewDataset(name="new", uploads=[desk.send("b.jsonl", letters())])

    def make(session: Write) -> None:
        by = Maker(session.scalars(select(Account.id)).one(), "Ada")
        create_dataset(session, team_id(session), by, new)

    assert answer_after(desk.site, make, lambda: desk.delete(f"datasets/{old['id']}")) == (204, "")
    check_only_dataset(desk)


def test_a_submission_while_the_version_fails_ends_with_its_reason(desk: Desk) -> None:
    dataset = desk.make(ready=False, **{"a.jsonl": letters()})
    database: Database = desk.site.app.state.database

    def give_up(session: Write) -> None:
        version = session.scalars(select(DatasetVersion).with_for_update()).one()
        end_version(session, version, "The file is gone.")

    submitted = answer_after(desk.site, give_up, lambda: desk.post("runs", spec_on(dataset)))
    assert submitted == ((422, "invalid") if database.is_sqlite else (201, ""))
    with database.write() as session:
        session.change(update(Preparation).values(touched=now() - timedelta(minutes=1)))
        left = session.scalars(select(Preparation.id).where(Preparation.state.in_(UNPREPARED))).all()
        assert len(left) == (0 if database.is_sqlite else 1)
        assert resend_stale(session) == len(left)
        assert [next_step(session, Work.PREPARE, one) for one in left] == [None] * len(left)
    with database.read() as session:
        found = session.execute(select(Preparation.state, Preparation.error)).all()
        assert {tuple(row) for row in found} == {("failed", "The file is gone.")}


def test_a_mixture_made_while_what_it_mixes_is_deleted_finds_no_dataset(desk: Desk) -> None:
    dataset = desk.make(**{"a.jsonl": letters()})
    mix = {"name": "mixed", "recipe": {"mix": [{"dataset": dataset["id"], "weight": 1}]}}
    answer = meanwhile(
        desk.site,
        lambda session: lock_dataset(session, team_id(session), dataset["id"]),
        lambda: desk.post("datasets", mix),
        lambda session: delete_dataset(session, team_id(session), dataset["id"]),
    )
    assert desk.problem(answer)[0] == "recipe.mix.0.dataset"


def test_two_versions_that_mix_each_others_datasets_are_both_made(desk: Desk) -> None:
    """Each request holds its first dataset until the other holds one too, or waits for one."""
    made = [desk.make(name, **{f"{name}.jsonl": letters(20, first)}) for first, name in ((0, "a"), (50, "b"))]
    ids = [one["id"] for one in made]
    both, met = threading.Barrier(2), threading.local()

    def hold(_c: object, _cursor: object, statement: str, *_: object) -> None:
        if "FROM dataset" in statement and " FOR " in statement and not hasattr(met, "other"):
            met.other = True
            with suppress(threading.BrokenBarrierError):
                both.wait(1)

    def mix(own: str, other: str) -> int:
        recipe = {"mix": [{"dataset": other, "version": 1, "weight": 1}]}
        return desk.post(f"datasets/{own}/versions", {"recipe": recipe}).status_code

    engine = desk.site.app.state.database.engine
    hooks.listen(engine, "after_cursor_execute", hold)
    try:
        with ThreadPoolExecutor(2) as threads:
            assert list(threads.map(mix, ids, reversed(ids))) == [201, 201]
    finally:
        hooks.remove(engine, "after_cursor_execute", hold)


def test_a_delete_while_an_old_version_is_put_to_be_read_leaves_no_reading(desk: Desk) -> None:
    made = desk.make(**{"a.jsonl": letters()})
    database: Database = desk.site.app.state.database
    with database.write() as session:  # as the rows of the first release are
        session.change(update(DatasetVersion).values(state="waiting"))
        session.change(update(DatasetFile).values(reading_id=None))
        session.change(delete(VersionPiece))
        session.change(delete(Reading))
        version_id = session.scalars(select(DatasetVersion.id)).one()
    answer = answer_after(
        desk.site,
        lambda session: next_step(session, Work.SURVEY, version_id),
        lambda: desk.delete(f"datasets/{made['id']}"),
    )
    assert answer == (204, "")
    assert desk.count(Reading) == desk.count(StoredFile) == 0


def test_a_slice_is_done_while_its_preparation_is_asked_for_anew(desk: Desk) -> None:
    desk.make(**{"a.jsonl": letters()})
    tokenizer = {"tokenizer": {"kind": "bytes"}}
    path = f"datasets/{desk.get('datasets')['items'][0]['id']}/preparations"
    preparation_id = parse_id("prep", desk.post(path, tokenizer).json()["id"])
    app = desk.site.app
    assert make_step(app.state.database, app.state.store, Work.PREPARE, preparation_id), "it is planned"
    with app.state.database.write() as session:
        step = next_step(session, Work.PREPARE, preparation_id)
    assert isinstance(step, Tokenize)
    meanwhile(
        desk.site,
        lambda session: session.get_one(Preparation, preparation_id, with_for_update=True),
        lambda: do_step(app.state.database, app.state.store, step),
        lambda session: session.change(update(PreparationSlice).values(lost_leases=0)),
    )
    with app.state.database.read() as session:
        assert session.get_one(PreparationSlice, (preparation_id, 0)).done


def check_only_dataset(desk: Desk) -> None:
    """One dataset is left; it is read and whole, and nothing else is."""
    sweep_bytes(desk.site.app.state.database, desk.site.app.state.store)
    (left,) = desk.get("datasets")["items"]
    shown = desk.ready(left)
    assert shown["versions"][0]["error"] is None
    assert len(desk.texts(shown)) == 100
    assert shown["versions"][0]["preparations"][0]["state"] == "ready"
    assert desk.count(Reading) == desk.count(StoredFile) == 1


def team_id(session: Write) -> UUID:
    return session.scalars(select(Team.id)).one()
