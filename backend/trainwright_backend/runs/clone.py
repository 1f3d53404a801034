"""A new run with the configuration of another, some of whose fields are changed by their dotted names.

The result is an ordinary RunSpec. It is validated like any other, and errors name the fields of the spec. The stored
spec of a run has all its values resolved, so a change of the dataset also drops the version of the old one.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from trainwright.contracts.api.actions import NewClone
from trainwright.contracts.base import problems
from trainwright.contracts.listing import listed
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.spec_upgrade import upgrade_spec
from trainwright_backend.core.author import Author
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.errors import Invalid
from trainwright_backend.datasets.data_resolution import DATASET
from trainwright_backend.datasets.names import dataset_id
from trainwright_backend.runs.service import get_run
from trainwright_backend.runs.submission import SubmitResult, create_run, reserve_key_or_find_run
from trainwright_backend.runs.tables import Run
from trainwright_backend.runs.transitions import add_event

VERSION = "data.version"
DEEPEST = 4
"""Sections around a field."""


def clone_run(
    session: Write, team_id: UUID, author: Author, run_id: str, request: NewClone, key: str | None
) -> SubmitResult:
    """A new run with the configuration of another, from step 0.

    Raises:
        NotFound: see `get_run`.
        Invalid: a change names no field, or the changed spec is refused.
        AppError: as `submit_run`.
    """
    earlier = reserve_key_or_find_run(
        session, team_id, key, {"clone": run_id, **request.model_dump(mode="json")}
    )
    if earlier is not None:
        return SubmitResult(earlier, replayed=True)
    original = get_run(session, team_id, run_id)
    spec = changed_spec(session, original, request)
    refuse_deleted_data(session, original, spec)
    run = create_run(session, team_id, author, spec, key)
    add_event(session, run, "cloned", f"copied from {original.name}{differences(request.changes)}")
    return SubmitResult(run, replayed=False)


def changed_spec(session: Read, run: Run, request: NewClone) -> RunSpec:
    """The spec of ``run`` under a new name, with the changes.

    Raises:
        Invalid: a change names no field, the result is no RunSpec, or several datasets have the name that a change gives.
    """
    spec, changes = upgrade_spec(run.spec), dict(request.changes)
    if isinstance(given := changes.get(DATASET), str):
        changes[DATASET] = dataset_id(session, run.team_id, given, DATASET)
    if DATASET in changes and changes[DATASET] != spec["data"]["dataset"]:
        spec["data"]["version"] = None
    for field, value in sorted(changes.items()):  # a whole section comes before its fields
        _put(spec, field, value)
    spec["name"] = request.name
    try:
        return RunSpec.model_validate(spec)
    except ValidationError as error:
        raise Invalid(problems(error, RunSpec)) from None


def refuse_deleted_data(session: Read, original: Run, spec: RunSpec) -> None:
    """Refuse to train on data that was deleted.

    Raises:
        Invalid: at the dataset.
    """
    unchanged = spec.data.dataset == original.spec["data"]["dataset"]
    same_version = spec.data.version == original.spec["data"]["version"]
    if original.preparation_id is None and unchanged and same_version:
        message = (
            f"The data of {original.name} was deleted. Change {DATASET} to one of your team's datasets"
            f", or {VERSION} to another version of this one."
        )
        raise Invalid.at(DATASET, message, spec.data.dataset)


def differences(changes: Mapping[str, Any]) -> str:
    """The changes as the end of a sentence."""
    if not changes:
        return ""
    return f", with other {listed(sorted(changes), most=5)}"


def _put(spec: dict[str, Any], field: str, value: Any) -> None:
    """Set the field with a dotted name. The spec's validation refuses unknown names."""
    *path, last = field.split(".")
    if len(path) > DEEPEST:
        raise Invalid.at(field[:80], "A run has no such field. `GET /spec` describes all.", value)
    if field in ("name", "schema_version"):
        raise Invalid.at(
            field, "This cannot be changed here: set the new run's `name` next to `changes`.", value
        )
    section: dict[str, Any] = spec
    for part in path:
        inner = section.get(part)
        if inner is None:
            inner = section[part] = {}
        if not isinstance(inner, dict):
            raise Invalid.at(field, f"{part} has no fields: change all of it.", value)
        section = inner
    section[last] = value
