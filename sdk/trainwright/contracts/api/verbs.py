"""What people do with runs: edit, pause, copy, fork, lay out anew, keep checkpoints, delete; one or many at a time."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AfterValidator, AwareDatetime, Field, StringConstraints, model_validator

from trainwright.contracts.api.checkpoints import Checkpoint
from trainwright.contracts.base import Envelope, Problem, Strict
from trainwright.contracts.parallelism_spec import ParallelismSpec
from trainwright.contracts.run_spec import Name


def _is_tag(tag: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", tag):
        raise ValueError("use small letters, digits and . _ -, beginning with a letter or a digit")
    return tag


Tag = Annotated[str, StringConstraints(min_length=1, max_length=40), AfterValidator(_is_tag)]

MOST_TAGS = 20
MOST_RUNS_AT_ONCE = 200


class RunEdit(Strict):
    """Changes what people call a run; what is left out stays."""

    name: Name | None = None
    tags: tuple[Tag, ...] | None = Field(default=None, max_length=MOST_TAGS)
    notes: str | None = Field(default=None, max_length=20_000)


class RunLayout(Strict):
    """Another way to cut a run over the same number of ranks. It is for the next attempt."""

    parallelism: ParallelismSpec
    micro_sequences: int | None = Field(default=None, ge=1)
    """`batch.micro_sequences`, which another layout may want changed; stays when left empty."""


class NewClone(Strict):
    """A new run with the configuration of another, from step 0."""

    name: Name
    changes: dict[str, Any] = Field(default={}, max_length=100)
    """Fields of the spec that differ, by their dotted names, such as `optimizer.learning_rate`."""


class NewFork(NewClone):
    """A new run that goes on from a checkpoint of another."""

    checkpoint: str | None = None
    """Id of a state; the newest valid one when left empty."""


class BulkVerb(StrEnum):
    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    DELETE = "delete"
    TAG = "tag"
    UNTAG = "untag"


class BulkAction(Strict):
    """One verb for many runs. Each succeeds or is refused by itself."""

    verb: BulkVerb
    runs: tuple[str, ...] = Field(min_length=1, max_length=MOST_RUNS_AT_ONCE)
    tags: tuple[Tag, ...] = Field(default=(), max_length=MOST_TAGS)
    """For `tag` and `untag`."""

    @model_validator(mode="after")
    def _tags_belong(self) -> Self:
        if bool(self.tags) is not (self.verb in (BulkVerb.TAG, BulkVerb.UNTAG)):
            raise ValueError("tags are given with the verbs tag and untag, and only with them")
        return self


class Freed(Envelope):
    """What a deletion freed, or would free."""

    dry_run: bool
    bytes: int
    """Of the object store. They are free once the next sweep has passed, or the links that somebody was given expired."""

    checkpoints: int


class BulkResult(Envelope):
    """What became of one run."""

    run: str
    done: bool
    code: str | None = None
    """Of the refusal, as in an error's body."""

    detail: str = ""

    freed: Freed | None = None
    """By the verb `delete`."""


class Retention(Strict):
    """Which checkpoints to keep. Exports, pinned ones, those on their way to somebody, and those that a live run or a
    fork needs are kept besides."""

    runs: tuple[str, ...] | None = Field(default=None, max_length=MOST_RUNS_AT_ONCE)
    """Of these runs only; of all the team's runs when left empty."""

    keep_last: int = Field(default=2, ge=0, le=10_000)
    """Newest valid states of each run. A run that has not ended keeps two in any case."""

    keep_every_steps: int | None = Field(default=None, ge=1)
    """Also those whose step is a multiple of it."""

    delete_exports: bool = False
    """Exports go too, but a run's newest."""

    dry_run: bool = True
    """Only say what would be deleted."""


class KeptBecause(StrEnum):
    """Why a retention keeps a checkpoint."""

    NEWEST = "newest"
    MULTIPLE = "multiple"
    PINNED = "pinned"
    DOWNLOADING = "downloading"
    FORKED = "forked"
    LIVE = "live"
    EXPORT = "export"


class RetainedCheckpoint(Envelope):
    checkpoint: Checkpoint
    kept: KeptBecause | None
    """Empty: it is deleted."""


class RetentionResult(Envelope):
    freed: Freed
    checkpoints: list[RetainedCheckpoint]
    """All that were looked at, newest first within a run; at most 2,000 are listed."""


class CheckpointEdit(Strict):
    pinned: bool


class NodeEdit(Strict):
    draining: bool


class NewRecipe(Strict):
    """Fields of a RunSpec to keep under a name. Saving under a name that exists replaces it."""

    name: Name
    spec: dict[str, Any] = Field(max_length=100)
    """Nested as in a RunSpec, without `name` and `data.dataset`."""


class SavedRecipe(Envelope):
    id: str
    name: str
    spec: dict[str, Any]
    problems: list[Problem] = []
    """What this version refuses in it."""

    saved: AwareDatetime
    saved_by: str
