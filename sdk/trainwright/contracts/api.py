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
PUT     T/storage                                   StorageLimit (site admin)
GET POST T/uploads                                  list[Upload]; POST: tus 1.0 creation (headers, 201 + Location)
HEAD PATCH DELETE T/uploads/{upload}                tus 1.0: offset, more bytes, termination; OPTIONS T/uploads
POST    T/uploads/preview                           PreviewRequest → Preview: formats, columns, first rows
GET POST T/datasets                                 Page[Dataset]; NewDataset (complete uploads) → 201 Dataset
GET DELETE T/datasets/{dataset}                     Dataset with versions and preparations
POST    T/datasets/{dataset}/versions               NewVersion → 201 Dataset
DELETE  T/datasets/{dataset}/versions/{n}           204; 409 names the live runs or mixtures that use it
GET     T/datasets/{dataset}/versions/{n}/documents?cursor&limit   Page[DocumentSample]
GET     T/datasets/{dataset}/versions/{n}/rejected  list[RejectedDocument]
POST    T/datasets/count                            CountRequest → RecipeCounts: what a recipe would keep
POST    T/datasets/{dataset}/preparations           NewPreparation → 202 Preparation (found, made or begun anew)
POST    T/datasets/{dataset}/preparations/{id}/cancel   Preparation; 409 names the runs that wait for it
GET POST T/tokenizers · DELETE T/tokenizers/{id}    Tokenizer; NewTokenizer (a complete upload) → 201
POST    T/runs                                      RunSpec (+ header Idempotency-Key) → 201 Run
POST    T/runs/validate                             any JSON → Verdicts: problems by field, or the resolved spec
GET     T/runs?state&q&by&sort&order&limit&cursor   Page[Run], newest first unless sorted otherwise
GET DELETE T/runs/{run}                             Run
POST    T/runs/{run}/cancel                         202 Run
GET     T/runs/{run}/events?after                   list[RunEvent] by sequence number
GET     T/runs/{run}/events/stream                  SSE, id = sequence number, data = RunEvent
GET     T/runs/{run}/metrics?names&after_step&to_step&points  Metrics; without `names` all series; `points`
                                                    down-samples the window after_step < step ≤ to_step
GET     T/runs/{run}/metrics/stream                 SSE, id = `attempt:offset`: event `points` data MetricPoints,
                                                    event `rewind` data {"step": s}: forget what lies after s
GET     T/runs/{run}/logs                           list[LogFile]
GET     T/runs/{run}/logs/{attempt}/{file}?offset&limit   LogText
GET     T/runs/{run}/logs/{attempt}/{file}/lines?first&limit   LogLines by line number
GET     T/runs/{run}/logs/{attempt}/{file}/search?q&after_line&limit   LogMatches
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
from typing import Any, Generic, Literal, TypeVar

from pydantic import AwareDatetime, Field

from trainwright.contracts.agent_protocol import Inventory
from trainwright.contracts.base import Envelope, Problem, Strict
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright.contracts.data_spec import TokenizerSpec
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.parallelism_spec import PipelineSchedule
from trainwright.contracts.recipe import Compression, FileFormat, Recipe
from trainwright.contracts.run_spec import Name, RunSpec
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


class StorageUse(Envelope):
    """What a team's uploaded files occupy, unfinished uploads by their announced size; the same bytes count once."""

    limit_bytes: int
    used_bytes: int


class StorageLimit(Strict):
    limit_bytes: int = Field(ge=0, le=2**60)


class Team(Envelope):
    slug: str
    name: str
    quota: list[Quota] = []
    storage: StorageUse


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


# --- uploads


class Upload(Envelope):
    """A file on its way in, or complete and not used yet."""

    id: str
    file_name: str
    """Name within the upload, folders included: `train/a.jsonl`."""

    bytes: int
    """Announced size."""

    offset: int
    """Bytes that are safely stored."""

    complete: bool
    digest: str | None = None
    """SHA-256 of a complete file, in hex."""

    created: AwareDatetime
    created_by: str | None = None
    """Name of who sends it; nobody once the account is gone."""

    mine: bool = True
    """Whether that is who asks."""

    expires: AwareDatetime
    """When it is dropped unless bytes arrive or a dataset takes it."""


class PreviewRequest(Strict):
    uploads: list[str] = Field(min_length=1, max_length=1_000)
    """Ids of complete uploads."""

    recipe: Recipe = Recipe()
    """How the first rows are shown as documents."""


