"""The file in which `trainwright login` stores API keys, by server. Only its owner can read it."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import typer
from pydantic import BaseModel, ValidationError


class StoredKeys(BaseModel):
    """The content of the file."""

    server: str | None = None
    """Server of the last login. Commands use it if none is named."""

    keys: dict[str, str] = {}
    """API keys by server."""


def path() -> Path:
    """Where the file is: in the folder that the system has for settings of programs."""
    return Path(typer.get_app_dir("trainwright")) / "keys.json"


def default_server() -> str | None:
    """The server of the last login, unless its key was removed."""
    return _read().server


def key_of(server: str) -> str | None:
    return _read().keys.get(_normal(server))


def store(server: str, key: str) -> None:
    """Store a key, and make its server the default."""
    kept = _read()
    _write(StoredKeys(server=_normal(server), keys=kept.keys | {_normal(server): key}))


def remove(server: str) -> None:
    """Forget the key of a server."""
    kept = _read()
    keys = {address: key for address, key in kept.keys.items() if address != _normal(server)}
    _write(StoredKeys(server=kept.server if kept.server in keys else None, keys=keys))


def _read() -> StoredKeys:
    try:
        return StoredKeys.model_validate_json(path().read_bytes())
    except FileNotFoundError:
        return StoredKeys()
    except ValidationError:
        typer.echo(f"{path()} is damaged: delete it, and run `trainwright login` again.", err=True)
        raise typer.Exit(1) from None


def _write(kept: StoredKeys) -> None:
    target = path()
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(kept.model_dump_json(indent=2) + "\n")
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _normal(server: str) -> str:
    return server.rstrip("/")
