"""The HTTP types that people's tools see: shared by the backend, which writes them, and the client, which reads them.

Routes (all below ``/api/v1``; ``T`` = ``/teams/{team}``; ids are opaque strings; errors are RFC 9457 bodies, `ErrorBody`):

======  ==========================================  ============================================================
POST    /auth/link                                  OneTimeLink → Me; sets the session cookie. First owner,
                                                    invitation or sign-in, as the link's purpose says
GET     /auth/link/{token}                          LinkInfo: what the link is for, before it is used
POST    /auth/sign-in                               SignIn → Me; sets the session cookie
POST    /auth/sign-out                              204
GET     /me                                         Me
GET POST /me/keys · DELETE /me/keys/{key}            API keys (ApiKey; NewKey → CreatedKey, the secret shown once)
GET POST /teams                                     Team (POST: site admin, NewTeam)
GET     T                                           Team with its quota
GET     T/members · POST T/invitations              Member; NewInvitation → Invitation with a one-time link
PUT     T/quota/{device}                            QuotaLimit (site admin)
GET POST T/datasets                                 Page[Dataset]; POST multipart: field `name`, then files
GET DELETE T/datasets/{dataset}                     Dataset with versions and preparations
POST    T/datasets/{dataset}/versions               multipart files → Dataset
GET     T/datasets/{dataset}/versions/{n}/rejected  list[RejectedDocument]
POST    T/runs                                      RunSpec (+ header Idempotency-Key) → 201 Run
POST    T/runs/validate                             any JSON → Verdicts: problems by field, or the resolved spec
GET     T/runs?state&limit&cursor                   Page[Run], newest first
GET DELETE T/runs/{run}                             Run
POST    T/runs/{run}/cancel                         202 Run
GET     T/runs/{run}/events?after                   list[RunEvent] by sequence number
GET     T/runs/{run}/events/stream                  SSE, id = sequence number, data = RunEvent
GET     T/runs/{run}/metrics?names&after_step&points  Metrics; without `names` all series; `points` down-samples
GET     T/runs/{run}/metrics/stream                 SSE, id = `attempt:offset`: event `points` data MetricPoints,
                                                    event `rewind` data {"step": s}: forget what lies after s
GET     T/runs/{run}/logs                           list[LogFile]
GET     T/runs/{run}/logs/{attempt}/{file}?offset&limit   LogText
GET     T/runs/{run}/checkpoints                    list[Checkpoint]
GET     T/runs/{run}/checkpoints/{id}/files         list[CheckpointFile] with signed links
GET     T/runs/{run}/checkpoints/{id}/archive       one streamed .tar
GET     /spec                                       SpecInfo: JSON Schema of RunSpec and the presets
GET     /nodes · DELETE /nodes/{node}               Node (site admin; the list without tokens)
POST    /join-tokens                                NewJoinToken → JoinToken (site admin)
GET PUT /blobs/{signed}                             bytes
GET     /health                                     Health
======  ==========================================  ============================================================
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Generic, TypeVar

from pydantic import AwareDatetime, Field

from trainwright.contracts.agent_protocol import Inventory
from trainwright.contracts.base import Envelope, Problem, Strict
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.run_spec import ModelSpec, RunSpec, TokenizerSpec
from trainwright.contracts.run_state import RunState, Verdict

Item = TypeVar("Item")

SLUG_PATTERN = r"^[a-z][a-z0-9-]{1,38}[a-z0-9]$"


class Page(Envelope, Generic[Item]):
    """A stretch of a list."""

    items: list[Item]
    next_cursor: str | None = None
    """Opaque; pass it as `cursor` for the next page. Empty: this was the last."""


class ErrorBody(Envelope):
    """An error (RFC 9457, `application/problem+json`)."""

    type: str = "about:blank"
    title: str
    status: int
    code: str
    """Fixed word for programs, such as `quota_exceeded`."""

    detail: str
    """What happened, why, and what to do."""

    request_id: str = ""
    errors: list[Problem] = []
    """For refused input: one entry a field."""


# --- people, teams, quota


class Role(StrEnum):
    OWNER = "owner"
    EDITOR = "editor"
    VIEWER = "viewer"


class SignIn(Strict):
    email: str = Field(max_length=254)
    password: str = Field(max_length=1_024)


class LinkPurpose(StrEnum):
    FIRST_OWNER = "first_owner"
    INVITATION = "invitation"
    SIGN_IN = "sign_in"


class LinkInfo(Envelope):
    """What a one-time link will do."""

    purpose: LinkPurpose
    email: str | None = None
    team: str | None = None
    needs_account: bool
    """The link asks for name, e-mail and a password."""


class OneTimeLink(Strict):
    """Uses a one-time link. The account's fields are needed where `LinkInfo.needs_account` says so."""

    token: str
    name: str | None = Field(default=None, min_length=1, max_length=80)
    email: str | None = Field(default=None, min_length=3, max_length=254, pattern=r"^[^@\s]+@[^@\s]+$")
    password: str | None = Field(default=None, min_length=10, max_length=1_024)
    team: str | None = Field(default=None, pattern=SLUG_PATTERN)
    """Slug of the first team, for the first owner."""


class Membership(Envelope):
    slug: str
    name: str
    role: Role


class Me(Envelope):
    id: str
    name: str
    email: str
    site_admin: bool
    teams: list[Membership]


class ApiKey(Envelope):
    id: str
    name: str
    prefix: str
    created: AwareDatetime
    last_used: AwareDatetime | None


class NewKey(Strict):
    name: str = Field(min_length=1, max_length=80)


