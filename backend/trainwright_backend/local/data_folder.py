"""The data folder of a platform on one machine: database, objects, secrets, logs and the agent's workspace.

A lock file guards it, so two platforms never share a folder.
"""

from __future__ import annotations

import fcntl
import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from trainwright.durable_files import write_durably

SECRETS_FILE = "secrets.json"
ADDRESS_FILE = "address"
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
    address = folder / ADDRESS_FILE
    known = (
        {"public_url": address.read_text()} if address.exists() else {}
    )  # an older version's folder has none
    return known | {
        "data_dir": folder.absolute(),
        "object_store_url": None,
        "object_store_dir": folder.absolute() / "objects",
        "secret_key": secret,
    }


def write_private_file(file: Path, text: str) -> None:
    """Replace ``file`` by one that only its owner can read."""
    write_durably(file, text.encode())
