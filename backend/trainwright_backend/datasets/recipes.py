"""What a version is to consist of: files or a mixture, and a recipe; and in words, how it differs from the one before.

Only rows are looked at here. What a recipe does to documents is worked out by `work_versions`, and counted by `counts`.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pydantic import BaseModel
from sqlalchemy import select

from trainwright.contracts.api.datasets import NewVersion, VersionState
from trainwright.contracts.base import Problem
from trainwright.contracts.recipe import MixSource, Recipe
from trainwright_backend.core.db import Write
from trainwright_backend.core.errors import Invalid, NotFound
from trainwright_backend.core.ids import parse_id
from trainwright_backend.datasets.tables import Dataset, DatasetVersion
from trainwright_backend.uploads.service import complete_uploads

MOST_FILES = 1_000


@dataclass(frozen=True)
class File:
    """A file of a version."""

    name: str
    digest: str
    bytes: int
    stored_file_id: UUID


@dataclass(frozen=True)
class Contents:
    """What a new version consists of; each part was looked at and is held until the transaction ends."""

    recipe: Recipe
    files: list[File]
    uploads: list[str]
    """The uploads that become files of the version."""

    sources: list[tuple[DatasetVersion, float]]
    """Of a mixture: versions and their weights."""

    @property
    def digest(self) -> str:
        """SHA-256 over names and digests of the files, or over the mixed versions' ids."""
        listed = "".join(f"{file.digest}  {file.name}\n" for file in self.files)
        listed += "".join(f"{version.id.hex}\n" for version, _ in self.sources)
        return hashlib.sha256(listed.encode()).hexdigest()


def first_contents(session: Write, team_id: UUID, uploads: Sequence[str], recipe: Recipe) -> Contents:
    """What the first version of a dataset consists of.

    Raises:
        Invalid: it has neither files nor a mixture, or both, or one that cannot be used.
    """
    if not uploads and not recipe.mix:
        message = "There are no files. Name complete uploads, or datasets to mix under recipe.mix."
        raise Invalid.at("uploads", message, [])
    return _contents(session, team_id, [], uploads, recipe, None)


def next_contents(session: Write, team_id: UUID, base: DatasetVersion, new: NewVersion) -> Contents:
    """What the version after others consists of, where ``base`` gives what ``new`` leaves open.

    Raises:
        Invalid: as `first_contents`.
    """
    base_recipe = Recipe.model_validate(base.recipe)
    recipe = base_recipe if new.recipe is None else new.recipe
    if new.uploads and new.recipe is None and base_recipe.mix:
        message = f"Version {base.number} is a mixture. Give a recipe without mix to go over to files."
        raise Invalid.at("recipe", message)
    keeps = (new.uploads is None or new.keep_files) and not recipe.mix
    kept = files_of(base) if keeps else []
    if not kept and not new.uploads and not recipe.mix:
        message = f"Version {base.number} has no files to keep. Name complete uploads, or datasets to mix."
        raise Invalid.at("uploads", message if keeps else "There are no files. Name complete uploads.", [])
    return _contents(session, team_id, kept, new.uploads or [], recipe, base.dataset_id)


def hold_datasets(session: Write, team_id: UUID, mix: Sequence[MixSource], own: UUID | None = None) -> None:
    """Keep the datasets of a mixture from being changed, and ``own`` for this transaction alone.

    In the order of their ids: two that mix each other's datasets at once would otherwise wait for one another.
    """
    ids = {own} if own is not None else set()
    for source in mix:
        with suppress(NotFound):
            ids.add(parse_id("ds", source.dataset))
    for dataset_id in sorted(ids):
        held = select(Dataset.id).where(Dataset.id == dataset_id, Dataset.team_id == team_id)
        session.scalar(held.with_for_update(read=dataset_id != own))


def files_of(version: DatasetVersion) -> list[File]:
    """The files of a version, in order."""
    return [
        File(file.name, file.stored_file.digest, file.stored_file.bytes, file.stored_file_id)
        for file in version.files
    ]


def mixed_versions(
    session: Write, team_id: UUID, mix: Sequence[MixSource], itself: UUID | None
) -> list[tuple[DatasetVersion, float]]:
    """The versions that a mixture names, with their weights, kept from being deleted meanwhile.

    Raises:
        Invalid: one is not the team's, not ready, a mixture itself, named twice, or of the dataset ``itself``.
    """
    found: list[tuple[DatasetVersion, float]] = []
    for position, source in enumerate(mix):
        version = _mixed_version(session, team_id, source, f"recipe.mix.{position}", itself)
        if version.id in {earlier.id for earlier, _ in found}:
            message = "This version is named twice. Add up its weights."
            raise Invalid.at(f"recipe.mix.{position}.dataset", message, source.dataset)
        found.append((version, source.weight))
    return found


def changes_between(before: DatasetVersion, contents: Contents) -> list[str]:
    """What differs from ``before``, a sentence each."""
    return [
        *_file_changes(files_of(before), contents.files),
        *_recipe_changes(Recipe.model_validate(before.recipe), contents.recipe),
    ]


