"""Who this node is (``agent.json``) and how its operator wants it to work (``settings.json``).

Both lie in the data folder. The identity holds the node token, so it is readable by its owner alone; supervisors
read it there, and it never enters an environment or a command line.
"""

from __future__ import annotations

from pathlib import Path

from trainwright.contracts.agent_protocol import Timers
from trainwright.contracts.base import Envelope
from trainwright_agent.files import write_durably

IDENTITY_NAME = "agent.json"
SETTINGS_NAME = "settings.json"


class Identity(Envelope):
    """What joining gave the node."""

    api_url: str
    name: str
    node_id: str
    node_token: str
    hints_url: str | None = None
    timers: Timers


class Settings(Envelope):
    """The operator's choices. They come from the agent's command line alone: nothing the API says changes them."""

    cpu_slots: int = 2
    """Ranks that may run on the CPU at once; each gets cores ÷ cpu_slots threads."""

    cache_limit_bytes: int = 50 * 2**30
    """Most that cached token shards may occupy."""

    object_store: Path | None = None
    """Folder of the platform's object store when it is on this disk: files are linked instead of sent."""

    trainer_module: str = "trainwright_trainer"
    """Package whose `launch` and `main` modules are started."""


def load_identity(data: Path) -> Identity | None:
    """The node's identity; None when it has not joined yet."""
    path = data / IDENTITY_NAME
    return Identity.model_validate_json(path.read_bytes()) if path.exists() else None


def save_identity(data: Path, identity: Identity) -> None:
    write_durably(data / IDENTITY_NAME, identity.model_dump_json(indent=1).encode())


def load_settings(data: Path) -> Settings:
    path = data / SETTINGS_NAME
    return Settings.model_validate_json(path.read_bytes()) if path.exists() else Settings()


def save_settings(data: Path, settings: Settings) -> None:
    write_durably(data / SETTINGS_NAME, settings.model_dump_json(indent=1).encode())
