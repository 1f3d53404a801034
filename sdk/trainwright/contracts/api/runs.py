"""Runs, their summaries and events."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, Field, StringConstraints

from trainwright.contracts.api.actions import MAX_TAGS, RunLayout, Tag
from trainwright.contracts.api.queue import Priority
from trainwright.contracts.base import Envelope, Problem, Strict
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.events import Sample
from trainwright.contracts.run_spec import Name, RunSpec
from trainwright.contracts.run_state import RunState, Verdict


class RunSummary(Envelope):
    """Latest metrics of a run."""

    step: int = 0
    attempt: int = 0
    values: dict[str, float] = {}
    """Latest value of each series, such as `loss`. Speeds, such as `mfu` and `tokens_per_second`, and the `seconds` of a step are means
    over about the last 20 steps."""

    spark: list[float] = []
    """Up to 32 values of the loss over the entire run, oldest first."""

    peak_name: str | None = None
    """The peak that MFU is measured against."""

    bf16_peak_name: str | None = None
    """In an FP8 run, the peak that `bf16_mfu` is measured against."""

    mfu_unknown: str | None = None
    """Why there is no MFU, such as `peak not known`; empty before the first step, and if there is one."""


class ForkedFrom(Envelope):
    """The run and step that a forked run started from."""

    run: str | None
    """Id of the run; empty if it was deleted."""

    name: str
    step: int


class Run(Envelope):
    id: str
    name: str
    state: RunState
    verdict: Verdict | None = None
    """What happens to the run once it has stopped."""

    sentence: str
    """The state in words: why the run waits, what it does, how it ended."""

    reason: EndCode | None = None
    suspect_seconds: float | None = None
    """How long the run's node has not responded, if longer than 30 s. It is only for display."""

    spec: RunSpec
    """The spec of the next attempt: the layout of a run can be changed."""

    flops: float
    """FLOPs of the training, by formula, as in `RunEstimate.flops`; for a fork only the steps after its first checkpoint."""

    attempt: int
    attempt_layout: RunLayout | None = None
    """Layout of the newest attempt. Empty before the first one, and if it only exports."""

    summary: RunSummary
    created: AwareDatetime
    created_by: str | None
    started: AwareDatetime | None = None
    ended: AwareDatetime | None = None
    paused: AwareDatetime | None = None
    """Since when it is paused."""

    run_seconds: float = 0.0
    """How long its ended attempts took together, without the time in the queue and in pauses."""

    retry_at: AwareDatetime | None = None
    nodes: list[str] = []
    """Nodes that the run occupies now, in the order of their ranks."""

    attempt_nodes: list[str] = []
    """Nodes of the newest attempt in the order of their ranks; each has `resources.slots_per_node` of them."""

    tags: list[str] = []
    notes: str = ""
    forked_from: ForkedFrom | None = None
    priority: Priority = Priority.NORMAL


class SpecCheck(Envelope):
    """Result of a validation."""

    valid: bool
    problems: list[Problem] = []
    spec: RunSpec | None = None
    """The spec as it would be stored, including values that are filled in at submission. An invalid spec has it too, if only nodes, limits
    or the length of the data are in its way."""

    parameters: int | None = None
    """Parameters of the model, including embeddings."""

    train_tokens: int | None = None
    """Tokens of the training split. Null until the data has been prepared with this tokenizer and split."""

    warnings: list[str] = []
    """A warning: the validation split is shorter than one sequence."""


class RunSort(StrEnum):
    """Sort key of a list of runs. Runs without a value come last."""

    CREATED = "created"
    NAME = "name"
    LOSS = "loss"
    MFU = "mfu"
    TOKENS_PER_SECOND = "tokens_per_second"
    STEP = "step"
    ENDED = "ended"


class SortOrder(StrEnum):
    ASCENDING = "asc"
    DESCENDING = "desc"


class RunGrouping(StrEnum):
    """What a list of runs is grouped by. A run is in the group of each of its tags."""

    TAG = "tag"
    DATASET = "dataset"
    MODEL = "model"
    STATE = "state"


class RunGroup(Envelope):
    """Runs that have something in common."""

    key: str
    """Value of the filter of the same name that lists its runs. Empty: runs without a tag, which `untagged` lists."""

    name: str
    """The dataset's name; for other groups the key."""

    runs: int
    live: int
    """Number of these runs that have not ended."""

    best_loss: float | None = None
    """The smallest of their latest losses."""

    newest: AwareDatetime
    """When its newest run was created."""


class ExportFormat(StrEnum):
    """File formats of exported lists of runs."""

    CSV = "csv"
    PARQUET = "parquet"


class RunView(Strict):
    """A view of the list of runs: filter, order, columns and grouping."""

    q: str = Field(default="", max_length=200)
    """Words that the name must contain."""

    state: tuple[RunState, ...] = Field(default=(), max_length=len(RunState))
    tag: tuple[Tag, ...] = Field(default=(), max_length=MAX_TAGS)
    mine: bool = False
    """Only the person's own runs."""

    sort: RunSort = RunSort.CREATED
    order: SortOrder = SortOrder.DESCENDING
    columns: tuple[Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]{1,40}$")], ...] = Field(
        default=(), max_length=100
    )
    """Columns of the page's table; empty for the default ones."""

    group: RunGrouping | None = None


class NewView(Strict):
    """A view to save under a name. The person's view of that name is replaced."""

    name: Name
    view: RunView


class SavedView(Envelope):
    """A view that a person saved; nobody else sees it."""

    id: str
    name: str
    view: RunView
    saved: AwareDatetime


class RunSamples(Envelope):
    """Text that a run's model generated from each of its prompts at one validation."""

    step: int
    attempt: int
    time: AwareDatetime
    samples: list[Sample]


class RunEvent(Envelope):
    """An event of a run."""

    sequence: int
    time: AwareDatetime
    type: str
    """`state` for a change of state, otherwise the type of the trainer's event."""

    state: RunState | None = None
    attempt: int | None = None
    step: int | None = None
    message: str
