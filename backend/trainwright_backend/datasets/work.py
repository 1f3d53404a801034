"""One step of a worker: take it on, do it, write down how it ended.

A lease is taken in a short transaction; the step runs without one; its outcome is written guarded by the lease, so that
a worker which was thought dead and is not changes nothing.
"""

from uuid import UUID

from trainwright.prepare.documents import UnusableDataError
from trainwright.prepare.shards import Cancelled
from trainwright_backend.core.db import Database, Write
from trainwright_backend.core.storage import LocalStore
from trainwright_backend.datasets.leases import kept
from trainwright_backend.datasets.messages import Work
from trainwright_backend.datasets.steps import Step, Unwanted, fail, put_back, sweep_if_deleted
from trainwright_backend.datasets.work_completion import complete
from trainwright_backend.datasets.work_preparations import (
    Complete,
    Plan,
    Tokenize,
    plan,
    take_preparation,
    tokenize,
)
from trainwright_backend.datasets.work_readings import ReadFile, read_file, take_reading
from trainwright_backend.datasets.work_versions import SurveyVersion, survey_version, take_version


def next_step(session: Write, work: Work, row_id: UUID) -> Step | None:
    """Take the lease of the next step for a row, if there is one that nobody works on."""
    match work:
        case Work.READ:
            return take_reading(session, row_id)
        case Work.SURVEY:
            return take_version(session, row_id)
        case Work.PREPARE:
            return take_preparation(session, row_id)


def do_step(database: Database, store: LocalStore, step: Step) -> None:
    """Do what `next_step` took on, and write the outcome down."""
    unusable = None
    with kept(database, step.lease) as is_unwanted:
        try:
            match step:
                case ReadFile():
                    read_file(database, store, step, is_unwanted)
                case SurveyVersion():
                    unusable = survey_version(database, store, step, is_unwanted)
                case Plan():
                    plan(database, store, step, is_unwanted)
                case Tokenize():
                    tokenize(database, store, step, is_unwanted)
                case Complete():
                    unusable = complete(database, store, step, is_unwanted)
        except UnusableDataError as error:
            unusable = str(error)
        except (Unwanted, Cancelled):
            put_back(database, step)
    if unusable is not None:
        fail(database, step, unusable)
    sweep_if_deleted(database, store, step)
