"""Messages between agents, supervisors and the API. See docs/lifecycle.md for the protocol.

All routes start with ``/api/v1/agent``; the node token is a bearer token. Every message that writes to a run has the
fence of its attempt, and gets 409 ``stale_fence`` if that is not the newest fence of the run.

========  =====================================  ====================================================
method    path                                   body → response
========  =====================================  ====================================================
POST      /join                                  Join → JoinReply (the one-time join token is in the body)
POST      /heartbeat                             Heartbeat → HeartbeatReply
POST      /runs/{run}/claim                      ClaimRequest → Claim (409 ``claim_refused``)
POST      /runs/{run}/renew                      Renewal → RenewalReply (409 ``stale_fence``)
POST      /runs/{run}/batches                    Batch → OffsetReply (409 ``wrong_offset``, extension ``offset``)
POST      /runs/{run}/logs/{file}?attempt&fence&offset  bytes → OffsetReply (409 ``wrong_offset``)
POST      /runs/{run}/uploads                    UploadRequest → UploadLinks
POST      /runs/{run}/checkpoints                CheckpointCommit → CommitReply (409 ``events_behind``, ``awaiting_nodes``)
POST      /runs/{run}/export-job                 ExportRequest → ExportJob (409 ``not_committed``)
POST      /runs/{run}/end                        EndReport → EndReply (409 ``file_short``, ``not_exported``)
GET       /runs/{run}/offsets?attempt            → Offsets: what is stored, for a new agent to continue from
========  =====================================  ====================================================

404 for a run means that it was deleted: kill its processes by their marker, and delete its folder.
"""

from __future__ import annotations

from enum import StrEnum
from math import isfinite
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from trainwright.contracts.base import NODE_PATTERN, Envelope, Report, field_error
from trainwright.contracts.checkpoint import (
    DIGEST_PATTERN,
    MAX_FILE_BYTES,
    MAX_STEP,
    CheckpointKind,
    FileEntry,
)
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.hardware import (
    MAX_CORES,
    MAX_SLOTS,
    HardwareUse,
    MemoryBytes,
    RunHardwareUse,
    SlotIndex,
)
from trainwright.contracts.job_spec import JobSpec, Outcome
from trainwright.contracts.precision_spec import PrecisionKind, PrecisionSpec
from trainwright.contracts.rank_progress import Stall
from trainwright.contracts.run_state import RunState

HINT_TASK = "node.dispatch"
"""Name of the only Celery task of agents; its argument is a run id."""

HINTS_KEY_PREFIX = "trainwright-hints:"
"""Prefix of every key in the hints broker (`global_keyprefix`), so that an ACL can restrict agents to it."""


def hints_queue(node_name: str) -> str:
    """The Celery queue that the agent of a node listens to."""
    return f"node.{node_name}"


STANDARD_LEASE_SECONDS = 120.0
FENCING_SLACK_SECONDS = 15.0
"""Time that a kill may take beyond the grace period, with the standard lease. It scales with the lease."""


class Timers(Envelope):
    """Timers of the protocol. The API defines them and sends them in its replies to claims and renewals."""

    heartbeat_seconds: float = Field(default=10.0, gt=0)
    """Interval between an agent's heartbeats."""

    renewal_seconds: float = Field(default=10.0, gt=0)
    """Interval between a supervisor's renewals of its lease."""

    lease_seconds: float = Field(default=STANDARD_LEASE_SECONDS, gt=0)
    """How long an attempt may continue after its last renewal. Then the run may start elsewhere."""

    margin_seconds: float = Field(default=45.0, gt=0)
    """The supervisor starts to stop its children this long before the lease expires."""

    grace_seconds: float = Field(default=10.0, gt=0)
    """Between SIGTERM and SIGKILL."""

    sweep_seconds: float = Field(default=5.0, gt=0)
    """Interval of the control loop."""

    backoff_seconds: float = Field(default=10.0, gt=0)
    """Delay before the first retry. It doubles with each retry."""

    backoff_limit_seconds: float = Field(default=600.0, gt=0)
    """Longest delay before a retry."""

    claim_seconds: float = Field(default=15.0, gt=0)
    """If a run's placements are not all claimed within this time, the run goes back to the queue."""

    start_seconds: float = Field(default=600.0, gt=0)
    """Longest time in `starting` without progress."""

    hang_seconds: float = Field(default=30.0, gt=0)
    """Time without progress of any rank after which a run hangs. Runs with long steps get more."""

    @property
    def scale(self) -> float:
        """Ratio of these timers to the standard ones; tests use a fraction."""
        return self.lease_seconds / STANDARD_LEASE_SECONDS

    @model_validator(mode="after")
    def _kill_fits_the_margin(self) -> Self:
        slack = FENCING_SLACK_SECONDS * self.scale
        if self.grace_seconds + slack > self.margin_seconds:
            rule = f"must be at least grace_seconds + {slack:g} = {self.grace_seconds + slack:g}"
            raise field_error("margin_seconds", self.margin_seconds, rule)
        if self.margin_seconds + 2 * self.renewal_seconds >= self.lease_seconds:
            rule = f"must exceed margin_seconds + 2 · renewal_seconds = {self.margin_seconds + 2 * self.renewal_seconds:g}"
            raise field_error("lease_seconds", self.lease_seconds, rule)
        return self


