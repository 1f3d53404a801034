"""Deleting a dataset and submitting a run on it at once: one of the two is refused with a reason, in either order."""

import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

from sqlalchemy import select, text

from tests.backend.conftest import Site
from trainwright.contracts.run_spec import RunSpec
from trainwright_backend.auth.tables import Account, Team
from trainwright_backend.core.db import Database, Write
from trainwright_backend.datasets.deletion import delete_dataset
from trainwright_backend.runs.submission import Submitter, submit_run

Upload = Callable[..., dict[str, Any]]


def spec_on(dataset: dict[str, Any]) -> dict[str, Any]:
    tokenizer = {"kind": "bytes"}  # another one than the upload's own: the submission makes a preparation
    data = {"dataset": dataset["id"], "tokenizer": tokenizer}
    return {"name": "my run", "data": data, "resources": {"device": "cpu"}}


def answer_after(site: Site, work: Callable[[Write], object], request: Callable[[], Any]) -> tuple[int, str]:
    """What ``request`` gets that arrives between ``work`` and its commit."""
    database: Database = site.app.state.database
    answers = []
    thread = threading.Thread(target=lambda: answers.append(request()))
    with database.write() as session:
        work(session)
        thread.start()
        if not database.is_sqlite:  # there it waits for the whole transaction anyway
            until_somebody_waits(database)
    thread.join()
    (answer,) = answers
    return answer.status_code, answer.json()["code"]


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


def team_id(session: Write) -> UUID:
    return session.scalars(select(Team.id)).one()
