"""Commands about datasets: upload, preview, show and delete them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.console import Console

from trainwright.client import TeamClient
from trainwright.commands import dataset_versions
from trainwright.commands.curation_counts import statistics_lines
from trainwright.commands.dataset_versions import OfVersion, PositionalVersion, chosen_version
from trainwright.commands.object_names import DatasetName, find_dataset
from trainwright.commands.program import continues_without_reader
from trainwright.commands.terminal import (
    LOCAL_SERVER,
    AsJson,
    Key,
    Server,
    TeamSlug,
    apply_set,
    err,
    exit_with_problems,
    open_team,
    out,
    plural,
    print_error,
    print_json,
    print_table,
    printable,
    show_bytes,
    table_of,
)
from trainwright.contracts.api.datasets import Dataset, DatasetVersion, SameFiles
from trainwright.contracts.api.uploads import PreviewFile, RejectedDocument
from trainwright.contracts.base import problems
from trainwright.contracts.curation import Compression, CurationSpec, FileFormat, TextDocuments
from trainwright.contracts.listing import listed
from trainwright.sizes import format_bytes
from trainwright.transport.local_files import find_files

app = typer.Typer(no_args_is_help=True, help="Upload and manage datasets.")
_EXCERPT_CHARACTERS = 200
_SHOWN_REJECTED = 5
_FORMATS = {
    FileFormat.TEXT: "text",
    FileFormat.JSON_LINES: "JSON Lines",
    FileFormat.PARQUET: "Parquet",
    FileFormat.CSV: "CSV",
}
_COMPRESSIONS = {
    Compression.NONE: "uncompressed",
    Compression.GZIP: "gzip",
    Compression.ZSTANDARD: "Zstandard",
}

app.registered_commands += dataset_versions.app.registered_commands

Text = Annotated[
    TextDocuments | None,
    typer.Option("--text-documents", help="How plain text files are split into documents."),
]
Field = Annotated[str | None, typer.Option("--field", help="Key or column with the document.")]
Wait = Annotated[
    bool,
    typer.Option(
        "--wait/--no-wait",
        help="Wait until it is read and tokenized; exit with 1 and the reason if that fails.",
    ),
]
Duplicates = Annotated[
    bool | None,
    typer.Option("--drop-duplicates", help="Keep only the first of several documents with the same text."),
]
CurationSets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Change one value of the curation, such as curation.rules.min_characters=200."
    ),
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
    sets: CurationSets = None,
    wait: Wait = True,
    as_json: AsJson = False,
) -> None:
    """Upload files and folders as a new dataset. Repeat an interrupted command to continue the upload."""
    curation = curation_of(text_documents, field, drop_duplicates, sets)
    with open_team(server, key, team) as api:
        _print_skipped(paths)
        dataset = api.upload(name, paths, curation, show_bytes)
        err.print()
        with continues_without_reader():
            if not print_json(dataset, as_json):
                typer.echo(dataset.id)
        _print_same_files(dataset)
        if wait:
            _finish(api, dataset)


@app.command("add")
def add(
    dataset: DatasetName,
    paths: list[Path],
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    keep_files: Annotated[
        bool,
        typer.Option(
            "--keep-files/--replace-files",
            help="Whether the new version also has the files of the newest one.",
        ),
    ] = True,
    text_documents: Text = None,
    field: Field = None,
    drop_duplicates: Duplicates = None,
    sets: CurationSets = None,
    wait: Wait = True,
    as_json: AsJson = False,
) -> None:
    """Upload files and folders to a dataset as its next version, together with the files of the newest one. Options change its curation."""
    with open_team(server, key, team) as api:
        dataset = find_dataset(api, dataset)
        base = api.dataset(dataset).versions[0].curation
        curation = curation_of(text_documents, field, drop_duplicates, sets, base)
        _print_skipped(paths)
        made = api.upload_version(dataset, paths, curation, show_bytes, keep_files=keep_files)
        err.print()
        with continues_without_reader():
            if not print_json(made, as_json):
                typer.echo(f"{made.id} version {made.versions[0].number}")
        if wait:
            _finish(api, made)


@app.command("preview")
def preview(
    paths: list[Path],
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    text_documents: Text = None,
    field: Field = None,
    sets: CurationSets = None,
    documents: Annotated[
        int, typer.Option(min=1, max=20, help="How many documents to show of each file.")
    ] = 5,
    as_json: AsJson = False,
) -> None:
    """Show the first documents of files. This uploads the files, which the server keeps for a day."""
    curation = curation_of(text_documents, field, None, sets)
    with open_team(server, key, team) as api:
        _print_skipped(paths)
        err.print("Uploading the files for the preview. The server keeps them for a day.", soft_wrap=True)
        found = api.preview(paths, curation, show_bytes)
        err.print()
        if print_json(found, as_json):
            return
        for file in found.files:
            _show_file(file, documents)
        if not any(file.documents for file in found.files):
            print_error("Nothing here can be read as documents.")
            raise typer.Exit(1)
        err.print(
            "No dataset was created. Within a day, `trainwright datasets upload` reuses these files.",
            soft_wrap=True,
        )


@app.command("list")
def list_datasets(
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    search: Annotated[str, typer.Option(help="Only datasets with these words in their names.")] = "",
    as_json: AsJson = False,
) -> None:
    """List the team's datasets."""
    with open_team(server, key, team) as api:
        found = api.datasets(search)
        if print_json(found, as_json):
            return
        table = table_of("name", "version", "size", "state")
        for dataset in found:
            newest = dataset.versions[0]
            table.add_row(
                dataset.id, dataset.name, str(newest.number), format_bytes(newest.bytes), newest.state
            )
        print_table(table, empty="No datasets.")


