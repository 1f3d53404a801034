"""Commands about uploaded tokenizers."""

from __future__ import annotations

from pathlib import Path

import typer

from trainwright.commands.object_names import TokenizerName, find_tokenizer
from trainwright.commands.terminal import (
    LOCAL_SERVER,
    AsJson,
    Key,
    Server,
    TeamSlug,
    open_team,
    print_json,
    print_table,
    table_of,
)

app = typer.Typer(no_args_is_help=True, help="Upload and manage tokenizers.")


@app.command("upload")
def upload(
    name: str, file: Path, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, as_json: AsJson = False
) -> None:
    """Upload a `tokenizer.json`."""
    with open_team(server, key, team) as api:
        found = api.upload_tokenizer(name, file)
        if print_json(found, as_json):
            return
        typer.echo(found.id)


@app.command("list")
def list_tokenizers(key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, as_json: AsJson = False) -> None:
    """List the team's uploaded tokenizers."""
    with open_team(server, key, team) as api:
        found = api.tokenizers()
        if print_json(found, as_json):
            return
        table = table_of("name", "vocabulary", "end of text")
        for tokenizer in found:
            table.add_row(tokenizer.id, tokenizer.name, f"{tokenizer.vocabulary:,}", tokenizer.end_of_text)
        print_table(table, empty="No tokenizers.")


@app.command("delete")
def delete(tokenizer: TokenizerName, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Delete a tokenizer. Preparations that use it keep their own copy."""
    with open_team(server, key, team) as api:
        api.delete_tokenizer(find_tokenizer(api, tokenizer))
