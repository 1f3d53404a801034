"""JobSpec: everything that an attempt needs, in the ``job.json`` that the trainer is started with.

Paths are relative to the folder of ``job.json``, so the writer of the file need not know the folder. The trainer reads
this folder and writes to ``out/``; it communicates by files and signals only.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from trainwright.contracts.base import Envelope, Strict, field_error
from trainwright.contracts.checkpoint import MAX_STEP
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.precision_spec import PrecisionKind
from trainwright.contracts.run_spec import RunSpec

MAX_RANK = 2**31 - 1
JOB_NAME = "job.json"
DATA_FOLDER = "data"
"""Shards, their ``manifest.json`` and ``tokenizer.json``."""
RESUME_FOLDER = "resume"
"""The checkpoint to start from."""
STOP_NAME = "stop.json"
"""Next to ``job.json``, written atomically: asks the trainer to save its state after the current step and exit."""
OUTPUT_FOLDER = "out"
EVENTS_NAME = "events.jsonl"
LOGS_FOLDER = "logs"
"""One ``rank-<n>.log`` per rank, ``launcher.log`` or ``launcher-<node>.log``, ``export.log``, and
``stacks.log`` or ``stacks-<node>.log`` if the ranks hung."""
CHECKPOINTS_FOLDER = "checkpoints"
EXPORT_FOLDER = "export"
OUTCOME_NAME = "outcome.json"
"""Written by the first rank of each node at a planned end."""
RANKS_NAME = "ranks.json"
"""Written by the launcher: how each failed rank exited."""


class JobKind(StrEnum):
    TRAIN = "train"
    EXPORT = "export"


class Peak(Strict):
    """The peak FLOP/s of one rank's device, which MFU is a fraction of."""

    flops_per_second: float = Field(gt=0)
    dtype: str
    """Dtype of matmuls, such as `bf16`."""

    device: str
    measured: bool
    """True if a self-test measured it on this node, false if it is the vendor's figure."""

    @property
    def name(self) -> str:
        """Display name: `BF16 peak 989 TFLOP/s of NVIDIA H200`."""
        rate = self.flops_per_second
        digits = 0 if rate >= 10e9 else 2
        figure = f"{rate / 1e12:.0f} TFLOP/s" if rate >= 10e12 else f"{rate / 1e9:.{digits}f} GFLOP/s"
        how = "measured peak" if self.measured else "peak"
        return f"{self.dtype.upper()} {how} {figure} of {self.device}"


class ResumePoint(Strict):
    """The checkpoint in ``resume/``."""

    step: int = Field(ge=0)
    digest: str
    """SHA-256 of its manifest."""

    forked: bool = False
    """It belongs to another run, whose configuration may differ except for shapes."""

    data_from_start: bool = False
    """It was trained on other data, or in another order, so this run starts at the beginning of its data."""

    sequences_read: int = Field(default=0, ge=0)
    """Sequences of the data order to count as read, if the checkpoint has read fewer: an earlier attempt diverged on them."""


class JobSpec(Strict):
    """A RunSpec, and where, with which data and from which checkpoint to run it."""

    schema_version: Literal[1] = 1
    kind: JobKind = JobKind.TRAIN
    run_id: str
    attempt: int = Field(ge=1)
    fence: int = Field(ge=1)
    spec: RunSpec
    device: Literal["cuda", "cpu"]
    slots: tuple[int, ...] = Field(min_length=1)
    """Indices of this node's GPUs or CPU slots. One rank runs on each."""

    nodes: int = Field(default=1, ge=1)
    """Nodes of the attempt; each has the same number of slots."""

    node_rank: int = Field(default=0, ge=0)
    """This node's position among them. Its first rank is ``node_rank`` × slots."""

    rendezvous: str | None = None
    """``host:port`` of the rendezvous of several nodes' launchers, on the node with rank 0. The supervisor writes
    it."""

    interface: str | None = None
    """Network interface through which the ranks of several nodes communicate. The supervisor writes it."""

    threads_per_rank: int = Field(default=1, ge=1)
    peak: Peak | None = None
    """Peak of the device in the dtype of the run's matmuls."""

    bf16_peak: Peak | None = None
    """The BF16 peak in an FP8 run, which reports both MFUs."""

    resume: ResumePoint | None = None

    @field_validator("spec")
    @classmethod
    def _precision_is_chosen(cls, spec: RunSpec) -> RunSpec:
        """The platform resolves `auto` at submission; a job that was written by hand computes in bfloat16."""
        if spec.precision.kind is not PrecisionKind.AUTO:
            return spec
        chosen = spec.precision.model_copy(update={"kind": PrecisionKind.BF16})
        return spec.model_copy(update={"precision": chosen})

    @model_validator(mode="after")
    def _node_is_one_of_them(self) -> Self:
        if self.node_rank >= self.nodes:
            raise field_error("node_rank", self.node_rank, f"must be below nodes = {self.nodes}")
        return self

    @property
    def ranks(self) -> int:
        """Ranks on all nodes."""
        return self.nodes * len(self.slots)

    @property
    def local_ranks(self) -> range:
        """The ranks on this node."""
        first = self.node_rank * len(self.slots)
        return range(first, first + len(self.slots))

    @property
    def is_first_node(self) -> bool:
        """Whether rank 0 runs here: its node ships the events and exports."""
        return self.node_rank == 0


class Outcome(Envelope):
    """How an attempt ended, as its own processes report it: ``outcome.json``, ``failure-<rank>.json``, ``exit.json``."""

    code: EndCode
    message: str
    """What happened. The sentence of the code says what to do."""

    step: int | None = Field(default=None, ge=0, le=MAX_STEP)
    """Last completed step."""

    rank: int | None = Field(default=None, ge=0, le=MAX_RANK)
    """Rank that failed first."""

    sequences_read: int | None = Field(default=None, ge=0, lt=2**63)
    """If it diverged: sequences of the data order that were read up to and including the batch at fault."""


class RankExit(Envelope):
    """How one rank exited."""

    rank: int
    exit_code: int | None = None
    signal: int | None = None
    time: float
    """Seconds since the epoch."""


class RankExits(Envelope):
    """``ranks.json``: ranks that exited with an error, in order of time."""

    exits: list[RankExit]


def failure_name(rank: int) -> str:
    """File in which a failing rank writes the reason."""
    return f"failure-{rank}.json"


def log_name(rank: int) -> str:
    return f"rank-{rank}.log"


def launcher_log_name(node_rank: int) -> str:
    return f"launcher-{node_rank}.log" if node_rank else "launcher.log"


def stacks_log_name(node_rank: int) -> str:
    return f"stacks-{node_rank}.log" if node_rank else "stacks.log"


def output_folder(job_file: Path) -> Path:
    """Folder that the trainer started with ``job_file`` writes to."""
    return job_file.parent / OUTPUT_FOLDER