class Column(Envelope):
    """A key of `.jsonl` objects, or a column of a table."""

    name: str
    type: str
    """`text`, `messages` (a chat), or the format's own word for what cannot be a document."""

    usable: bool


class PreviewFile(Envelope):
    upload: str
    name: str
    format: FileFormat | None
    compression: Compression = Compression.NONE
    columns: list[Column] = []
    """The first 1,000."""

    field: str | None = None
    """The key or column that will be read, when there are any."""

    documents: list[str] = []
    """The first documents, each cut after 2,000 characters."""

    rejected: list[RejectedDocument] = []
    """Of the first rows."""

    problem: str | None = None
    """Why the file cannot be read at all, and what to do."""


class Preview(Envelope):
    """What files hold, by their first rows."""

    files: list[PreviewFile]
    recipe: Recipe
    """As asked, with what can be chosen for all files filled in."""


# --- datasets


class PreparationState(StrEnum):
    WAITING = "waiting"
    WORKING = "working"
    READY = "ready"
    FAILED = "failed"
    CANCELLED = "cancelled"


class HistogramBin(Envelope):
    """Documents of up to ``upto`` characters or tokens, and more than the bin before has."""

    upto: int
    documents: int


class Preparation(Envelope):
    """The tokens of a version for one tokenizer and split."""

    id: str
    state: PreparationState
    tokenizer: TokenizerSpec
    validation_fraction: float
    shards_done: int
    shards_total: int | None
    tokens_done: int = 0
    documents: int | None = None
    rejected: int | None = None
    train_tokens: int | None = None
    validation_tokens: int | None = None
    validation_from_tail: bool = False
    """No document fell into the validation split, so the last 1 % of tokens is it."""

    lengths: list[HistogramBin] = []
    """Documents by their length in tokens."""

    error: str | None = None


class NewPreparation(Strict):
    version: int | None = Field(default=None, ge=1)
    tokenizer: TokenizerSpec = TokenizerSpec()
    validation_fraction: float = Field(default=0.01, ge=0.0, le=0.5)


class DatasetFile(Envelope):
    name: str
    bytes: int
    digest: str
    format: FileFormat | None = None
    """Known once the file was looked at."""

    compression: Compression = Compression.NONE
    documents: int | None = None
    rejected: int | None = None


class VersionState(StrEnum):
    WAITING = "waiting"
    READING = "reading"
    READY = "ready"
    FAILED = "failed"


class MixShare(Envelope):
    """What one source gives to a mixture."""

    dataset: str
    version: int
    documents: int
    characters: int
    share: float
    """Of the mixture's characters, 0..1."""


class Statistics(Envelope):
    """What a recipe makes of a version's documents."""

    documents: int
    """Read from the files or the mixed versions."""

    kept: int
    characters: int
    """Of the documents that are kept."""

    rejected: int
    duplicates: int
    """Documents whose exact text stood before; left out only where the recipe says so."""

    dropped: dict[str, int] = {}
    """Documents that each part of the recipe leaves out, by its name: the first one that applies counts."""

    lengths: list[HistogramBin] = []
    """Kept documents by their length in characters."""

    mix: list[MixShare] = []


class RecipeCounts(Statistics):
    """What a recipe would do, before it is applied."""

    counted_fraction: float = 1.0
    """Share of the documents that was measured; below 1 the figures are scaled up from it, but for documents, rejected and
    duplicates, which are exact."""


class CountRequest(Strict):
    dataset: str | None = Field(default=None, min_length=1, max_length=80)
    """The dataset whose files the recipe is for; empty for a mixture."""

    version: int | None = Field(default=None, ge=1)
    recipe: Recipe


class DatasetVersion(Envelope):
    number: int
    created: AwareDatetime
    bytes: int
    files: list[DatasetFile]
    recipe: Recipe = Recipe()
    state: VersionState = VersionState.READY
    error: str | None = None
    """Why it failed, and what to do."""

    read_bytes: int = 0
    """Of the files' bytes, how many have been read into documents: its progress."""

    statistics: Statistics | None = None
    """When it is ready."""

    changes: list[str] = []
    """What differs from the version before, a sentence each."""

    preparations: list[Preparation]


class Dataset(Envelope):
    id: str
    name: str
    created: AwareDatetime
    created_by: str | None
    versions: list[DatasetVersion]
    """Newest first. In lists, only the newest."""