ShortText = Annotated[str, Field(max_length=255)]
FileBytes = Annotated[int, Field(ge=0, le=MAX_FILE_BYTES)]
MAX_FILES = 10_000
"""Files of a checkpoint, or of an attempt."""


class Gpu(Report):
    """One GPU of a node."""

    index: SlotIndex
    name: ShortText
    memory_bytes: MemoryBytes
    capability: str | None = Field(default=None, pattern=r"^\d{1,3}\.\d{1,3}$")
    """Compute capability, such as `9.0`; empty from agents that do not report it yet."""

    def can_compute(self, precision: PrecisionSpec) -> bool:
        """Whether it has the matmuls of ``precision``, as far as its agent reported."""
        if self.capability is None:
            return True
        major, minor = map(int, self.capability.split("."))
        return precision.suits((major, minor))


SLOWEST_BF16_FRACTION = 0.25
"""Least plausible bfloat16 peak, as a fraction of the float32 peak. A CPU can widen bfloat16 values in its registers and multiply them in float32, so a measured
bfloat16 peak below that fraction is a limit of the measurement or of a library, not of the CPU."""


MAX_RATE = 1e18


def _possible_rate(given: float) -> float:
    """``given`` in FLOP/s, or 0, which means that it is not known, instead of one that no CPU has."""
    return given if 0 <= given <= MAX_RATE else 0.0


Rate = Annotated[float, AfterValidator(_possible_rate)]


class CpuPeak(Envelope):
    """FLOP/s of one CPU slot, measured while all slots are busy; 0 if not known."""

    fp32: Rate
    bf16: Rate
    fp8: Rate | None = None
    """Matmuls of FP8 values, which CPUs compute in bfloat16; empty from agents that do not measure it yet."""

    def rate(self, kind: PrecisionKind) -> float | None:
        """The peak in the dtype of a run's matmuls; None if it is not known, or not plausible."""
        rates = {PrecisionKind.FP32: self.fp32, PrecisionKind.BF16: self.bf16, PrecisionKind.FP8: self.fp8}
        rate = rates.get(kind)
        least = 0.0 if kind is PrecisionKind.FP32 else SLOWEST_BF16_FRACTION * self.fp32
        return rate if rate is not None and isfinite(rate) and rate > 0 and rate >= least else None


class Inventory(Report):
    """Hardware and software of a node."""

    hostname: ShortText
    os: ShortText
    cores: int = Field(ge=1, le=MAX_CORES)
    memory_bytes: MemoryBytes
    gpus: list[Gpu] = Field(default=[], max_length=MAX_SLOTS)
    cpu_name: ShortText = ""
    cpu_slots: int = Field(default=2, ge=0, le=MAX_SLOTS)
    cpu_peak: CpuPeak | None = None
    deepspeed: bool | None = None
    """Whether the engine `deepspeed` is installed; empty from agents that do not report it yet."""

    agent_version: ShortText = ""
    peer_address: ShortText | None = None
    """Address at which other nodes reach this one; empty from agents that cannot run a part of a run."""

    link_tests: bool = False
    """Whether the agent can exchange data with another node (`LinkTest`); false for agents that do not report it yet."""

    location: ShortText = ""
    """Such as a rack or a switch, in the operator's words. A run's nodes are chosen from as few locations as possible."""

    @model_validator(mode="after")
    def _gpus_differ(self) -> Self:
        indices = [gpu.index for gpu in self.gpus]
        twice = {index for index in indices if indices.count(index) > 1}
        if twice:
            raise field_error("gpus", min(twice), "is the index of several GPUs: give each its own")
        return self


class Join(Report):
    """A node registers with a one-time token."""

    token: ShortText
    name: str = Field(pattern=NODE_PATTERN)
    inventory: Inventory


