"""What all commands share: the server, key and team they speak to, `--set`, tables, complaints."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args

import httpx
import typer
from pydantic import BaseModel, ValidationError
from rich.console import Console
from rich.table import Column, Table

from trainwright.client import Client, TeamClient
from trainwright.connection import ApiError, DigestMismatchError
from trainwright.contracts.api.verbs import Freed
from trainwright.contracts.base import Problem, problems, problems_in
from trainwright.contracts.run_spec import RunSpec
from trainwright.tus import FileChangedError

out = Console(width=None if sys.stdout.isatty() else 200)
err = Console(stderr=True)

Server = Annotated[str, typer.Option(envvar="TRAINWRIGHT_SERVER", help="Address of the server.")]
Key = Annotated[str, typer.Option(envvar="TRAINWRIGHT_KEY", help="Your API key.", show_default=False)]
TeamSlug = Annotated[
    str, typer.Option("--team", envvar="TRAINWRIGHT_TEAM", help="Your team.", show_default=False)
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Change one value, such as schedule.steps=500 or precision.kind=fp8; nothing after the equals sign sets"
        " null where the field may be null, as in optimizer.clip_norm= for no clipping.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be freed.")]
LOCAL_SERVER = "http://127.0.0.1:8000"
Value = TypeVar("Value")


@contextmanager
def open_team(server: str, key: str, team: str) -> Iterator[TeamClient]:
    with open_client(server, key) as client:
        yield client.team(team)


@contextmanager
def open_client(server: str, key: str) -> Iterator[Client]:
    """A connection; what goes wrong is told to the person, and ends the command."""
    try:
        with Client(server, key) as client:
            yield client
    except ApiError as error:
        complain(str(error))
        raise typer.Exit(1) from error
    except OSError as error:
        named = error.filename is not None and error.strerror
        complain(f"{error.filename}: {error.strerror}." if named else str(error))
        raise typer.Exit(1) from error
    except ValidationError as error:  # what a command was given, refused before it was sent
        refuse(problems_in(error.errors(include_url=False), None))
    except (LookupError, ValueError, DigestMismatchError, FileChangedError) as error:
        complain(str(error))
        raise typer.Exit(1) from error
    except httpx.TransportError as error:
        complain(f"No answer from {server}: {error}. Is the server running, and is the address right?")
        raise typer.Exit(1) from error


def read_spec(path: Path, sets: list[str] | None) -> dict[str, Any]:
    """The spec file with the changes of ``--set``, checked as far as it can be without the server."""
    spec = read_json(path)
    for change in sets or []:
        set_value(spec, change)
    try:
        RunSpec.model_validate(spec)
    except ValidationError as error:
        refuse(problems(error, RunSpec))
    return spec


def read_json(path: Path) -> dict[str, Any]:
    """What a file with a JSON object holds."""
    try:
        found = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        complain(f"{path} is not valid JSON: {error}.")
        raise typer.Exit(2) from error
    if not isinstance(found, dict):
        complain(f"{path} holds no object: write {{...}} with keys and values.")
        raise typer.Exit(2)
    return found


def set_value(spec: dict[str, Any], change: str, models: Mapping[str, type[BaseModel]] | None = None) -> None:
    """Do one ``--set`` in ``spec``, a run's spec; with ``models``, what other sections it has at its top."""
    path, equals, text = change.partition("=")
    if not equals:
        complain(f"--set {change}: write it as section.key=value.")
        raise typer.Exit(2)
    *sections, key = parts = path.split(".")
    for section in sections:
        if spec.get(section) is None:  # as the copied spec of a run says it, for instance precision.fp8
            spec[section] = {}
        spec = spec[section]
        if not isinstance(spec, dict):
            complain(f"--set {change}: '{section}' is a value, not a section.")
            raise typer.Exit(2)
    if text == "" and may_be_null(parts, models):
        spec[key] = None
        return
    try:
        spec[key] = json.loads(text)
    except json.JSONDecodeError:
        spec[key] = text


def changes_of(sets: list[str] | None) -> dict[str, Any]:
    """What ``--set`` changes in a spec that lies at the server, by dotted name."""
    changes: dict[str, Any] = {}
    for change in sets or []:
        nested: dict[str, Any] = {}
        set_value(nested, change)
        field = change.partition("=")[0]
        value: Any = nested
        for part in field.split("."):
            value = value[part]
        changes[field] = value
    return changes


def may_be_null(path: list[str], models: Mapping[str, type[BaseModel]] | None) -> bool:
    """Whether a field of the spec takes null; one that does not exist is for validation to name."""
    section: type[BaseModel] | None = RunSpec
    if models is not None:
        section, path = models.get(path[0]), path[1:]
    kinds: tuple[Any, ...] = ()
    for key in path:
        field = section.model_fields.get(key) if section is not None else None
        if field is None:
            return False
        kinds = get_args(field.annotation) or (field.annotation,)
        section = next(
            (kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None
        )
    return NoneType in kinds


def refuse(found: list[Problem]) -> None:
    if not found:
        return
    for problem in found:
        complain(f"{problem.field}: {problem.message}")
    raise typer.Exit(1)


def show_bytes(done: int, total: int) -> None:
    if not sys.stderr.isatty():
        return
    sys.stderr.write(f"\r\033[K{done / 2**20:,.1f} of {total / 2**20:,.1f} MiB")
    sys.stderr.flush()


def complain(text: str) -> None:
    err.print(text, style="red", markup=False, soft_wrap=True)


def table_of(*columns: str) -> Table:
    """A table whose first column is an id, which is never cut off: people copy it."""
    return Table(Column("id", no_wrap=True, min_width=30), *columns, box=None)


def in_mib(size_bytes: int) -> str:
    """A size with three digits that say something, however small."""
    size = size_bytes / 2**20
    return f"{size:,.1f}" if size >= 1 or not size else f"{size:.3g}"


def in_bytes(size_bytes: int) -> str:
    """A size in the unit that leaves the fewest digits: 4.7 MiB, 1,000 TiB."""
    size, units = float(size_bytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:,.0f} {units[0]}" if size >= 100 or size.is_integer() else f"{size:,.1f} {units[0]}"


def freed_in_words(freed: Freed) -> str:
    """What a deletion freed, or would free."""
    verb = "Would free" if freed.dry_run else "Freed"
    number = "1 checkpoint" if freed.checkpoints == 1 else f"{freed.checkpoints:,} checkpoints"
    return f"{verb} {in_mib(freed.bytes)} MiB: {number}."


def in_form(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
