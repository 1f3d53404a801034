"""Commands about the browsers in which the key's owner is signed in."""

from __future__ import annotations

import typer

from trainwright.commands.terminal import (
    LOCAL_SERVER,
    AsJson,
    Key,
    Server,
    open_client,
    out,
    print_json,
    table_of,
)

app = typer.Typer(
    no_args_is_help=True, help="List the browsers in which you are signed in, and sign them out."
)


@app.command("list")
def list_sessions(key: Key, server: Server = LOCAL_SERVER, as_json: AsJson = False) -> None:
    """List the browsers in which you are signed in."""
    with open_client(server, key) as client:
        found = client.sessions()
        if print_json(found, as_json):
            return
        table = table_of("device", "address", "last used", "signed in", "expires")
        for session in found:
            times = (session.last_used, session.created, session.expires)
            shown = (f"{time.astimezone():%Y-%m-%d %H:%M}" if time else "" for time in times)
            table.add_row(session.id, session.device or "unknown", session.address, *shown)
        out.print(table)


@app.command("end")
def end(session: str, key: Key, server: Server = LOCAL_SERVER) -> None:
    """Sign a browser out."""
    with open_client(server, key) as client:
        client.end_session(session)