class CreatedKey(ApiKey):
    secret: str
    """The key itself; it is never shown again."""


class NewTeam(Strict):
    slug: str = Field(pattern=SLUG_PATTERN)
    name: str = Field(min_length=1, max_length=80)


class Quota(Envelope):
    """Slots of one kind of device that a team may occupy at once."""

    device: str
    limit: int
    used: int


class QuotaLimit(Strict):
    limit: int = Field(ge=0, le=1_000_000)


class Team(Envelope):
    slug: str
    name: str
    quota: list[Quota] = []


class Member(Envelope):
    id: str
    name: str
    email: str
    role: Role


class NewInvitation(Strict):
    email: str = Field(min_length=3, max_length=254, pattern=r"^[^@\s]+@[^@\s]+$")
    role: Role


class Invitation(Envelope):
    email: str
    role: Role
    link: str
    """One-time address to send to the person; shown once."""

    expires: AwareDatetime


# --- datasets


class PreparationState(StrEnum):
    WAITING = "waiting"
    WORKING = "working"
    READY = "ready"
    FAILED = "failed"


class Preparation(Envelope):
    """The tokens of a version for one tokenizer and split."""

    id: str
    state: PreparationState
    tokenizer: TokenizerSpec
    validation_fraction: float
    shards_done: int
    shards_total: int | None
    documents: int | None = None
    rejected: int | None = None
    train_tokens: int | None = None
    validation_tokens: int | None = None
    error: str | None = None


class DatasetFile(Envelope):
    name: str
    bytes: int
    digest: str


class DatasetVersion(Envelope):
    number: int
    created: AwareDatetime
    bytes: int
    files: list[DatasetFile]
    preparations: list[Preparation]


class Dataset(Envelope):
    id: str
    name: str
    created: AwareDatetime
    created_by: str | None
    versions: list[DatasetVersion]
    """Newest first. In lists, only the newest."""


class RejectedDocument(Envelope):
    """A document that could not be read."""

    file: str
    line: int
    reason: str


# --- runs


class RunSummary(Envelope):
    """Last known numbers of a run."""

    step: int = 0
    attempt: int = 0
    values: dict[str, float] = {}
    """Last value of each series, such as `loss` or `mfu`."""

    spark: list[float] = []
    """Up to 32 values of the loss over the whole run, oldest first."""

    peak_name: str | None = None
    """What MFU is a fraction of."""

    bf16_peak_name: str | None = None
    """In an FP8 run, what `bf16_mfu` is a fraction of."""


class Run(Envelope):
    id: str
    name: str
    state: RunState
    verdict: Verdict | None = None
    """What a stopping run is to become."""

    sentence: str
    """The state's reason in words: why it waits, what it does, how it ended."""

    reason: EndCode | None = None
    suspect_seconds: float | None = None
    """Silence of the run's node, when it is longer than 30 s: shown, not acted upon."""

    spec: RunSpec
    attempt: int
    summary: RunSummary
    created: AwareDatetime
    created_by: str | None
    started: AwareDatetime | None = None
    ended: AwareDatetime | None = None
    retry_at: AwareDatetime | None = None
    nodes: list[str] = []


class Verdicts(Envelope):
    """Answer to a validation."""

    valid: bool
    problems: list[Problem] = []
    spec: RunSpec | None = None
    """The spec as it would be stored, with what is resolved at submission filled in."""

    parameters: int | None = None
    """Of the model, embeddings included."""


class RunEvent(Envelope):
    """Something that happened to a run, in order."""

    sequence: int
    time: AwareDatetime
    type: str
    """`state` for a move, else the type of the trainer's event."""

    state: RunState | None = None
    attempt: int | None = None
    step: int | None = None
    message: str


class Series(Envelope):
    """One metric of a run over its steps."""

    name: str
    unit: str
    steps: list[int]
    values: list[float]


class Metrics(Envelope):
    series: list[Series]
    attempts: list[AttemptMark]
    cursor: str
    """Pass as Last-Event-ID to the stream to go on from here."""


class AttemptMark(Envelope):
    """Where an attempt begins on the step axis, for charts."""

    attempt: int
    resume_step: int
    started: AwareDatetime | None
    ended: AwareDatetime | None
    reason: EndCode | None


class MetricPoints(Envelope):
    attempt: int
    steps: list[int]
    series: dict[str, list[float]]


class LogFile(Envelope):
    attempt: int
    file: str
    bytes: int


class LogText(Envelope):
    text: str
    offset: int
    next_offset: int
    end: bool
    """No more is stored beyond `next_offset` now."""


class Checkpoint(Envelope):
    id: str
    kind: CheckpointKind
    step: int
    attempt: int
    bytes: int
    created: AwareDatetime
    valid: bool


class CheckpointFile(Envelope):
    name: str
    bytes: int
    digest: str
    url: str
    """Signed link, relative to the API's address when it begins with `/`; good for an hour."""


class SpecInfo(Envelope):
    run_spec: dict[str, Any]
    """JSON Schema of RunSpec."""

    presets: dict[str, ModelSpec]


# --- site


class Node(Envelope):
    id: str
    name: str
    online: bool
    last_heartbeat: AwareDatetime | None
    inventory: Inventory
    slots: dict[str, int]
    """Slots by device."""

    slots_free: dict[str, int]


class NewJoinToken(Strict):
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    """Name of the node that may join with it."""


class JoinToken(Envelope):
    token: str
    name: str
    expires: AwareDatetime


class Health(Envelope):
    status: str
    version: str


Metrics.model_rebuild()
