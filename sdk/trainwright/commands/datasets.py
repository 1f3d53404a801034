"""Commands about datasets: sending files, looking at what they hold and what became of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.markup import escape

from trainwright.client import TeamClient
from trainwright.commands.terminal import (
    LOCAL_SERVER,
    Key,
    Server,
    TeamSlug,
    complain,
    err,
    in_mib,
    open_team,
    out,
    refuse,
    set_value,
    show_bytes,
    table_of,
)
from trainwright.contracts.api.datasets import Dataset, DatasetVersion
from trainwright.contracts.api.uploads import PreviewFile
from trainwright.contracts.base import problems
from trainwright.contracts.recipe import Recipe, TextDocuments
from trainwright.files import find_files

app = typer.Typer(no_args_is_help=True, help="Upload and look at datasets.")

Text = Annotated[
    TextDocuments | None, typer.Option("--text-documents", help="What a document is in files of plain text.")
]
Field = Annotated[str | None, typer.Option("--field", help="Key or column that holds a document.")]
Wait = Annotated[
    bool,
    typer.Option("--wait", help="Until it is read and its tokens are made; ends with 1 when that fails."),
]
Duplicates = Annotated[
    bool | None, typer.Option("--drop-duplicates", help="Keep the first of documents with the same text.")
]
RecipeSets = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change one value of the recipe, such as recipe.rules.min_characters=200."),
]


@app.command("upload")
def upload(
    name: str,
    paths: list[Path],
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    text_documents: Text = None,
    field: Field = None,
    drop_duplicates: Duplicates = None,
    sets: RecipeSets = None,
    wait: Wait = False,
) -> None:
    """Upload files and folders as a new dataset. The same command goes on where one that was cut off was."""
    recipe = recipe_of(text_documents, field, drop_duplicates, sets)
    with open_team(server, key, team) as api:
        _tell_skipped(paths)
        dataset = api.upload(name, paths, recipe, show_bytes)
        err.print()
        typer.echo(dataset.id)
        if wait:
            _finish(api.wait_for_version(dataset.id, dataset.versions[0].number))


@app.command("add")
def add(
    dataset: str,
    paths: list[Path],
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    keep_files: Annotated[bool, typer.Option(help="Add them to the files of the newest version.")] = False,
    text_documents: Text = None,
    field: Field = None,
    drop_duplicates: Duplicates = None,
    sets: RecipeSets = None,
    wait: Wait = False,
) -> None:
    """Upload files and folders as a dataset's next version; its recipe stays unless options change it."""
    with open_team(server, key, team) as api:
        base = api.dataset(dataset).versions[0].recipe
        recipe = recipe_of(text_documents, field, drop_duplicates, sets, base)
        _tell_skipped(paths)
        made = api.upload_version(dataset, paths, recipe, show_bytes, keep_files=keep_files)
        err.print()
        typer.echo(f"{made.id} version {made.versions[0].number}")
        if wait:
            _finish(api.wait_for_version(made.id, made.versions[0].number))


@app.command("preview")
def preview(
    paths: list[Path],
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    text_documents: Text = None,
    field: Field = None,
    sets: RecipeSets = None,
) -> None:
    """Show the first documents of files. They are sent for it; `upload` then has little left to send."""
    recipe = recipe_of(text_documents, field, None, sets)
    with open_team(server, key, team) as api:
        _tell_skipped(paths)
        found = api.preview(paths, recipe, show_bytes)
        err.print()
        for file in found.files:
            _show_file(file)
        if not any(file.documents for file in found.files):
            complain("Nothing here can be read as documents.")
            raise typer.Exit(1)


