"""Surveying a version: what its recipe makes of its documents. One step, when all that it needs is read.

It leaves a keep mask for each piece in the object store, and the version with its pieces and statistics in the rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy import select, update

from trainwright.contracts.api.datasets import PreparationState, Statistics, VersionState
from trainwright.contracts.recipe import Recipe
from trainwright_backend.core.db import Database, Read, Write, now
from trainwright_backend.core.storage import LocalStore
from trainwright_backend.datasets.counts import Source, count_sources, sources_of
from trainwright_backend.datasets.leases import MOST_FAILURES, is_free, take
from trainwright_backend.datasets.messages import UNREAD, Work, send_step
from trainwright_backend.datasets.pieces import (
    mask_key,
    version_folder,
)
from trainwright_backend.datasets.readings import read_files
from trainwright_backend.datasets.steps import Step, Unwanted, end_version
from trainwright_backend.datasets.tables import (
    DatasetVersion,
    Preparation,
    RejectedLine,
    VersionPiece,
)

FIRST_REJECTED = 3


@dataclass(frozen=True)
class SurveyVersion(Step):
    """Apply a version's recipe."""

    team_id: UUID
    recipe: Recipe
    sources: list[Source]
    rejected: int


@dataclass
class Masks:
    """Writes keep masks as they come, and remembers how much each keeps."""

    store: LocalStore
    step: SurveyVersion
    is_unwanted: Callable[[], bool]
    kept: dict[int, int] = field(default_factory=dict)

    def __call__(self, position: int, mask: bytes) -> None:
        if self.is_unwanted():
            raise Unwanted
        self.store.write(mask_key(self.step.team_id, self.step.lease.owner_id, position), mask)
        self.kept[position] = mask.count(0)


def take_version(session: Write, version_id: UUID) -> SurveyVersion | None:
    """Take the lease of a version whose files are read; a version that is not read yet is put to be read."""
    version = session.get(DatasetVersion, version_id, with_for_update=True)
    if version is None or version.state not in UNREAD or not is_free(version):
        return None
    team_id, recipe = version.dataset.team_id, Recipe.model_validate(version.recipe)
    read_files(session, team_id, version, recipe.read)
    readings = [(file.name, file.reading) for file in version.files if file.reading is not None]
    for name, reading in readings:
        if reading.state == VersionState.FAILED:
            error = reading.error or ""
            end_version(session, version, error if name in error else f"{name}: {error}")
            return None
    if any(reading.state != VersionState.READY for _, reading in readings):
        return None
    rejected = sum(reading.rejected for _, reading in readings)
    documents = sum(reading.documents for _, reading in readings)
    unusable = None if version.sources else why_unusable(session, version, documents, rejected, recipe)
    if unusable is None and version.lease is not None:
        version.failures += 1
        if version.failures >= MOST_FAILURES:
            unusable = _lost()
    if unusable is not None:
        end_version(session, version, unusable)
        return None
    version.state = VersionState.READING
    lease = take(version)
    session.flush()
    return SurveyVersion(
        lease=lease,
        folder=version_folder(team_id, version.id),
        team_id=team_id,
        recipe=recipe,
        sources=sources_of(session, team_id, version),
        rejected=rejected,
    )


def survey_version(
    database: Database, store: LocalStore, step: SurveyVersion, is_unwanted: Callable[[], bool]
) -> str | None:
    """Write the keep masks, then the version's pieces and statistics.

    Returns:
        Why the version cannot be used, when nothing is left of it.

    Raises:
        Unwanted: nobody wants it any more.
    """
    masks = Masks(store, step, is_unwanted)
    statistics = count_sources(store, step.sources, step.recipe, step.rejected, masks)
    if not statistics.kept:
        return _nothing_kept(statistics)
    with database.write() as session:
        done = session.change(
            update(DatasetVersion)
            .where(*step.lease.conditions())
            .values(
                state=VersionState.READY,
                statistics=statistics.model_dump(mode="json", exclude={"counted_fraction"}),
                failures=0,
                lease=None,
                leased_until=None,
                touched=now(),
            )
        )
        if not done:
            raise Unwanted
        _add_pieces(session, step, masks.kept)
        waiting = (
            Preparation.version_id == step.lease.owner_id,
            Preparation.state == PreparationState.WAITING,
        )
        for preparation_id in session.scalars(select(Preparation.id).where(*waiting)):
            send_step(session, Work.PREPARE, preparation_id)
    return None


def why_unusable(
    session: Read, version: DatasetVersion, documents: int, rejected: int, recipe: Recipe
) -> str | None:
    """Why what was read makes no version, when it makes none."""
    if not documents and not rejected:
        return "No usable document was found: the files hold nothing but white space. Upload files with text."
    share = rejected / (documents + rejected)
    if documents and share <= recipe.rejected_limit:
        return None
    first = "; ".join(_first_rejected(session, version))
    if not documents:
        return (
            f"No usable document was found: all {rejected:,} rows were rejected. First: {first}. Mend the files, or "
            "choose another field to read."
        )
    return (
        f"{rejected:,} of {documents + rejected:,} documents ({100 * share:.3g} %) could not be read, more than the "
        f"limit of {100 * recipe.rejected_limit:g} %. First: {first}. Mend the files, or make a version that "
        "allows more of them: “Unreadable documents, at most”, rejected_limit in a recipe."
    )


def _first_rejected(session: Read, version: DatasetVersion) -> list[str]:
    found: list[str] = []
    for file in version.files:
        rows = session.scalars(
            select(RejectedLine)
            .where(RejectedLine.reading_id == file.reading_id)
            .order_by(RejectedLine.position)
            .limit(FIRST_REJECTED - len(found))
        )
        found += [f"line {row.line:,} of {file.name} {row.reason}" for row in rows]
        if len(found) >= FIRST_REJECTED:
            break
    return found


def _nothing_kept(statistics: Statistics) -> str:
    dropped = ", ".join(f"{name} {count:,}" for name, count in statistics.dropped.items() if count)
    return (
        f"The recipe keeps none of the {statistics.documents:,} documents. What it leaves out: {dropped}. Make a version "
        "with a milder recipe."
    )


def _add_pieces(session: Write, step: SurveyVersion, kept: dict[int, int]) -> None:
    first = 0
    for number, piece in enumerate(piece for source in step.sources for piece in source.pieces):
        session.add(
            VersionPiece(
                version_id=step.lease.owner_id,
                number=number,
                reading_id=piece.reading_id,
                piece_number=piece.number,
                first_document=first,
                documents=piece.documents,
                kept=kept[number],
            )
        )
        first += piece.documents


def _lost() -> str:
    return (
        f"{MOST_FAILURES} workers in a row died over the recipe. See whether the machine of the workers runs out of "
        "memory, then make the version again with the same files."
    )
