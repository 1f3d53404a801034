"""The data folder of a platform on one machine: database, objects, secrets, logs and the agent's workspace.

A lock file guards it, so two platforms never share a folder.
"""

from __future__ import annotations

import fcntl
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from trainwright.durable_files import write_durably
from trainwright_backend.core.settings import setting_variables

SECRETS_FILE = "secrets.json"
VARIABLES_FILE = "environment.json"
ADDRESS_FILE = "address"
"""What an older version wrote instead: only the public address."""
PARTS_FILE = "parts.json"


class FolderInUseError(RuntimeError):
    """Another platform uses the data folder."""


class PlatformError(RuntimeError):
    """A process of the platform did not start; the message ends with its log."""


@dataclass(frozen=True)
class DataFolder:
    """A locked data folder. The lock ends with the process, or with `release`."""

    path: Path
    lock: IO[str]

    @classmethod
    def acquire(cls, path: Path) -> Self:
        """Lock ``path``, and create it with mode 0700 if it is missing.

        Raises:
            FolderInUseError: another process has locked it.
        """
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o700)
        lock = (path / "lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.close()
            raise FolderInUseError(f"{path} is in use by another Trainwright on this machine") from error
        return cls(path.resolve(), lock)

    def secret(self, name: str) -> str:
        """A secret that is generated once per folder and kept in a file with mode 0600."""
        file = self.path / SECRETS_FILE
        known: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
        if name not in known:
            known[name] = secrets.token_urlsafe(48)
            write_private_file(file, json.dumps(known))
        return known[name]

    def release(self) -> None:
        self.lock.close()


def folder_settings(folder: Path) -> dict[str, Any]:
    """The settings of the platform whose data folder is ``folder``, whether it is running or not.

    Raises:
        PlatformError: no platform was ever started there.
    """
    try:
        secret = json.loads((folder / SECRETS_FILE).read_text())["secret_key"]
    except (OSError, ValueError, KeyError) as error:
        raise PlatformError(f"{folder} is not the data folder of a platform on this machine") from error
    return _address(folder) | {
        "data_dir": folder.absolute(),
        "object_store_url": None,
        "object_store_dir": folder.absolute() / "objects",
        "secret_key": secret,
    }


def store_server_variables(folder: Path, environment: Mapping[str, str]) -> None:
    """Store the settings of a server for the commands that report about it, which run in another environment."""
    write_private_file(folder / VARIABLES_FILE, json.dumps(setting_variables(environment)))


def server_variables(folder: Path) -> dict[str, str] | None:
    """The settings of the server that `up` last started in ``folder``, as variables of its environment.

    Returns:
        None if an older version started it, which did not store them.
    """
    file = folder / VARIABLES_FILE
    if not file.exists():
        return None
    stored: dict[str, str] = json.loads(file.read_text())
    return stored | folder_variables(folder.absolute())


def folder_variables(folder: Path) -> dict[str, str]:
    """The variables that depend on where the data folder is. It can be moved."""
    return {
        "TRAINWRIGHT_DATA_DIR": str(folder),
        "TRAINWRIGHT_OBJECT_STORE_URL": "",
        "TRAINWRIGHT_OBJECT_STORE_DIR": str(folder / "objects"),
        "TRAINWRIGHT_PARTS_FILE": str(folder / PARTS_FILE),
    }


def _address(folder: Path) -> dict[str, str]:
    variables = server_variables(folder)
    if variables is not None:
        return {"public_url": variables["TRAINWRIGHT_PUBLIC_URL"]}
    older = folder / ADDRESS_FILE
    return {"public_url": older.read_text()} if older.exists() else {}


def write_private_file(file: Path, text: str) -> None:
    """Replace ``file`` by one that only its owner can read."""
    write_durably(file, text.encode())