@app.command("show")
def show(
    dataset: DatasetName,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Show the versions of a dataset: state, statistics, rejected documents, preparations."""
    with open_team(server, key, team) as api:
        shown = api.dataset(find_dataset(api, dataset))
        if print_json(shown, as_json):
            return
        _show_dataset(api, shown)


@app.command("rejected")
def rejected(
    dataset: DatasetName,
    key: Key,
    team: TeamSlug,
    number: PositionalVersion = None,
    server: Server = LOCAL_SERVER,
    version: OfVersion = None,
    as_json: AsJson = False,
) -> None:
    """List the documents of a version that could not be read."""
    with open_team(server, key, team) as api:
        dataset = find_dataset(api, dataset)
        found = api.rejected_documents(dataset, chosen_version(api, dataset, version, number))
        if print_json(found, as_json):
            return
        for document in found:
            typer.echo(f"{document.file}:{document.line}: {document.reason}")


@app.command("delete")
def delete_dataset(
    dataset: DatasetName,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    version: Annotated[int | None, typer.Option(help="Only this version.")] = None,
) -> None:
    """Delete a dataset or one of its versions, if no run uses it."""
    with open_team(server, key, team) as api:
        dataset = find_dataset(api, dataset)
        if version is None:
            api.delete_dataset(dataset)
        else:
            api.delete_version(dataset, version)


def curation_of(
    text_documents: TextDocuments | None,
    field: str | None,
    drop_duplicates: bool | None,
    sets: list[str] | None,
    base: CurationSpec | None = None,
) -> CurationSpec | None:
    """``base`` changed by the options; None if they change nothing."""
    changes: dict[str, Any] = {
        "read.text_documents": text_documents,
        "read.field": field,
        "drop_duplicates": drop_duplicates,
    }
    changed: dict[str, Any] = {"curation": (base or CurationSpec()).model_dump(mode="json")}
    before = json.dumps(changed)
    for path, value in changes.items():
        if value is not None:
            apply_set(changed, f"curation.{path}={json.dumps(value)}", {"curation": CurationSpec})
    for change in sets or []:
        path = change.removeprefix("curation.").removeprefix("recipe.")  # its name up to version 0.1
        apply_set(changed, f"curation.{path}", {"curation": CurationSpec})
    try:
        return CurationSpec.model_validate(changed["curation"]) if json.dumps(changed) != before else None
    except ValidationError as error:
        exit_with_problems(problems(error, CurationSpec))
        raise


def _finish(api: TeamClient, dataset: Dataset) -> None:
    """Wait for the newest version and show it on stderr, so that the output is its id; fail with its error."""
    err.print(
        "Waiting until it is read and tokenized. Ctrl-C only stops the waiting; the server continues.",
        soft_wrap=True,
    )
    version = api.wait_for_version(dataset.id, dataset.versions[0].number)
    failed = [preparation.error for preparation in version.preparations if preparation.error is not None]
    reason = version.error or next(iter(failed), None)
    if reason is not None:
        print_error(reason)
        raise typer.Exit(1)
    _show_version(version, err)


def _print_same_files(dataset: Dataset) -> None:
    """Print to stderr which other datasets have the same files."""
    for same in dataset.same_files_as:
        err.print(_same_files(same), style="yellow", soft_wrap=True)
    if dataset.same_files_as:
        err.print(f"If you do not need the new one: trainwright datasets delete {dataset.id}", soft_wrap=True)


def _same_files(same: SameFiles) -> str:
    return f"Version {same.version} of {same.name} ({same.dataset}) has the same files."


def _print_skipped(paths: list[Path]) -> None:
    """Print to stderr which files in the folders are not uploaded."""
    skipped = find_files(paths).skipped
    if skipped:
        shown = listed(skipped, most=5)
        files = plural(len(skipped), "hidden or empty file")
        err.print(f"Skipped {files}: {shown}.", soft_wrap=True)


def _show_file(file: PreviewFile, most: int) -> None:
    kind = "unknown format" if file.format is None else _FORMATS[file.format]
    out.print(file.name, style="bold", end="  ")
    out.print(f"{kind}, {_COMPRESSIONS[file.compression]}")
    if file.problem is not None:
        out.print(f"  {file.problem}", soft_wrap=True)
    if file.columns:
        usable = ", ".join(f"{column.name} ({column.type})" for column in file.columns if column.usable)
        out.print(f"  field {file.field or 'none'}; usable: {usable or 'none'}", soft_wrap=True)
    for number, document in enumerate(file.documents[:most], 1):
        out.print(_excerpt(number, document), highlight=False, soft_wrap=True)
    for line in file.rejected:
        out.print(f"  line {line.line}: {line.reason}", soft_wrap=True)


def _excerpt(number: int, document: str) -> str:
    """The beginning of a document, with a number before its first line and the same indentation in all lines."""
    cut = document.strip("\n")
    if len(cut) > _EXCERPT_CHARACTERS:
        cut = f"{cut[:_EXCERPT_CHARACTERS]}…"
    first, *others = printable(cut).split("\n")
    return "\n".join([f"{number:>4} | {first}", *(f"     | {line}" for line in others)])


def _show_dataset(api: TeamClient, dataset: Dataset) -> None:
    out.print(dataset.name, style="bold", end="  ")
    out.print(dataset.id)
    for same in dataset.same_files_as:
        out.print(_same_files(same), soft_wrap=True)
    for version in dataset.versions:
        has_rejected = version.statistics is not None and version.statistics.rejected
        rejected = api.rejected_documents(dataset.id, version.number) if has_rejected else []
        _show_version(version, rejected=rejected[:_SHOWN_REJECTED])


def _show_version(
    version: DatasetVersion, out: Console = out, rejected: Sequence[RejectedDocument] = ()
) -> None:
    size = f"{plural(len(version.files), 'file')}, {format_bytes(version.bytes)}"
    out.print(f"version {version.number}: {version.state}, {size}")
    for text in [*version.changes, *([version.error] if version.error else [])]:
        out.print(f"  {text}", soft_wrap=True)
    counted = version.statistics
    if counted is not None:
        for line in statistics_lines(counted):
            out.print(f"  {line}", soft_wrap=True)
    for document in rejected:
        out.print(f"    {document.file}:{document.line}: {document.reason}", soft_wrap=True)
    for preparation in version.preparations:
        tokens = (
            ""
            if preparation.train_tokens is None
            else f", {preparation.train_tokens:,} training and {preparation.validation_tokens:,} validation tokens"
        )
        out.print(f"  {preparation.id}  {preparation.state}{tokens}")
        if preparation.error:
            out.print(f"    {preparation.error}", soft_wrap=True)