class JoinReply(Envelope):
    node_id: str
    node_token: str
    """Returned once; the API stores only its hash."""

    hints_url: str | None = None
    """Broker for dispatch hints; without it the node relies on heartbeats."""

    timers: Timers


class SelfTestCheck(Report):
    """One check of a node's self-test."""

    name: ShortText
    passed: bool
    detail: Annotated[str, Field(max_length=1_000)] = ""
    """What was measured, or what was wrong."""


MAX_CHECKS = 1_000
"""Most checks of one self-test. A node runs four per GPU."""


class SelfTestReport(Report):
    """The result of a self-test that the API asked for."""

    id: ShortText
    """Id of the request, as in ``HeartbeatReply.self_test``."""

    checks: list[SelfTestCheck] = Field(min_length=1, max_length=MAX_CHECKS)

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)


MAX_LINK_TESTS = 32
"""Most tests of connections that a node takes part in at once."""


class LinkTest(Envelope):
    """A test of the connection between this node and another one. Both send each other data and report what arrived."""

    id: str
    key: str
    """A secret of the two nodes. It proves who connects, and determines the data."""

    address: str | None = None
    port: int | None = None
    """Where the other node listens. If both are empty, this node listens at its peer address."""

    seconds: float = Field(gt=0)
    """How long this node waits for the other one."""


class LinkResult(Report):
    """The result of a `LinkTest` on one of its nodes."""

    bytes_per_second: float = Field(default=0.0, ge=0, le=MAX_RATE)
    """The rate at which data arrived."""

    problem: Annotated[str, Field(max_length=1_000)] = ""
    """What was wrong; empty if the data arrived unchanged."""


class LinkTestReport(Report):
    """The state of a `LinkTest` on one of its nodes."""

    id: ShortText
    port: int | None = Field(default=None, ge=1, le=65_535)
    """At which this node listens."""

    result: LinkResult | None = None
    """Empty until this node has finished."""


class Heartbeat(Report):
    """The agent reports that its node is alive."""

    inventory: Inventory | None = None
    """Sent when the agent starts and when it changes."""

    busy_slots: dict[ShortText, Annotated[list[SlotIndex], Field(max_length=MAX_SLOTS)]] = {}
    """Slots by device (`cuda`, `cpu`) on which a process of a run is alive; placement skips them."""

    hardware: HardwareUse | None = None
    """The node's present use; empty from agents that do not measure it."""

    self_test: SelfTestReport | None = None
    """The newest result, repeated until the API no longer asks for it."""

    link_tests: list[LinkTestReport] = Field(default=[], max_length=MAX_LINK_TESTS)
    """The tests of `HeartbeatReply.link_tests`, for as long as the API lists them."""


class PlacedRun(Envelope):
    """A run that is placed on the node and whose end report has not been accepted."""

    run_id: str
    device: str
    slots: list[int]
    claimed: bool
    fence: int | None = None
    """Fence of the claim, if claimed."""


class HeartbeatReply(Envelope):
    placements: list[PlacedRun]
    timers: Timers
    hints_url: str | None = None
    """Broker for dispatch hints, which may have moved since the node joined; None: unchanged."""

    self_test: str | None = None
    """Id of the self-test that the node has to pass, because it is in quarantine. The agent runs the test as soon as no run is
    on the node. None outside of a quarantine."""

    link_tests: list[LinkTest] = []
    """Tests of connections in which the node takes part, also while runs are on it."""


class ClaimRequest(Report):
    claim_id: str = Field(min_length=16, max_length=64)
    """Generated by the agent; also the name of the attempt's folder. Claiming again with the same id returns the same claim."""


class Download(Envelope):
    """A file that the supervisor downloads to the attempt's folder before it starts the trainer."""

    path: str
    """Relative to the folder of ``job.json``."""

    bytes: int
    digest: str
    """SHA-256, in hex; checked before the file is used."""

    url: str
    """Signed; relative to the API's address if it starts with `/`."""

    object_key: str
    """Key in the object store, for an agent on the same disk."""


class Claim(Envelope):
    """A granted lease. Nothing starts before the supervisor's first renewal."""

    claim_id: str
    fence: int
    attempt: int
    timers: Timers
    job: JobSpec
    downloads: list[Download]
    traceparent: str | None = None
    """The trace in which the run was submitted (W3C Trace Context); the node's spans belong to it."""


