"""Commands about what is made of a dataset's files: curations, mixtures, documents and preparations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainwright.client import TeamClient
from trainwright.commands.curation_counts import statistics_lines
from trainwright.commands.object_names import DatasetName, find_dataset
from trainwright.commands.spec_files import read_object
from trainwright.commands.terminal import (
    LOCAL_SERVER,
    AsJson,
    Key,
    Server,
    TeamSlug,
    format_percent,
    open_team,
    print_json,
    print_table,
    printable,
    table_of,
)
from trainwright.contracts.curation import CurationSpec
from trainwright.contracts.data_spec import TokenizerSpec
from trainwright.sizes import format_bytes

app = typer.Typer()

SHOWN_CHARACTERS = 80
"""Characters of a document in a table."""

Curation = Annotated[
    Path,
    typer.Argument(
        metavar="CURATION.json", help="The curation, as `datasets show --json` prints it; YAML works too."
    ),
]


OfVersion = Annotated[int | None, typer.Option("--version", help="Default: the newest one.")]
PositionalVersion = Annotated[
    int | None, typer.Argument(metavar="[VERSION]", help="The same as --version.", show_default=False)
]
"""The earlier form of `--version`, which scripts use."""


@app.command("mix")
def mix(
    name: str,
    curation: Curation,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Create a mixture of other datasets, which the curation names."""
    with open_team(server, key, team) as api:
        made = api.mix(name, CurationSpec.model_validate(read_object(curation)))
        if print_json(made, as_json):
            return
        typer.echo(made.id)


@app.command("curate")
def curate(
    dataset: DatasetName,
    curation: Curation,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Create a version with the files of the newest one and another curation."""
    with open_team(server, key, team) as api:
        made = api.change_curation(
            find_dataset(api, dataset), CurationSpec.model_validate(read_object(curation))
        )
        if print_json(made, as_json):
            return
        typer.echo(f"{made.id} version {made.versions[0].number}")


@app.command("count")
def count(
    curation: Curation,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Id or name of the dataset whose documents are counted; leave it out for a mixture."
        ),
    ] = None,
    version: OfVersion = None,
    as_json: AsJson = False,
) -> None:
    """Count what a curation would keep of a version's documents, or what a mixture would contain."""
    with open_team(server, key, team) as api:
        of_dataset = None if dataset is None else find_dataset(api, dataset)
        found = api.count(CurationSpec.model_validate(read_object(curation)), of_dataset, version)
        if print_json(found, as_json):
            return
        for line in statistics_lines(found):
            typer.echo(line)
        for share in found.mix:
            typer.echo(f"  {format_percent(share.share)} from {share.dataset} version {share.version}")
        if found.counted_fraction < 1:
            typer.echo(f"Estimated from {format_percent(found.counted_fraction, digits=1)} of the documents.")


@app.command("documents")
def documents(
    dataset: DatasetName,
    key: Key,
    team: TeamSlug,
    number: PositionalVersion = None,
    server: Server = LOCAL_SERVER,
    version: OfVersion = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="Number of documents.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the first documents of a version, including those that its curation drops."""
    with open_team(server, key, team) as api:
        dataset = find_dataset(api, dataset)
        page = api.documents(dataset, chosen_version(api, dataset, version, number), limit)
        if print_json(page, as_json):
            return
        for document in page.items:
            typer.echo(printable(document.text[:SHOWN_CHARACTERS]).replace("\n", " "))


@app.command("prepare")
def prepare(
    dataset: DatasetName,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    version: OfVersion = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="JSON or YAML file, as `data.tokenizer` of a run's spec.")
    ] = None,
    validation_fraction: Annotated[float, typer.Option(min=0, max=0.5)] = 0.01,
    as_json: AsJson = False,
) -> None:
    """Tokenize a version, so that runs need not wait for it."""
    with open_team(server, key, team) as api:
        chosen = None if tokenizer is None else TokenizerSpec.model_validate(read_object(tokenizer))
        made = api.prepare(find_dataset(api, dataset), version, chosen, validation_fraction)
        if print_json(made, as_json):
            return
        typer.echo(made.id)


@app.command("cancel-preparation")
def cancel_preparation(
    dataset: DatasetName,
    preparation: str,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Cancel a preparation. Finished shards are kept for the next time."""
    with open_team(server, key, team) as api:
        cancelled = api.cancel_preparation(find_dataset(api, dataset), preparation)
        if print_json(cancelled, as_json):
            return
        typer.echo(cancelled.state)


@app.command("uploads")
def uploads(key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, as_json: AsJson = False) -> None:
    """List uploads in progress, and complete ones that no dataset uses."""
    with open_team(server, key, team) as api:
        found = api.uploads()
        if print_json(found, as_json):
            return
        table = table_of("file", "size", "sent")
        for item in found:
            table.add_row(item.id, item.file_name, format_bytes(item.bytes), format_bytes(item.offset))
        print_table(table, empty="No uploads.")


def chosen_version(api: TeamClient, dataset: str, version: int | None, positional: int | None) -> int:
    """The number of the version that the command line names, or else of the newest one.

    Raises:
        BadParameter: it names two versions.
    """
    if version is not None and positional is not None and version != positional:
        raise typer.BadParameter(f"--version {version} and {positional} are two versions. Name one.")
    named = positional if version is None else version
    return api.dataset(dataset).versions[0].number if named is None else named