@app.command("list")
def list_datasets(key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """List the team's datasets."""
    with open_team(server, key, team) as api:
        table = table_of("name", "version", "MiB", "state")
        for dataset in api.datasets():
            newest = dataset.versions[0]
            table.add_row(dataset.id, dataset.name, str(newest.number), in_mib(newest.bytes), newest.state)
        out.print(table)


@app.command("show")
def show(
    dataset: str,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Show a dataset's versions: state, statistics, what was rejected, preparations."""
    with open_team(server, key, team) as api:
        shown = api.dataset(dataset)
        if as_json:
            typer.echo(shown.model_dump_json(indent=2))
        else:
            _show_dataset(api, shown)


@app.command("rejected")
def rejected(dataset: str, version: int, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """List the documents of a version that could not be read."""
    with open_team(server, key, team) as api:
        for document in api.rejected_documents(dataset, version):
            typer.echo(f"{document.file}:{document.line}: {document.reason}")


@app.command("delete")
def delete_dataset(
    dataset: str,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    version: Annotated[int | None, typer.Option(help="Only this version.")] = None,
) -> None:
    """Delete a dataset that no run uses, or one of its versions."""
    with open_team(server, key, team) as api:
        if version is None:
            api.delete_dataset(dataset)
        else:
            api.delete_version(dataset, version)


def recipe_of(
    text_documents: TextDocuments | None,
    field: str | None,
    drop_duplicates: bool | None,
    sets: list[str] | None,
    base: Recipe | None = None,
) -> Recipe | None:
    """The recipe that the options make of ``base``; None when they say nothing."""
    changes: dict[str, Any] = {
        "read.text_documents": text_documents,
        "read.field": field,
        "drop_duplicates": drop_duplicates,
    }
    said: dict[str, Any] = {"recipe": (base or Recipe()).model_dump(mode="json")}
    before = json.dumps(said)
    for path, value in changes.items():
        if value is not None:
            set_value(said, f"recipe.{path}={json.dumps(value)}", {"recipe": Recipe})
    for change in sets or []:
        set_value(said, f"recipe.{change.removeprefix('recipe.')}", {"recipe": Recipe})
    try:
        return Recipe.model_validate(said["recipe"]) if json.dumps(said) != before else None
    except ValidationError as error:
        refuse(problems(error, Recipe))
        raise


def _finish(version: DatasetVersion) -> None:
    """Say what became of it; a failure is the command's own."""
    failed = [one.error for one in version.preparations if one.error is not None]
    reason = version.error or next(iter(failed), None)
    if reason is not None:
        complain(reason)
        raise typer.Exit(1)
    _show_version(version)


def _tell_skipped(paths: list[Path]) -> None:
    """Say on the error stream what lies in the folders and is not sent."""
    skipped = find_files(paths).skipped
    if skipped:
        shown = ", ".join(skipped[:5]) + (" and more" if len(skipped) > 5 else "")
        err.print(f"Skipped {len(skipped)} hidden or empty files: {shown}.", markup=False, soft_wrap=True)


def _show_file(file: PreviewFile) -> None:
    kind = file.format or "unknown"
    out.print(f"[bold]{escape(file.name)}[/bold]  {kind}, compression {file.compression}")
    if file.problem is not None:
        out.print(f"  {file.problem}", markup=False, soft_wrap=True)
    if file.columns:
        usable = ", ".join(f"{column.name} ({column.type})" for column in file.columns if column.usable)
        out.print(f"  field {file.field or 'none'}; usable: {usable or 'none'}", markup=False, soft_wrap=True)
    for document in file.documents:
        out.print(f"  | {document[:200]}", markup=False, soft_wrap=True)
    for line in file.rejected:
        out.print(f"  line {line.line}: {line.reason}", markup=False, soft_wrap=True)


def _show_dataset(api: TeamClient, dataset: Dataset) -> None:
    out.print(f"[bold]{escape(dataset.name)}[/bold]  {dataset.id}")
    for version in dataset.versions:
        _show_version(version)
        if version.statistics is not None and version.statistics.rejected:
            for line in api.rejected_documents(dataset.id, version.number)[:5]:
                out.print(f"    {line.file}:{line.line}: {line.reason}", markup=False, soft_wrap=True)


def _show_version(version: DatasetVersion) -> None:
    files = "1 file" if len(version.files) == 1 else f"{len(version.files):,} files"
    out.print(f"version {version.number}: {version.state}, {files}, {version.bytes:,} bytes")
    for text in [*version.changes, *([version.error] if version.error else [])]:
        out.print(f"  {text}", markup=False, soft_wrap=True)
    counted = version.statistics
    if counted is not None:
        out.print(
            f"  {counted.kept:,} of {counted.documents:,} documents kept, {counted.characters:,} characters, "
            f"{counted.duplicates:,} duplicates, {counted.rejected:,} rejected"
        )
        for part, count in counted.dropped.items():
            out.print(f"    {count:,} left out by {part}", markup=False)
    for one in version.preparations:
        tokens = (
            "" if one.train_tokens is None else f", {one.train_tokens:,} + {one.validation_tokens:,} tokens"
        )
        out.print(f"  {one.id}  {one.state}{tokens}", markup=False)
        if one.error:
            out.print(f"    {one.error}", markup=False, soft_wrap=True)
