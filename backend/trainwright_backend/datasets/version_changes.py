"""What changed between two versions of a dataset, as sentences."""

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel

from trainwright.contracts.curation import CurationSpec, MixSource
from trainwright_backend.datasets.contents import FileRef, VersionContents, files_of
from trainwright_backend.datasets.tables import DatasetVersion


def changes_between(before: DatasetVersion, contents: VersionContents) -> list[str]:
    """The differences from ``before``, one sentence each."""
    return [
        *_file_changes(files_of(before), contents.files),
        *_curation_changes(CurationSpec.model_validate(before.curation), contents.curation),
    ]


def _file_changes(before: Sequence[FileRef], after: Sequence[FileRef]) -> Iterator[str]:
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


def _curation_changes(before: CurationSpec, after: CurationSpec) -> Iterator[str]:
    old, new = dict(_leaves("curation", before)), dict(_leaves("curation", after))
    for key in dict.fromkeys((*old, *new)):
        if old.get(key) != new.get(key):
            yield f"{key}: {_format(old.get(key))} → {_format(new.get(key))}"


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Every field of a curation with its path. A mixture's sources are listed by dataset."""
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


def _format(value: Any) -> str:
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
