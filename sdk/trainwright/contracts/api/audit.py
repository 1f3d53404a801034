"""The audit log: who changed what, from where."""

from __future__ import annotations

from pydantic import AwareDatetime

from trainwright.contracts.base import Envelope


class AuditObject(Envelope):
    """What an entry is about."""

    kind: str
    """`run`, `service account`"""

    id: str


class SentencePart(Envelope):
    """Words, or the name of an object, or its id if it has none."""

    text: str
    object: AuditObject | None = None


class AuditEntry(Envelope):
    """A change that a person made, or a failed sign-in. Entries are never changed or deleted."""

    sequence: int
    """Number of the entry within the team, from 1."""

    time: AwareDatetime
    user: str | None
    name: str
    """The person's name at that time."""

    via: str
    """`browser`, or the first characters of the API key."""

    key_name: str | None = None
    """Current name of that API key; null for a browser and once the key is deleted. Not in the export."""

    address: str
    """Network address of the client, as the server saw it."""

    action: str
    """Name of the operation in the OpenAPI document, such as `submit_run`; or `failed_sign_in`."""

    path: str
    """Path of the request, with the ids of what was changed."""

    details: str
    """The request's JSON, shortened, without passwords and tokens, and addresses without their paths."""

    names: dict[str, str] = {}
    """Current names of objects whose ids are in `path` and `details`, by id; without those that are deleted. Not in the export."""

    sentence: list[SentencePart] = []
    """What the entry did, in parts that spaces join: `Deleted checkpoint`, `step 40`, `of run`, `pilot`. Not in the export."""

    request_id: str
    hash: str
    """HMAC-SHA-256 of the entry and the hash before it, keyed by the server's secret. `trainwright-server audit verify` checks it."""
