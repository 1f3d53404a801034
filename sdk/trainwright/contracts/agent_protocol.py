"""What agents and supervisors say to the API, and what it answers. See docs/lifecycle.md for the protocol.

All routes lie under ``/api/v1/agent``; the node token is a bearer token. Every message that writes for a run carries
the fence of the attempt it speaks for and is refused with 409 ``stale_fence`` when that is not the run's newest.

========  =====================================  ====================================================
method    path                                   body → answer
========  =====================================  ====================================================
POST      /join                                  Join → Joined (the one-time join token is in the body)
POST      /heartbeat                             Heartbeat → HeartbeatReply
POST      /runs/{run}/claim                      ClaimRequest → Claim (409 ``claim_refused``)
POST      /runs/{run}/renew                      Renewal → RenewalReply (409 ``stale_fence``)
POST      /runs/{run}/batches                    Batch → Stored (409 ``wrong_offset``, extension ``offset``)
POST      /runs/{run}/logs/{file}?attempt&fence&offset  bytes → Stored (409 ``wrong_offset``)
POST      /runs/{run}/uploads                    UploadRequest → UploadLinks
POST      /runs/{run}/checkpoints                CheckpointCommit → Committed (409 ``events_behind``)
POST      /runs/{run}/end                        EndReport → Ended (409 ``file_short``, ``not_exported``)
GET       /runs/{run}/offsets?attempt            → Offsets: what is stored, so that a new agent reads on
========  =====================================  ====================================================

404 for a run means that it was deleted: kill by marker, delete the folder.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from trainwright.contracts.base import NODE_PATTERN, Envelope, refused
from trainwright.contracts.checkpoint import CheckpointKind, FileEntry
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.job_spec import JobSpec, Outcome
from trainwright.contracts.run_state import RunState

HINT_TASK = "node.dispatch"
"""Name of the one Celery task that agents know; its argument is a run id."""

HINTS_KEY_PREFIX = "trainwright-hints:"
"""Prefix of every key in the hints broker (`global_keyprefix`), so that an ACL can bind agents to it."""


def hints_queue(node_name: str) -> str:
    """The Celery queue on which the agent of a node listens."""
    return f"node.{node_name}"


STANDARD_LEASE_SECONDS = 120.0
FENCING_SLACK_SECONDS = 15.0
"""At the standard lease: what a kill may take beyond the grace period. Scales with the lease."""


class Timers(Envelope):
    """The protocol's clocks. The API owns them; claims and renewals carry what was granted."""

    heartbeat_seconds: float = Field(default=10.0, gt=0)
    renewal_seconds: float = Field(default=10.0, gt=0)
    lease_seconds: float = Field(default=STANDARD_LEASE_SECONDS, gt=0)
    margin_seconds: float = Field(default=45.0, gt=0)
    """The supervisor begins to stop its children this long before the lease would lapse."""

    grace_seconds: float = Field(default=10.0, gt=0)
    """Between SIGTERM and SIGKILL."""

    sweep_seconds: float = Field(default=5.0, gt=0)
    """Period of the control loop."""

    backoff_seconds: float = Field(default=10.0, gt=0)
    """First wait before a retry; it doubles with each."""

    backoff_limit_seconds: float = Field(default=600.0, gt=0)
    claim_seconds: float = Field(default=15.0, gt=0)
    """A set of placements not fully claimed after this goes back to the queue."""

    start_seconds: float = Field(default=600.0, gt=0)
    """Longest time in `starting` without progress."""

    @property
    def scale(self) -> float:
        """How these timers compare with the standard ones; tests run at a fraction."""
        return self.lease_seconds / STANDARD_LEASE_SECONDS

    @model_validator(mode="after")
    def _killing_fits_the_margin(self) -> Self:
        slack = FENCING_SLACK_SECONDS * self.scale
        if self.grace_seconds + slack > self.margin_seconds:
            rule = f"must be at least grace_seconds + {slack:g} = {self.grace_seconds + slack:g}"
            raise refused("margin_seconds", self.margin_seconds, rule)
        if self.margin_seconds + 2 * self.renewal_seconds >= self.lease_seconds:
            rule = f"must exceed margin_seconds + 2 · renewal_seconds = {self.margin_seconds + 2 * self.renewal_seconds:g}"
            raise refused("lease_seconds", self.lease_seconds, rule)
        return self


class Gpu(Envelope):
    """One GPU of a node."""

    index: int
    name: str
    memory_bytes: int


class CpuPeak(Envelope):
    """FLOP/s of one CPU slot, measured with all slots busy."""

    fp32: float
    bf16: float
    fp8: float | None = None
    """Products of FP8 codes, which CPUs multiply in bfloat16; empty from agents older than this figure."""


class Inventory(Envelope):
    """What a node has."""

    hostname: str
    os: str
    cores: int
    memory_bytes: int
    gpus: list[Gpu] = []
    cpu_name: str = ""
    cpu_slots: int = Field(default=2, ge=0)
    cpu_peak: CpuPeak | None = None
    deepspeed: bool | None = None
    """Whether the engine `deepspeed` is installed; empty from agents older than this field."""

    agent_version: str = ""