def _contents(
    session: Write,
    team_id: UUID,
    kept: list[File],
    uploads: Sequence[str],
    recipe: Recipe,
    itself: UUID | None,
) -> Contents:
    if recipe.mix and uploads:
        message = "A mixture has no files of its own. Leave uploads empty, or take mix out of the recipe."
        raise Invalid.at("recipe.mix", message)
    # Datasets first, then the team's files: whoever deletes a dataset takes them in this order.
    hold_datasets(session, team_id, recipe.mix, itself)
    sources = mixed_versions(session, team_id, recipe.mix, itself)
    added = [
        File(file.name, file.digest, file.bytes, file.stored_file_id)
        for file in complete_uploads(session, team_id, list(uploads))
    ]
    files = kept + added
    _check_files(files)
    named = [
        source.model_copy(update={"version": version.number})
        for source, (version, _) in zip(recipe.mix, sources, strict=True)
    ]
    return Contents(recipe.model_copy(update={"mix": named}), files, list(uploads), sources)


def _check_files(files: Sequence[File]) -> None:
    if len(files) > MOST_FILES:
        message = f"A version has up to {MOST_FILES:,} files, and these would be {len(files):,}. Join some."
        raise Invalid.at("uploads", message)
    twice = [name for name, count in Counter(file.name for file in files).items() if count > 1]
    if twice:
        problems = [
            Problem(
                field="uploads", message="Two files have this name. Rename one, or leave it out.", value=name
            )
            for name in twice[:10]
        ]
        raise Invalid(problems)


def _mixed_version(
    session: Write, team_id: UUID, source: MixSource, field: str, itself: UUID | None
) -> DatasetVersion:
    dataset = _held_dataset(session, team_id, source.dataset)
    if dataset is None:
        message = "Your team has no dataset of this id. The datasets page shows each id."
        raise Invalid.at(f"{field}.dataset", message, source.dataset)
    if dataset.id == itself:
        message = "A dataset cannot be mixed into itself. Make the mixture a dataset of its own."
        raise Invalid.at(f"{field}.dataset", message, source.dataset)
    for version in dataset.versions:
        if source.version is None and version.state == VersionState.READY and not version.sources:
            return version
        if source.version == version.number:
            _check_mixable(version, f"{field}.version")
            return version
    if source.version is None:
        message = "No version of this dataset can be mixed: it needs one that is ready and no mixture itself."
        raise Invalid.at(f"{field}.dataset", message, source.dataset)
    raise Invalid.at(f"{field}.version", which_versions(dataset), source.version)


def _check_mixable(version: DatasetVersion, field: str) -> None:
    if version.sources:
        message = "This version is a mixture itself. Mix the datasets that it is made of."
        raise Invalid.at(field, message, version.number)
    if version.state != VersionState.READY:
        message = f"This version is {version.state}. Only versions that are ready can be mixed."
        raise Invalid.at(field, message, version.number)


def _held_dataset(session: Write, team_id: UUID, dataset: str) -> Dataset | None:
    try:
        dataset_id = parse_id("ds", dataset)
    except NotFound:
        return None
    held = select(Dataset).where(Dataset.id == dataset_id, Dataset.team_id == team_id)
    return session.scalar(held.with_for_update(read=True))


def which_versions(dataset: Dataset) -> str:
    """A sentence for those who named a version that a dataset does not have."""
    numbers = [version.number for version in reversed(dataset.versions)]
    if numbers == list(range(1, len(numbers) + 1)):
        return (
            "This dataset has only version 1."
            if len(numbers) == 1
            else f"This dataset has versions 1 to {numbers[-1]}."
        )
    return f"This dataset has these versions: {', '.join(map(str, numbers))}."


def _file_changes(before: Sequence[File], after: Sequence[File]) -> Iterator[str]:
    old = {file.name: file.digest for file in before}
    new = {file.name: file.digest for file in after}
    for name, digest in new.items():
        if name not in old:
            yield f"Added {name} ({digest[:12]})."
        elif old[name] != digest:
            yield f"Replaced {name} ({old[name][:12]} → {digest[:12]})."
    for name, digest in old.items():
        if name not in new:
            yield f"Removed {name} ({digest[:12]})."
    if old == new and list(old) != list(new):
        yield "The order of the files."


def _recipe_changes(before: Recipe, after: Recipe) -> Iterator[str]:
    old, new = dict(_leaves("recipe", before)), dict(_leaves("recipe", after))
    for key in dict.fromkeys((*old, *new)):
        if old.get(key) != new.get(key):
            yield f"{key}: {_word(old.get(key))} → {_word(new.get(key))}"


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Every field of a recipe by its path; a mixture's sources by their datasets."""
    if isinstance(value, MixSource):
        version = f"version {value.version}, " if value.version is not None else ""
        yield f"{path}.{value.dataset}", f"{version}weight {value.weight:g}"
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _leaves(f"{path}.{name}", getattr(value, name))
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(path, item)
    else:
        yield path, value


def _word(value: Any) -> str:
    match value:
        case None:
            return "empty"
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:g}"
        case int():
            return f"{value:,}"
    return str(value)
