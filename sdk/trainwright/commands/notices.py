"""Commands about the notices of the key's owner."""

from __future__ import annotations

from typing import Annotated

import typer

from trainwright.commands.terminal import (
    LOCAL_SERVER,
    AsJson,
    Key,
    Server,
    TextTable,
    open_client,
    out,
    print_json,
    print_table,
    table_of,
)
from trainwright.contracts.api.notices import MAX_NOTICES, NoticeChoice, NoticeKind, NoticeSettings

app = typer.Typer(
    no_args_is_help=True,
    help="Show notices about your runs, limits and nodes, and choose which ones you get.",
)


@app.command("list")
def list_notices(
    key: Key,
    server: Server = LOCAL_SERVER,
    unread: Annotated[bool, typer.Option("--unread", help="Only those that you have not read.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=MAX_NOTICES, help="Number of notices.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List your notices, newest first."""
    with open_client(server, key) as client:
        page = client.notices(unread=unread, limit=limit)
    if print_json(page, as_json):
        return
    table = table_of("time", "team", "state", "notice")
    for notice in page.items:
        state = "read" if notice.read else "new"
        time = f"{notice.time.astimezone():%Y-%m-%d %H:%M}"
        table.add_row(notice.id, time, notice.team or "", state, notice.sentence)
    print_table(table, empty="No notices.")


@app.command("read")
def read(
    key: Key,
    notices: Annotated[list[str] | None, typer.Argument(help="Ids. Default: all.")] = None,
    server: Server = LOCAL_SERVER,
) -> None:
    """Mark notices as read."""
    with open_client(server, key) as client:
        client.mark_notices_read(notices or None)


@app.command("settings")
def settings(key: Key, server: Server = LOCAL_SERVER, as_json: AsJson = False) -> None:
    """Show which notices you get, in the app and by email."""
    with open_client(server, key) as client:
        _print(client.notice_settings(), as_json)


@app.command("choose")
def choose(
    kind: NoticeKind,
    key: Key,
    server: Server = LOCAL_SERVER,
    in_app: Annotated[
        bool | None, typer.Option("--app/--no-app", help="In the app, and in this command's list.")
    ] = None,
    mail: Annotated[bool | None, typer.Option("--mail/--no-mail", help="By email to your address.")] = None,
    as_json: AsJson = False,
) -> None:
    """Choose how you get notices of KIND."""
    with open_client(server, key) as client:
        present = next(choice for choice in client.notice_settings().choices if choice.kind is kind)
        new = NoticeChoice(
            kind=kind,
            app=present.app if in_app is None else in_app,
            mail=present.mail if mail is None else mail,
        )
        _print(client.choose_notices(new), as_json)


def _print(settings: NoticeSettings, as_json: bool) -> None:
    if print_json(settings, as_json):
        return
    table = TextTable("kind", "app", "email")
    for choice in settings.choices:
        table.add_row(choice.kind, "yes" if choice.app else "no", "yes" if choice.mail else "no")
    out.print(table)
    if settings.mail_problem:
        typer.echo(f"No emails: {settings.mail_problem}")