class NewDataset(Strict):
    name: Name
    uploads: list[str] = Field(default=[], max_length=1_000)
    """Ids of complete uploads, in the order of their files. None for a mixture."""

    recipe: Recipe = Recipe()


class NewVersion(Strict):
    uploads: list[str] | None = Field(default=None, max_length=1_000)
    """The version's files. Left empty: those of version `base`, so that only the recipe changes."""

    base: int | None = Field(default=None, ge=1)
    """The version whose files are kept; the newest when left empty."""

    keep_files: bool = False
    """The uploads are added to the files of `base`; otherwise they replace them."""

    recipe: Recipe | None = None
    """Left empty: the recipe of version `base`."""


class DocumentSample(Envelope):
    """A document as it was read."""

    number: int
    """Position in the version, from 0."""

    file: str
    line: int
    """Line or row at which it begins, from 1."""

    characters: int
    text: str
    """Its first 2,000 characters."""

    kept: bool
    dropped_by: str | None = None
    """The part of the recipe that leaves it out."""


class RejectedDocument(Envelope):
    """A document that could not be read."""

    file: str
    line: int
    reason: str


class Tokenizer(Envelope):
    """An uploaded `tokenizer.json`."""

    id: str
    name: str
    vocabulary: int
    """Token ids, added tokens included."""

    end_of_text: str
    digest: str
    created: AwareDatetime
    created_by: str | None


class NewTokenizer(Strict):
    name: Name
    upload: str
    """Id of a complete upload of a `tokenizer.json`."""


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


class PlannedRank(Envelope):
    """Where a rank stands in the mesh."""

    rank: int
    pipeline: int
    data: int
    tensor: int


class PlannedStage(Envelope):
    """A stage of the pipeline; without one there is a single stage."""

    stage: int
    rank: int
    """Pipeline rank that holds it."""

    first_layer: int
    layers: int
    embedding: bool
    """Whether it has the embedding too."""

    loss: bool
    """Whether it has the head and the loss too."""


class PlannedMemory(Envelope):
    """Bytes of the tensors of one pipeline rank, on each of its data and tensor ranks, when they are most."""

    rank: int
    """Pipeline rank."""

    total: int
    """On the device."""

    weights: int
    copies: int
    """Of weights: casts for products, FP8 copies, weights that were gathered."""

    gradients: int
    optimizer: int
    activations: int
    """Of the micro batches in flight."""

    gathered: int
    """Inputs of products, which tensor ranks hold whole."""

    loss: int
    transfers: int
    """What stages hand each other."""

    host: int
    """In the node's memory instead of the device's."""


class PlannedAction(Envelope):
    """One thing that a pipeline rank does. Times are in units of one layer's forward pass."""

    kind: Literal["F", "B", "I", "W"]
    """Forward; backward; its two halves: the input's gradient, the weights' gradients."""

    stage: int
    micro_batch: int
    start: float
    end: float


class RunPlan(Envelope):
    """What the layout of a run comes to."""

    pipeline: int
    data: int
    shard: int
    tensor: int
    stages_per_rank: int
    schedule: PipelineSchedule
    micro_batches: int
    """Of a step, on each data rank."""

    ranks: list[PlannedRank]
    stages: list[PlannedStage]
    stages_are_measured: bool
    """Whether stages will be chosen when the run starts; those here are for ranks of equal speed."""

    memory: list[PlannedMemory]
    timeline: list[list[PlannedAction]]
    """Of each pipeline rank; the first micro batches where there are very many."""

    bubble_fraction: float
    """Share of the ranks' time in a step in which they wait for each other."""


class RunSort(StrEnum):
    """By what a list of runs is sorted; runs without the number come last."""

    CREATED = "created"
    NAME = "name"
    LOSS = "loss"
    MFU = "mfu"
    TOKENS_PER_SECOND = "tokens_per_second"
    STEP = "step"


class SortOrder(StrEnum):
    ASCENDING = "asc"
    DESCENDING = "desc"


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


class LogLine(Envelope):
    number: int
    """From 1."""

    text: str
    """Cut after 10,000 characters."""


class LogLines(Envelope):
    """A stretch of a log by its lines."""

    lines: list[LogLine]
    total: int
    """Lines stored now; the last one may still grow."""


class LogMatches(Envelope):
    """Lines that contain what was asked for, in order."""

    lines: list[LogLine]
    searched_to: int
    """The last line that was looked at: pass it as `after_line` to go on."""

    end: bool
    """The whole log was looked at."""


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
PreviewFile.model_rebuild()
