"""The node's identity (``agent.json``) and its operator's settings (``settings.json``), both in the data folder.

The identity contains the node token, so only its owner can read it. Supervisors read it from the file; it never
appears in an environment or on a command line.
"""

from __future__ import annotations

from pathlib import Path

from trainwright.contracts.agent_protocol import Timers
from trainwright.contracts.base import Envelope
from trainwright.durable_files import write_durably

IDENTITY_NAME = "agent.json"
SETTINGS_NAME = "settings.json"


class Identity(Envelope):
    """What the server returned when the node joined."""

    api_url: str
    name: str
    node_id: str
    node_token: str
    hints_url: str | None = None
    timers: Timers


class Settings(Envelope):
    """The operator's choices. They come from the agent's command line; the API cannot change them."""

    cpu_slots: int = 2
    """Number of ranks that may run on the CPU at once; each gets cores ÷ cpu_slots threads."""

    cache_limit_bytes: int = 50 * 2**30
    """Size limit of the cache of token shards."""

    object_store: Path | None = None
    """Folder of the platform's object store, if it is on this disk: files are then linked instead of sent."""

    peer_address: str | None = None
    """Address at which other nodes reach this one; None for that of the route to the server."""

    location: str = ""
    """Such as a rack or a switch: the nodes of a run are chosen from as few locations as possible."""

    trainer_module: str = "trainwright_trainer"
    """Package that provides the `launch` and `main` modules to start."""


def load_identity(data: Path) -> Identity | None:
    """The node's identity, or None if it has not joined yet."""
    path = data / IDENTITY_NAME
    return Identity.model_validate_json(path.read_bytes()) if path.exists() else None


def save_identity(data: Path, identity: Identity) -> None:
    write_durably(data / IDENTITY_NAME, identity.model_dump_json(indent=1).encode())


def load_settings(data: Path) -> Settings:
    path = data / SETTINGS_NAME
    return Settings.model_validate_json(path.read_bytes()) if path.exists() else Settings()


def save_settings(data: Path, settings: Settings) -> None:
    write_durably(data / SETTINGS_NAME, settings.model_dump_json(indent=1).encode())
