"""What every step of a worker has in common: its lease and folder, and what is done when it goes wrong.

Reading, surveying and preparing fail in the same way: what lies in the data is final and said in a sentence; what may go
away is tried a few times; a worker that dies costs its step, and three that die over the same step end it.
"""

from dataclasses import dataclass

from sqlalchemy import select

from trainwright.contracts.api.datasets import PreparationState, VersionState
from trainwright_backend.core.db import Database, Write, now, storable
from trainwright_backend.core.storage import LocalStore
from trainwright_backend.datasets.leases import MOST_FAILURES, Lease, release
from trainwright_backend.datasets.messages import UNPREPARED, UNREAD, Work, send_step
from trainwright_backend.datasets.tables import (
    DatasetFile,
    DatasetVersion,
    Preparation,
    PreparationSlice,
    Reading,
)

MOST_ERROR_CHARACTERS = 2_000
Owner = Reading | DatasetVersion | Preparation


@dataclass(frozen=True)
class Step:
    """What a worker has taken on, with all it needs to do it without the database."""

    lease: Lease
    folder: str
    """Of the objects that it makes."""


class Unwanted(Exception):  # noqa: N818 (no error: somebody changed their mind)
    """The step was cancelled, or its row is gone or somebody else's by now."""


def fail(database: Database, step: Step, error: str) -> None:
    """The data cannot be used: end what the step is for, with a sentence."""
    with database.write() as session:
        owner = _owner(session, step.lease)
        if release(session, step.lease) and owner is not None:  # else somebody else makes the step by now
            end(session, owner, error, repeatable=False)


def note_failure(database: Database, step: Step, error: Exception) -> None:
    """A step ended with an error that may go away: it is tried again a little later, a few times."""
    with database.write() as session:
        owner = _owner(session, step.lease)
        if not release(session, step.lease) or owner is None:
            return
        owner.failures += 1
        owner.touched = now()
        if owner.failures >= MOST_FAILURES:
            said = str(error)[:500] or type(error).__name__
            what = _verb(owner)
            sentence = f"{what} failed {MOST_FAILURES} times, at last with: {said}. Once that is cured, {_again(owner)}."
            end(session, owner, sentence, repeatable=True)


def put_back(database: Database, step: Step) -> None:
    """Nothing is wrong with the step: it is made when the platform can serve it again, if somebody still wants it."""
    with database.write() as session:
        release(session, step.lease)


def sweep_if_deleted(database: Database, store: LocalStore, step: Step) -> None:
    """What was deleted while its step ran leaves nothing behind."""
    with database.read() as session:
        table = Preparation if step.lease.table is PreparationSlice else step.lease.table
        assert table is not PreparationSlice
        gone = session.get(table, step.lease.owner_id) is None
    if gone:
        store.delete_prefix(step.folder)


def end(session: Write, owner: Owner, error: str, *, repeatable: bool) -> None:
    """Give up a reading, a version or a preparation, and what cannot be without it."""
    match owner:
        case Reading() if owner.state in UNREAD:
            owner.state, owner.error = VersionState.FAILED, storable(error)[:MOST_ERROR_CHARACTERS]
            session.flush()
            send_surveys(session, owner)
        case DatasetVersion() if owner.state in UNREAD:
            end_version(session, owner, error)
        case Preparation() if owner.state in UNPREPARED:
            owner.state, owner.error = PreparationState.FAILED, storable(error)[:MOST_ERROR_CHARACTERS]
            owner.may_be_repeated = repeatable


def end_version(session: Write, version: DatasetVersion, error: str) -> None:
    """Give up a version, and the preparations that wait for it."""
    version.state, version.error = VersionState.FAILED, storable(error)[:MOST_ERROR_CHARACTERS]
    version.touched = now()
    waiting = select(Preparation).where(Preparation.version_id == version.id).with_for_update()
    for preparation in session.scalars(waiting):
        end(session, preparation, version.error, repeatable=False)
    session.flush()


def send_surveys(session: Write, reading: Reading) -> None:
    """A reading has ended: the versions that wait for it may have all they need."""
    waiting = (
        select(DatasetVersion.id)
        .join(DatasetFile, DatasetFile.version_id == DatasetVersion.id)
        .where(DatasetFile.reading_id == reading.id, DatasetVersion.state.in_(UNREAD))
        .distinct()
    )
    for version_id in session.scalars(waiting):
        send_step(session, Work.SURVEY, version_id)


def _owner(session: Write, lease: Lease) -> Owner | None:
    if lease.table is PreparationSlice:
        return session.get(Preparation, lease.owner_id, with_for_update=True)
    owner = session.get(lease.table, lease.owner_id, with_for_update=True)
    assert owner is None or isinstance(owner, Reading | DatasetVersion | Preparation)
    return owner


def _verb(owner: Owner) -> str:
    match owner:
        case Reading():
            return "Reading"
        case DatasetVersion():
            return "Applying the recipe"
    return "Preparing"


def _again(owner: Owner) -> str:
    if isinstance(owner, Preparation):
        return "ask for the preparation again, or submit a run, to go on"
    return "make the version again with the same files"
