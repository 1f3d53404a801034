"""Commands about the account of the key's owner."""

from __future__ import annotations

import typer

from trainwright.commands.terminal import (
    LOCAL_SERVER,
    AsJson,
    Key,
    Server,
    open_client,
    print_json,
    print_table,
    table_of,
)

app = typer.Typer(no_args_is_help=True, help="Show your account, and change your name or password.")


@app.command("show")
def show(key: Key, server: Server = LOCAL_SERVER, as_json: AsJson = False) -> None:
    """Show who you are, and your role in each of your teams."""
    with open_client(server, key) as client:
        me = client.me()
        if print_json(me, as_json):
            return
        typer.echo(f"{me.name} <{me.email}>{', site admin' if me.site_admin else ''}")
        if not me.email_verified:
            typer.echo("This address has not been confirmed. Run `trainwright account confirm`.")
        for team in me.teams:
            typer.echo(f"{team.slug}: {team.role}")


@app.command("rename")
def rename(name: str, key: Key, server: Server = LOCAL_SERVER, as_json: AsJson = False) -> None:
    """Change your name. Runs and datasets keep the name under which you created them."""
    with open_client(server, key) as client:
        changed = client.change_name(name)
        if print_json(changed, as_json):
            return
        typer.echo(f"Your name is now {changed.name}.")


@app.command("confirm")
def confirm(key: Key, server: Server = LOCAL_SERVER) -> None:
    """Request an email with a link that confirms your address. Open the link in a browser in which you are signed in."""
    with open_client(server, key) as client:
        email = client.me().email
        client.mail_sign_in_link(email)
        typer.echo(f"A link is on its way to {email}. Open it where you are signed in.")


@app.command("password")
def password(key: Key, server: Server = LOCAL_SERVER) -> None:
    """Change your password. It signs you out in all browsers; your API keys stay valid."""
    with open_client(server, key) as client:
        client.me()  # an invalid key is refused before anything is typed
        current = typer.prompt("Current password", hide_input=True)
        new = typer.prompt("New password", hide_input=True, confirmation_prompt="New password again")
        client.change_password(current, new)
        typer.echo("Your password was changed. Sign in again in your browsers.")


@app.command("identities")
def list_identities(key: Key, server: Server = LOCAL_SERVER, as_json: AsJson = False) -> None:
    """List your identities at the identity provider, which sign in to your account. Link them on the Settings page."""
    with open_client(server, key) as client:
        found = client.identities()
        if print_json(found, as_json):
            return
        table = table_of("issuer", "email", "last used")
        for item in found:
            table.add_row(item.id, item.issuer, item.email, f"{item.last_used.astimezone():%Y-%m-%d %H:%M}")
        print_table(table, empty="No identities.")


@app.command("unlink")
def unlink(identity: str, key: Key, server: Server = LOCAL_SERVER) -> None:
    """Unlink an identity from your account. Refused if you have no password, since you could no longer sign in."""
    with open_client(server, key) as client:
        client.unlink_identity(identity)


@app.command("delete")
def delete(key: Key, server: Server = LOCAL_SERVER) -> None:
    """Delete your account, with its API keys and memberships. Your runs and datasets stay in their teams."""
    with open_client(server, key) as client:
        email = client.me().email
        client.delete_account(typer.prompt(f"Password of {email}", hide_input=True))
        typer.echo("Your account was deleted.")
