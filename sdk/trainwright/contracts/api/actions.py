"""Actions on runs, checkpoints, nodes and recipes: edit, clone, fork, change the layout, delete; for one run or many."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    Field,
    StrictBool,
    StringConstraints,
    field_validator,
    model_validator,
)

from trainwright.contracts.api.checkpoints import Checkpoint
from trainwright.contracts.api.queue import Priority
from trainwright.contracts.base import Envelope, Problem, Strict, field_error
from trainwright.contracts.hardware import MAX_SLOTS
from trainwright.contracts.parallelism_spec import ParallelismSpec
from trainwright.contracts.run_spec import Name
from trainwright.contracts.spec_upgrade import upgrade_changes, upgrade_spec


def _is_tag(tag: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", tag):
        raise ValueError("use lowercase letters, digits and . _ -, starting with a letter or a digit")
    return tag


Tag = Annotated[str, StringConstraints(min_length=1, max_length=40), AfterValidator(_is_tag)]

MAX_TAGS = 20
MAX_RUNS_AT_ONCE = 200


class RunEdit(Strict):
    """Changes name, tags, notes or priority of a run. Omitted fields do not change."""

    name: Name | None = None
    tags: tuple[Tag, ...] | None = Field(default=None, max_length=MAX_TAGS)
    notes: str | None = Field(default=None, max_length=20_000)
    priority: Priority | None = None
    """Editors can assign `low` and `normal`, owners also `high`. It counts while the run waits."""


class RunLayout(Strict):
    """Another layout of a run over the same number of ranks, for its next attempt."""

    parallelism: ParallelismSpec
    micro_sequences: int | None = Field(default=None, ge=1)
    """`batch.micro_sequences`, which another layout may need to change. Empty: unchanged."""


class NewClone(Strict):
    """A new run with the configuration of another one, starting at step 0."""

    name: Name
    changes: dict[str, Any] = Field(default={}, max_length=100)
    """Changed fields of the spec by dotted name, such as `optimizer.learning_rate`."""

    _upgrade = field_validator("changes")(upgrade_changes)


class NewFork(NewClone):
    """A new run that continues from a checkpoint of another one."""

    checkpoint: str | None = None
    """Id of a checkpoint. Empty: the newest valid one."""


class RunAction(StrEnum):
    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    DELETE = "delete"
    TAG = "tag"
    UNTAG = "untag"


class BulkAction(Strict):
    """One action for many runs. It succeeds or fails for each run independently."""

    action: RunAction
    runs: tuple[str, ...] = Field(min_length=1, max_length=MAX_RUNS_AT_ONCE)
    tags: tuple[Tag, ...] = Field(default=(), max_length=MAX_TAGS)
    """Tags for the actions `tag` and `untag`."""

    @model_validator(mode="before")
    @classmethod
    def _accept_verb(cls, given: Any) -> Any:
        """Clients up to version 0.1 send `action` as `verb`."""
        if isinstance(given, dict) and "verb" in given and "action" not in given:
            return {"action" if key == "verb" else key: value for key, value in given.items()}
        return given

    @model_validator(mode="after")
    def _tags_belong(self) -> Self:
        if bool(self.tags) is not (self.action in (RunAction.TAG, RunAction.UNTAG)):
            raise ValueError("the actions tag and untag need tags, and no other action takes them")
        return self


class FreedSpace(Envelope):
    """Space that a deletion freed, or would free."""

    dry_run: bool
    bytes: int
    """Bytes in the object store. They are free after the control loop's next round, or when issued download links have expired."""

    checkpoints: int


class BulkResult(Envelope):
    """Result of an action for one run."""

    run: str
    done: bool
    code: str | None = None
    """Error code, as in an error body."""

    detail: str = ""

    freed: FreedSpace | None = None
    """Space freed by the action `delete`."""


class Retention(Strict):
    """Which checkpoints to keep. Exports, pinned checkpoints, those being downloaded, and those that an unfinished run or a fork needs
    are also kept."""

    runs: tuple[str, ...] | None = Field(default=None, max_length=MAX_RUNS_AT_ONCE)
    """Only checkpoints of these runs. Empty: of all runs of the team."""

    keep_last: int = Field(default=2, ge=0, le=10_000)
    """Newest valid checkpoints of each run to keep. A run that has not ended keeps at least two."""

    keep_every_steps: int | None = Field(default=None, ge=1)
    """Also keep checkpoints whose step is a multiple of this."""

    delete_exports: StrictBool = False
    """Also delete exports, except the newest of each run."""

    dry_run: StrictBool = True
    """Only report what would be deleted."""


class RetentionReason(StrEnum):
    """Why a checkpoint is kept."""

    NEWEST = "newest"
    MULTIPLE = "multiple"
    PINNED = "pinned"
    DOWNLOADING = "downloading"
    FORKED = "forked"
    LIVE = "live"
    EXPORT = "export"


class RetentionEntry(Envelope):
    checkpoint: Checkpoint
    kept: RetentionReason | None
    """Empty: the checkpoint is deleted."""


class RetentionResult(Envelope):
    freed: FreedSpace
    checkpoints: list[RetentionEntry]
    """All checkpoints that were considered, newest first within a run; at most 2,000 are listed."""


class CheckpointEdit(Strict):
    pinned: StrictBool


class AllowedSlots(Strict):
    """Most slots that a node may have, by device; omitted devices do not change."""

    cuda: int | None = Field(default=None, ge=0, le=MAX_SLOTS)
    cpu: int | None = Field(default=None, ge=0, le=MAX_SLOTS)


class RunMove(Strict):
    """The node that a run must leave."""

    node: str = Field(min_length=1, max_length=63)
    """Name of one of the nodes that the run is on."""


class NodeEdit(Strict):
    """A change of a node; omitted fields do not change."""

    draining: StrictBool | None = None
    """True: the node gets no new runs. Its runs continue, unless `move_runs` is true."""

    move_runs: StrictBool | None = None
    """True: the node drains, and each of its runs saves, leaves it and is queued again. False: its runs continue."""

    quarantined: StrictBool | None = None
    """True: the node gets no runs until it passes a self-test. False: the node is released without a self-test."""

    allowed_slots: AllowedSlots | None = None

    @model_validator(mode="after")
    def _only_drained_nodes_are_emptied(self) -> Self:
        if self.move_runs and self.draining is False:
            rule = "needs a node that drains: leave draining out, or leave move_runs out"
            raise field_error("move_runs", "true", rule)
        return self


class NewRecipe(Strict):
    """Fields of a RunSpec to save under a name. An existing recipe of that name is replaced."""

    name: Name
    spec: dict[str, Any] = Field(max_length=100)
    """Nested as in a RunSpec, without `name` and `data.dataset`."""

    _upgrade = field_validator("spec")(upgrade_spec)


class Recipe(Envelope):
    id: str
    name: str
    spec: dict[str, Any]
    problems: list[Problem] = []
    """The parts that this version considers invalid."""

    saved: AwareDatetime
    saved_by: str

    _upgrade = field_validator("spec")(upgrade_spec)
