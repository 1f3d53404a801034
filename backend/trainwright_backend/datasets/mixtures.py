"""Mixtures: versions that take their documents from versions of other datasets."""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import select

from trainwright.contracts.api.datasets import VersionState
from trainwright.contracts.curation import MixSource
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.errors import Invalid
from trainwright_backend.datasets.names import NO_DATASET, dataset_id, parsed_id
from trainwright_backend.datasets.tables import Dataset, DatasetVersion


def lock_datasets(
    session: Write, team_id: UUID, mix: Sequence[MixSource], own: UUID | None = None
) -> list[MixSource]:
    """Lock the datasets of a mixture against changes, and the dataset ``own`` exclusively.

    They are locked in the order of their ids: two transactions that mix each other's datasets would otherwise deadlock.

    Returns:
        ``mix`` with ids in place of names.

    Raises:
        Invalid: several datasets have the name.
    """
    mix = with_ids(session, team_id, mix)
    named = {parsed_id("ds", source.dataset) for source in mix}
    for dataset in sorted(found for found in {own, *named} if found is not None):
        row = select(Dataset.id).where(Dataset.id == dataset, Dataset.team_id == team_id)
        session.scalar(row.with_for_update(read=dataset != own))
    return mix


def with_ids(session: Read, team_id: UUID, mix: Sequence[MixSource]) -> list[MixSource]:
    """``mix`` with the ids of the datasets that it gives by name.

    Raises:
        Invalid: several datasets have the name.
    """
    return [
        source.model_copy(
            update={
                "dataset": dataset_id(session, team_id, source.dataset, f"curation.mix.{position}.dataset")
            }
        )
        for position, source in enumerate(mix)
    ]


def find_mixed_versions(
    session: Write, team_id: UUID, mix: Sequence[MixSource], own: UUID | None
) -> list[tuple[DatasetVersion, float]]:
    """The versions that a mixture names, with their weights; locked against deletion.

    Args:
        own: the dataset that the mixture belongs to, if it exists already.

    Raises:
        Invalid: a version belongs to another team or to ``own``, is not ready, is itself a mixture, or is named twice.
    """
    found: list[tuple[DatasetVersion, float]] = []
    for position, source in enumerate(mix):
        version = _find_version(session, team_id, source, f"curation.mix.{position}", own)
        if version.id in {earlier.id for earlier, _ in found}:
            message = "This version is named twice. Add up its weights."
            raise Invalid.at(f"curation.mix.{position}.dataset", message, source.dataset)
        found.append((version, source.weight))
    return found


def _find_version(
    session: Write, team_id: UUID, source: MixSource, field: str, own: UUID | None
) -> DatasetVersion:
    dataset = _lock_dataset(session, team_id, source.dataset)
    if dataset is None:
        raise Invalid.at(f"{field}.dataset", NO_DATASET, source.dataset)
    if dataset.id == own:
        message = "A dataset cannot be mixed into itself. Create a separate dataset for the mixture."
        raise Invalid.at(f"{field}.dataset", message, source.dataset)
    for version in dataset.versions:
        if source.version is None and version.state == VersionState.READY and not version.sources:
            return version
        if source.version == version.number:
            _check_mixable(version, f"{field}.version")
            return version
    if source.version is None:
        message = (
            "No version of this dataset can be mixed: the version must be ready and not itself a mixture."
        )
        raise Invalid.at(f"{field}.dataset", message, source.dataset)
    raise Invalid.at(f"{field}.version", describe_versions(dataset), source.version)


def _check_mixable(version: DatasetVersion, field: str) -> None:
    if version.sources:
        message = "This version is itself a mixture. Mix the datasets that it consists of."
        raise Invalid.at(field, message, version.number)
    if version.state != VersionState.READY:
        message = f"This version is {version.state}. Only versions that are ready can be mixed."
        raise Invalid.at(field, message, version.number)


def _lock_dataset(session: Write, team_id: UUID, dataset: str) -> Dataset | None:
    found = parsed_id("ds", dataset)
    if found is None:
        return None
    row = select(Dataset).where(Dataset.id == found, Dataset.team_id == team_id)
    return session.scalar(row.with_for_update(read=True))


def describe_versions(dataset: Dataset) -> str:
    """A sentence that lists a dataset's versions, for errors about a version that does not exist."""
    numbers = [version.number for version in reversed(dataset.versions)]
    if numbers == [1]:
        return "This dataset has only version 1."
    if numbers == list(range(1, len(numbers) + 1)):
        return f"This dataset has versions 1 to {numbers[-1]}."
    return f"This dataset has these versions: {', '.join(map(str, numbers))}."