class Phase(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    COMPLETING = "completing"
    ENDED = "ended"


class Renewal(Envelope):
    """The supervisor renews its lease and reports progress."""

    claim_id: str
    fence: int
    phase: Phase
    peer: Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]{1,253}:[0-9]{1,5}$")] | None = None
    """``host:port`` at which this node can host the rendezvous. Sent once its files are fetched; with several nodes
    only."""

    progress: str = ""
    """Current activity, for users: `fetching shards 3 of 8`."""

    stall: Stall | None = None
    """The positions of the node's ranks, while none of them makes progress."""

    exit: Outcome | None = None
    """The content of ``exit.json``, with phase `ended`."""


class RenewalOrder(StrEnum):
    GO = "go"
    WAIT = "wait"
    SAVE = "save"
    KILL = "kill"
    LEAVE = "leave"
    """The end report was accepted, or none is expected: nothing is left to do."""


class RenewalReply(Envelope):
    order: RenewalOrder
    timers: Timers
    rendezvous: str | None = None
    """The rendezvous address of the launchers of a run on several nodes; empty until all nodes are ready."""

    rank_stopped: bool = False
    """Whether a node of the run reports that a rank's process is stopped. All other ranks wait for it."""


class MetricBlock(Envelope):
    """Metrics of consecutive lines with the same series, as columns."""

    steps: list[int]
    series: dict[str, list[float]]

    @model_validator(mode="after")
    def _columns_match(self) -> Self:
        for name, values in self.series.items():
            if len(values) != len(self.steps):
                raise field_error(
                    f"series.{name}", len(values), f"values, but there are {len(self.steps)} steps"
                )
        return self


class Batch(Envelope):
    """A batch of complete lines of ``events.jsonl``, in file order."""

    fence: int
    attempt: int
    file: str = "events.jsonl"
    offset: FileBytes
    next_offset: FileBytes
    events: list[dict[str, object]] = []
    """Lines without metrics, each with its end offset as ``end_offset``."""

    metrics: list[MetricBlock] = []
    """Metrics of steps after the resume point."""

    hardware: RunHardwareUse | None = None
    """Means since the previous batch; stored as series at the batch's last step. Empty from agents that do not measure it, and
    if nothing was measured since."""

    @model_validator(mode="after")
    def _goes_forward(self) -> Self:
        if self.next_offset < self.offset:
            raise field_error("next_offset", self.next_offset, f"must be at least offset = {self.offset}")
        return self


class OffsetReply(Envelope):
    offset: int
    """Bytes of the file that the API has stored."""


class Offsets(Envelope):
    """Stored bytes of each file of an attempt."""

    files: dict[str, int]


class UploadRequest(Report):
    """Requests links to upload the files of a checkpoint."""

    fence: int
    kind: CheckpointKind
    step: int = Field(ge=0, le=MAX_STEP)
    files: list[FileEntry] = Field(min_length=1, max_length=MAX_FILES)
    """Including the manifest."""


class UploadLink(Envelope):
    name: str
    url: str
    """Signed for one PUT of exactly the announced bytes; the store rejects any other digest."""

    object_key: str


class UploadLinks(Envelope):
    links: list[UploadLink]
    """Only for files that the store does not have yet."""


class CheckpointCommit(Report):
    """Makes a checkpoint visible, after all its files were uploaded."""

    fence: int
    kind: CheckpointKind
    step: int = Field(ge=0, le=MAX_STEP)
    manifest_digest: str = Field(pattern=DIGEST_PATTERN)
    events_offset: FileBytes = 0
    """End offset of the `checkpoint_saved` line: events must be stored up to it before the commit. 0 for an export."""

    @model_validator(mode="after")
    def _states_have_an_offset(self) -> Self:
        if self.kind is CheckpointKind.STATE and self.events_offset == 0:
            raise field_error("events_offset", 0, "must be the end offset of the checkpoint_saved line")
        return self


class CommitReply(Envelope):
    checkpoint_id: str


class ExportRequest(Report):
    """The supervisor on the first of several nodes asks for the last checkpoint, whose files were written by all nodes."""

    claim_id: ShortText
    fence: int


class ExportJob(Envelope):
    """The export of an attempt that has trained to the last step."""

    job: JobSpec
    downloads: list[Download]
    """The files of the checkpoint."""


class EndReport(Report):
    """The agent has sent everything and releases the placement."""

    claim_id: str
    fence: int
    exit: Outcome
    offsets: dict[ShortText, FileBytes] = Field(max_length=MAX_FILES)
    """Final size of every shipped file: ``events.jsonl`` and logs."""


class EndReply(Envelope):
    state: RunState
    code: EndCode
