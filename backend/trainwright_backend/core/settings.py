"""Settings, read from the environment (``TRAINWRIGHT_…``, nested ones with ``__``, lists as JSON).

The secret key has no default: a platform with a known key would issue links that anyone can forge. All other defaults fit
a single machine.
"""

import re
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from trainwright.contracts.agent_protocol import Timers
from trainwright.contracts.base import problems
from trainwright_backend.core.oidc_settings import OidcSettings

MIN_SECRET_LENGTH = 32
ENVIRONMENT_PREFIX = "TRAINWRIGHT_"
_BUCKET_URL = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9_][A-Za-z0-9._-]*)*/?")


class Settings(OidcSettings):
    """The operator's settings. See docs/operations.md."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX,
        env_nested_delimiter="__",
        extra="ignore",
        frozen=True,
    )

    secret_key: Annotated[SecretStr, Field(min_length=MIN_SECRET_LENGTH)]
    """Signs links and keys the hashes of sessions and API keys; at least 32 characters, kept secret, never changed."""

    data_dir: Path = Path(".trainwright")
    """Folder of the embedded database and the local object store."""

    database_url: str | None = None
    """SQLAlchemy URL (`postgresql+psycopg://…`); SQLite in `data_dir` when empty."""

    object_store_dir: Path | None = None
    """Folder of the object store; `objects` in `data_dir` when empty."""

    object_store_url: str | None = None
    """Bucket of an S3-compatible object store, `s3://bucket` or `s3://bucket/folder`; a local folder when empty."""

    s3_endpoint: str | None = None
    """Address of the S3-compatible store; Amazon's when empty."""

    s3_public_endpoint: str | None = None
    """Its address for users and nodes, who download from it; `s3_endpoint` when empty."""

    s3_region: str = "us-east-1"
    """Region of the bucket."""

    s3_access_key: SecretStr | None = None
    """Access key of the store; when empty, the credentials that Amazon's tools would find."""

    s3_secret_key: SecretStr | None = None
    """Secret of the access key."""

    object_cache_gib: int = Field(default=20, ge=1)
    """GiB on this machine's disk, in `data_dir`, for copies of objects in a bucket that a server or worker reads."""

    public_url: str = "http://127.0.0.1:8000"
    """Address at which users reach the platform; links start with it."""

    allowed_hosts: list[str] = ["localhost", "127.0.0.1", "[::1]"]
    """Host names that the API serves besides that of `public_url`; `*` for any."""

    hints_url: str | None = None
    """Celery broker for hints to agents; without it, agents learn of runs from their heartbeats."""

    agents_hints_url: str | None = None
    """The URL of the same broker for agents; `hints_url` when empty."""

    tasks_url: str | None = None
    """Celery broker for the backend's own workers. Agents must not reach it: a writer can run its tasks."""

    smtp_url: SecretStr | None = None
    """Server that sends mail: `smtp://user:password@host:587` or `smtps://…:465`. When empty, users get sign-in links from
    the operator. A password is sent only over TLS (STARTTLS with `smtp`), except to this machine."""

    mail_from: str | None = None
    """Sender address of mail. When empty, `trainwright@` and the host of `public_url`."""

    webhook_networks: list[str] = []
    """Networks, such as `10.0.0.0/8`, that webhooks may reach besides public addresses."""

    metrics_token: Annotated[SecretStr, Field(min_length=MIN_SECRET_LENGTH)] | None = None
    """Bearer token with which Prometheus may read `/metrics`; at least 32 characters. When empty, nobody may."""

    timers: Timers = Timers()
    """The intervals of leases and heartbeats."""

    parts_file: Path | None = None
    """File in which `up` names the parts that do not work, for `/health`."""

    control_loop: bool = True
    """Run the control loop in this API process; one process of all is the leader."""

    default_quota: int = Field(default=8, ge=0)
    """Slots of each kind of device that a new team can use at once."""

    min_run_minutes: float = Field(default=10.0, ge=0)
    """Minutes from the start of an attempt for which a run that borrows slots keeps them."""

    default_storage_gib: int = Field(default=1_024, ge=0, le=2**30)
    """GiB of uploaded files that a new team can store."""

    largest_upload_gib: int = Field(default=1_024, ge=1, le=2**30)
    """Size limit of one uploaded file, in GiB."""

    log_level: str = "INFO"
    """Lowest level that is logged."""

    log_json: bool = True
    """Log one JSON object per line; otherwise readable lines."""

    @field_validator("smtp_url")
    @classmethod
    def _names_a_server(cls, given: SecretStr | None) -> SecretStr | None:
        parts = urlsplit("" if given is None else given.get_secret_value())
        if given is not None and (parts.scheme not in ("smtp", "smtps") or not parts.hostname):
            raise ValueError(
                "write smtp://host:587 or smtps://host:465, with user:password@ before the host if needed"
            )
        return given

    @field_validator(
        "s3_endpoint", "s3_public_endpoint", "s3_access_key", "s3_secret_key", "metrics_token", mode="before"
    )
    @classmethod
    def _empty_is_none(cls, given: object) -> object:
        return None if given == "" else given

    @field_validator("object_store_url")
    @classmethod
    def _names_a_bucket(cls, given: str | None) -> str | None:
        if given and not _BUCKET_URL.fullmatch(given):
            raise ValueError(f"{given!r} is not a bucket: write s3://bucket or s3://bucket/folder")
        return given or None

    @field_validator("webhook_networks")
    @classmethod
    def _names_networks(cls, given: list[str]) -> list[str]:
        for network in given:
            ip_network(network)
        return given

    @property
    def allowed_webhook_networks(self) -> list[IPv4Network | IPv6Network]:
        """The networks that webhooks may reach besides public addresses."""
        return [ip_network(network) for network in self.webhook_networks]

    @property
    def resolved_mail_from(self) -> str:
        """The effective sender of mail."""
        return self.mail_from or f"trainwright@{urlsplit(self.public_url).hostname or 'localhost'}"

    @property
    def resolved_database_url(self) -> str:
        """The effective database URL."""
        return self.database_url or f"sqlite:///{self.data_dir.absolute() / 'trainwright.sqlite3'}"

    @property
    def resolved_object_store_dir(self) -> Path:
        """The effective folder of the object store."""
        return self.object_store_dir or self.data_dir.absolute() / "objects"

    @property
    def resolved_agents_hints_url(self) -> str | None:
        """The hints broker's URL for agents."""
        return self.agents_hints_url or self.hints_url

    @property
    def https(self) -> bool:
        """Whether users reach the platform over https, so that cookies can be bound to it."""
        return urlsplit(self.public_url).scheme == "https"

    @property
    def all_hosts(self) -> frozenset[str]:
        """Host names, without port, that the API serves."""
        own = urlsplit(self.public_url).hostname or ""
        return frozenset({*self.allowed_hosts, f"[{own}]" if ":" in own else own})


def setting_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Those of the variables that are settings. Others have the prefix too, such as a user's API key."""
    names = {f"{ENVIRONMENT_PREFIX}{name}".upper() for name in Settings.model_fields}
    return {name: value for name, value in variables.items() if name.upper().split("__")[0] in names}


def settings_from(variables: Mapping[str, str]) -> Settings:
    """The settings of a process whose environment has these variables, instead of those of this process.

    Raises:
        ValidationError: a variable is invalid.
    """

    class FromVariables(Settings):
        @classmethod
        def settings_customise_sources(
            cls, settings_cls: type[BaseSettings], *_: object, **__: object
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            source = EnvSettingsSource(settings_cls)
            source.env_vars = {name.lower(): value for name, value in variables.items()}
            return (source,)

    return FromVariables()


def describe_problems(error: ValidationError) -> str:
    """What is wrong with settings, one line each, without their values, which may be secret."""
    found = problems(error, Settings)
    return "\n".join(
        f"{ENVIRONMENT_PREFIX}{problem.field.upper()}: {problem.message}"
        if problem.field
        else problem.message
        for problem in found
    )
