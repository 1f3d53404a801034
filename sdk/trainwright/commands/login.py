"""Logging in: a person approves this program in a browser, and it stores the API key that it gets."""

from __future__ import annotations

import platform
import time
from typing import Annotated

import httpx
import typer

from trainwright.client import Client
from trainwright.commands import stored_keys
from trainwright.commands.key_lifetime import DEFAULT_DAYS, MAX_DAYS
from trainwright.commands.terminal import LOCAL_SERVER, Server, print_error, reported_errors
from trainwright.contracts.api.device import DeviceLogin
from trainwright.contracts.api.people import CreatedKey, KeyScope
from trainwright.transport.errors import ApiError
from trainwright.transport.responses import is_temporary

PENDING, SLOW_DOWN = "authorization_pending", "slow_down"
SLOWER_SECONDS = 5


def login(
    server: Server = LOCAL_SERVER,
    name: Annotated[
        str | None, typer.Option(help="Name of the key. The default names this machine.", show_default=False)
    ] = None,
    scope: Annotated[
        KeyScope,
        typer.Option(
            help="read: what viewers may do; submit: what editors may do; manage: everything you may do."
        ),
    ] = KeyScope.MANAGE,
    days: Annotated[
        int, typer.Option(min=1, max=MAX_DAYS, help="Days until the key expires.")
    ] = DEFAULT_DAYS,
) -> None:
    """Log in: approve this program in a browser where you are signed in, on any device. Its key is stored for all commands."""
    client_name = name or f"trainwright on {platform.node() or 'an unnamed machine'}"[:80]
    with reported_errors(server), Client(server) as client:
        asked = client.start_device_login(client_name, scope, days)
        typer.echo(
            f"Open {asked.verification_uri} in a browser where you are signed in, and enter the code\n"
        )
        typer.echo(
            f"    {asked.user_code}\n\nor open {asked.verification_uri_complete} and compare the code. Waiting…"
        )
        created = _wait_for_key(client, asked)
    with reported_errors(server), Client(server, created.secret) as client:
        me = client.me()
        earlier = stored_keys.key_of(server)
        stored_keys.store(server, created.secret)
        if earlier is not None:
            _revoke(server, earlier)
        expiry = "" if created.expires is None else f" and expires on {created.expires.astimezone():%Y-%m-%d}"
        typer.echo(
            f"You are logged in to {server} as {me.name} <{me.email}>. The key is in {stored_keys.path()}{expiry}."
        )


def logout(server: Server = LOCAL_SERVER) -> None:
    """Log out: revoke the stored key of the server, and delete it from this machine."""
    key = stored_keys.key_of(server)
    if key is None:
        print_error(f"You are not logged in to {server}: this machine stores no key for it.")
        raise typer.Exit(1)
    with reported_errors(server):
        _revoke(server, key)
    stored_keys.remove(server)
    typer.echo(f"You are logged out of {server}.")


def _wait_for_key(client: Client, asked: DeviceLogin) -> CreatedKey:
    """Poll until the person decides or the code expires. A server that restarts meanwhile does no harm.

    Raises:
        TimeoutError: the server did not respond until the code had expired.
    """
    interval_seconds = asked.interval
    expires_at = time.monotonic() + asked.expires_in
    while True:
        time.sleep(interval_seconds)
        try:
            return client.redeem_device_code(asked.device_code)
        except (httpx.TransportError, ApiError) as error:
            code = error.code if isinstance(error, ApiError) else ""
            if code == SLOW_DOWN:
                interval_seconds += SLOWER_SECONDS
            elif code != PENDING and not is_temporary(error):
                raise
            if time.monotonic() > expires_at:
                raise TimeoutError("The code has expired. Run `trainwright login` again.") from error


def _revoke(server: str, key: str) -> None:
    """Revoke a key, unless it is invalid already."""
    with Client(server, key) as client:
        try:
            client.revoke_used_key()
        except ApiError as error:
            if error.status != httpx.codes.UNAUTHORIZED:
                raise
