"""Settings, read from the environment (``TRAINWRIGHT_…``; nested ones with ``__``, lists as JSON).

The secret key has no default: a platform that started with a known one would hand out forgeable links. Everything
else has a default that serves one machine.
"""

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from trainwright.contracts.agent_protocol import Timers

SHORTEST_SECRET = 32
ENVIRONMENT_PREFIX = "TRAINWRIGHT_"


class Settings(BaseSettings):
    """What an operator decides. See docs/operations.md."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX,
        env_nested_delimiter="__",
        use_attribute_docstrings=True,
        extra="ignore",
        frozen=True,
    )

    secret_key: Annotated[SecretStr, Field(min_length=SHORTEST_SECRET)]
    """Signs links and keys the hashes of sessions and API keys; at least 32 characters, kept secret, never changed."""

    data_dir: Path = Path(".trainwright")
    """Folder of the embedded database and the local object store."""

    database_url: str | None = None
    """SQLAlchemy URL (`postgresql+psycopg://…`); SQLite in `data_dir` when empty."""

    object_store_dir: Path | None = None
    """Folder of the object store; `objects` in `data_dir` when empty."""

    public_url: str = "http://127.0.0.1:8000"
    """Address at which people reach the platform; links begin with it."""

    allowed_hosts: list[str] = ["localhost", "127.0.0.1", "[::1]"]
    """Host names under which the API answers, besides that of `public_url`; `*` for any."""

    hints_url: str | None = None
    """Celery broker for hints to agents; without it agents learn of runs by their heartbeats."""

    agents_hints_url: str | None = None
    """The same broker as agents are told to reach it; `hints_url` when empty."""

    tasks_url: str | None = None
    """Celery broker for the backend's own workers. Agents must not reach it: who can write to it can run its tasks."""

    timers: Timers = Timers()
    """The clocks of leases and heartbeats."""

    control_loop: bool = True
    """Run the control loop in this API process; one of all processes leads."""

    default_quota: int = Field(default=8, ge=0)
    """Slots of each kind of device that a new team may occupy at once."""

    default_storage_gib: int = Field(default=1_024, ge=0, le=2**30)
    """GiB of uploaded files that a new team may store."""

    largest_upload_gib: int = Field(default=1_024, ge=1, le=2**30)
    """GiB that one uploaded file may have."""

    log_level: str = "INFO"
    """Least level that is logged."""

    log_json: bool = True
    """Log one JSON object a line; otherwise lines for people."""

    @property
    def resolved_database_url(self) -> str:
        """The database in force."""
        return self.database_url or f"sqlite:///{self.data_dir.absolute() / 'trainwright.sqlite3'}"

    @property
    def resolved_object_store_dir(self) -> Path:
        """The folder of the object store in force."""
        return self.object_store_dir or self.data_dir.absolute() / "objects"

    @property
    def resolved_agents_hints_url(self) -> str | None:
        """What agents are told about the hints broker."""
        return self.agents_hints_url or self.hints_url

    @property
    def https(self) -> bool:
        """People reach the platform by https, so cookies may be bound to it."""
        return urlsplit(self.public_url).scheme == "https"

    @property
    def all_hosts(self) -> frozenset[str]:
        """Host names, without port, under which the API answers."""
        own = urlsplit(self.public_url).hostname or ""
        return frozenset({*self.allowed_hosts, f"[{own}]" if ":" in own else own})
