"""What a recipe makes of documents that are read: counted for all of them, or before it is applied for a part of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from trainwright.contracts.api.datasets import CountRequest, MixShare, RecipeCounts, VersionState
from trainwright.contracts.recipe import Recipe
from trainwright.prepare.survey import SourceShare, SurveySource, survey
from trainwright_backend.core.db import Database, Read, Write
from trainwright_backend.core.errors import Conflict, Invalid
from trainwright_backend.core.ids import public_id
from trainwright_backend.core.storage import LocalStore
from trainwright_backend.datasets.pieces import (
    PieceOfVersion,
    StoredMasks,
    mixed_pieces,
    pieces_of,
    pieces_of_readings,
)
from trainwright_backend.datasets.readings import find_reading
from trainwright_backend.datasets.recipes import mixed_versions, which_versions
from trainwright_backend.datasets.service import get_dataset
from trainwright_backend.datasets.tables import DatasetVersion, Reading

COUNTED_PIECES = 64
"""A count reads the measures of so many pieces at most, but of one of each source at least."""


@dataclass(frozen=True)
class Source:
    """What is surveyed together: the files of a version, or a version that is mixed."""

    dataset: str
    """Public id."""

    version: int
    pieces: list[PieceOfVersion]
    weight: float | None


@dataclass(frozen=True)
class ToCount:
    """What a count is about."""

    sources: list[Source]
    rejected: int


def count_recipe(database: Database, store: LocalStore, team_id: UUID, asked: CountRequest) -> RecipeCounts:
    """What a recipe would make of a version's files, or of a mixture.

    Raises:
        NotFound: there is no such dataset.
        Invalid: there is no such version, or the mixture cannot be.
        Conflict: its files are not read yet, or not in the way that the recipe says; or they were deleted meanwhile.
    """
    with database.write() as session:  # it writes nothing, but what it finds is held until it has looked
        found = _to_count(session, team_id, asked)
    try:
        return count_sources(store, found.sources, asked.recipe, found.rejected, None, COUNTED_PIECES)
    except FileNotFoundError:
        with database.write() as session:
            if _to_count(session, team_id, asked) == found:
                raise  # nobody deleted it
        message = "What was to be counted was deleted meanwhile. Ask again to count what is there now."
        raise Conflict("deleted_meanwhile", message) from None


def sources_of(session: Read, team_id: UUID, version: DatasetVersion) -> list[Source]:
    """What is surveyed for a version."""
    by_source = pieces_of(session, team_id, version)
    if not version.sources:
        return [Source(public_id("ds", version.dataset_id), version.number, by_source[0], None)]
    mixed = [session.get_one(DatasetVersion, row.source_id) for row in version.sources]
    return [
        Source(public_id("ds", one.dataset_id), one.number, pieces, row.weight)
        for row, one, pieces in zip(version.sources, mixed, by_source, strict=True)
    ]


def _to_count(session: Write, team_id: UUID, asked: CountRequest) -> ToCount:
    if asked.recipe.mix:
        return ToCount(
            [
                Source(
                    public_id("ds", one.dataset_id), one.number, mixed_pieces(session, team_id, one), weight
                )
                for one, weight in mixed_versions(session, team_id, asked.recipe.mix, None)
            ],
            rejected=0,
        )
    if asked.dataset is None:
        message = "There is nothing to count. Name a dataset, or datasets to mix under recipe.mix."
        raise Invalid.at("dataset", message)
    version = _version(session, team_id, asked.dataset, asked.version)
    readings = _readings(session, version, asked.recipe)
    pieces = pieces_of_readings(
        session, team_id, [(file.name, one) for file, one in zip(version.files, readings, strict=True)]
    )
    source = Source(asked.dataset, version.number, pieces, None)
    return ToCount([source], rejected=sum(reading.rejected for reading in readings))


def _version(session: Read, team_id: UUID, dataset: str, number: int | None) -> DatasetVersion:
    row = get_dataset(session, team_id, dataset)
    version = next((version for version in row.versions if number in (None, version.number)), None)
    if version is None:
        raise Invalid.at("version", which_versions(row), number)
    if not version.files:
        message = (
            f"Version {version.number} is a mixture and has no files. Name its datasets under recipe.mix."
        )
        raise Invalid.at("recipe.mix", message)
    return version


def _readings(session: Write, version: DatasetVersion, recipe: Recipe) -> list[Reading]:
    found = []
    for file in version.files:
        reading = find_reading(session, file.stored_file_id, recipe.read, file.name)
        if reading is None:
            raise Conflict(
                "not_read_this_way",
                f"{file.name} was not read with these settings yet, so there is nothing to count. Make a version with "
                "them: that reads the files.",
            )
        if reading.state != VersionState.READY:
            why = reading.error or "Wait until its files are read."
            raise Conflict("version_not_ready", f"{file.name} is {reading.state}. {why}")
        found.append(reading)
    return found


def count_sources(
    store: LocalStore,
    sources: Sequence[Source],
    recipe: Recipe,
    rejected: int,
    on_mask: Callable[[int, bytes], None] | None,
    most_pieces: int | None = None,
) -> RecipeCounts:
    """Survey ``sources`` by ``recipe``.

    Args:
        rejected: rows that gave no document.
        on_mask: takes the keep mask of each piece, with its position among all pieces.
        most_pieces: read the measures of no more, and scale up what they say; all when None.
    """
    surveyed = [_surveyed(store, source) for source in sources]
    with store.working_folder() as folder:
        result = survey(surveyed, recipe, on_mask, rejected, most_pieces, folder)
    return RecipeCounts(
        **result.model_dump(exclude={"shares"}),
        mix=_mix(sources, result.shares, result.characters) if recipe.mix else [],
    )


def _surveyed(store: LocalStore, source: Source) -> SurveySource:
    keys = [piece.mask_key for piece in source.pieces if piece.mask_key is not None]
    return SurveySource(
        pieces=[store.path_of(piece.object_key) for piece in source.pieces],
        weight=source.weight,
        documents=[piece.documents for piece in source.pieces],
        masks=None if source.weight is None else StoredMasks(store, keys),
    )


def _mix(sources: Sequence[Source], shares: Sequence[SourceShare], characters: int) -> list[MixShare]:
    return [
        MixShare(
            dataset=source.dataset,
            version=source.version,
            documents=share.documents,
            characters=share.characters,
            share=share.characters / characters if characters else 0.0,
        )
        for source, share in zip(sources, shares, strict=True)
    ]