class Join(Envelope):
    """A node introduces itself with a one-time token."""

    token: str
    name: str = Field(pattern=NODE_PATTERN)
    inventory: Inventory


class Joined(Envelope):
    node_id: str
    node_token: str
    """Shown once; the API keeps only its hash."""

    hints_url: str | None = None
    """Broker for dispatch hints; without it the node lives by heartbeats alone."""

    timers: Timers


class Heartbeat(Envelope):
    """The node lives."""

    inventory: Inventory | None = None
    """Sent at the agent's start and when it changed."""

    busy_slots: dict[str, list[int]] = {}
    """Slots by device (`cuda`, `cpu`) on which a marked process lives; placement skips them."""


class PlacedRun(Envelope):
    """A run that is placed on the node and whose end has not been accepted."""

    run_id: str
    device: str
    slots: list[int]
    claimed: bool
    fence: int | None = None
    """Of the claim, when claimed."""


class HeartbeatReply(Envelope):
    placements: list[PlacedRun]
    timers: Timers
    hints_url: str | None = None
    """Broker for dispatch hints, which may have moved since the node joined; None: as told before."""


class ClaimRequest(Envelope):
    claim_id: str = Field(min_length=16, max_length=64)
    """Made by the agent before it claims; names the attempt's folder. Repeating a claim gives the same answer."""


class Download(Envelope):
    """A file the supervisor fetches into the attempt's folder before it starts anything."""

    path: str
    """Relative to the folder of ``job.json``."""

    bytes: int
    digest: str
    """SHA-256, in hex; checked before the file is used."""

    url: str
    """Signed; relative to the API's address when it begins with `/`."""

    object_key: str
    """Name in the object store, for an agent that shares the store's disk."""


class Claim(Envelope):
    """A granted lease. It starts nothing: the supervisor's first renewal does."""

    claim_id: str
    fence: int
    attempt: int
    timers: Timers
    job: JobSpec
    downloads: list[Download]


class Phase(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    COMPLETING = "completing"
    ENDED = "ended"


class Renewal(Envelope):
    """The supervisor keeps its placement, and tells how far it is."""

    claim_id: str
    fence: int
    phase: Phase
    progress: str = ""
    """What is being done now, for people: `fetching shards 3 of 8`."""

    exit: Outcome | None = None
    """With phase `ended`: what stands in ``exit.json``."""


class Order(StrEnum):
    GO = "go"
    WAIT = "wait"
    SAVE = "save"
    KILL = "kill"
    LEAVE = "leave"
    """The end was accepted, or nobody will report it: nothing is left to do."""


class RenewalReply(Envelope):
    order: Order
    timers: Timers


class MetricBlock(Envelope):
    """Numbers of consecutive lines with the same series, as columns."""

    steps: list[int]
    series: dict[str, list[float]]

    @model_validator(mode="after")
    def _columns_match(self) -> Self:
        for name, values in self.series.items():
            if len(values) != len(self.steps):
                raise refused(f"series.{name}", len(values), f"values, but there are {len(self.steps)} steps")
        return self


class Batch(Envelope):
    """One stretch of complete lines of ``events.jsonl``, in file order."""

    fence: int
    attempt: int
    file: str = "events.jsonl"
    offset: int = Field(ge=0)
    next_offset: int = Field(ge=0)
    events: list[dict[str, object]] = []
    """Lines that are no numbers, each with its end offset as ``end_offset``."""

    metrics: list[MetricBlock] = []
    """Numbers of steps after the resume point."""

    @model_validator(mode="after")
    def _goes_forward(self) -> Self:
        if self.next_offset < self.offset:
            raise refused("next_offset", self.next_offset, f"must be at least offset = {self.offset}")
        return self


class Stored(Envelope):
    offset: int
    """Bytes of the file that the API holds."""


class Offsets(Envelope):
    """Stored bytes of each file of an attempt."""

    files: dict[str, int]


class UploadRequest(Envelope):
    """Asks for links to send a checkpoint's files."""

    fence: int
    kind: CheckpointKind
    step: int
    files: list[FileEntry]
    """Including the manifest."""


class UploadLink(Envelope):
    name: str
    url: str
    """Signed for one PUT of exactly the announced bytes; the store refuses another digest."""

    object_key: str


class UploadLinks(Envelope):
    links: list[UploadLink]
    """Only for files that the store does not hold yet."""


class CheckpointCommit(Envelope):
    """Makes a checkpoint visible. All its files have been sent."""

    fence: int
    kind: CheckpointKind
    step: int
    manifest_digest: str
    events_offset: int = Field(default=0, ge=0)
    """End of the `checkpoint_saved` line; the commit waits until events are stored up to it. 0 for an export."""

    @model_validator(mode="after")
    def _a_state_has_its_line(self) -> Self:
        if self.kind is CheckpointKind.STATE and self.events_offset == 0:
            raise refused("events_offset", 0, "must be the end of the checkpoint_saved line")
        return self


class Committed(Envelope):
    checkpoint_id: str


class EndReport(Envelope):
    """The agent has shipped everything and hands the placement back."""

    claim_id: str
    fence: int
    exit: Outcome
    offsets: dict[str, int]
    """Final size of every shipped file: ``events.jsonl`` and logs."""


class Ended(Envelope):
    state: RunState
    code: EndCode
