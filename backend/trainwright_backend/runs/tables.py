"""Tables of runs: requests, progress, attempts, events, and placements on nodes.

The row of a run is the truth about it, and equals the fold of its events (`transitions.fold`). Higher features write
some data here that is shown with a run: `metrics` writes the summary; `nodes` writes the waiting reason, placements and
node sizes. Rows that a run owns are deleted with it. The preparation that it uses may be deleted once the run has
ended.
"""

import enum
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    JSON,
    BigInteger,
    Dialect,
    Enum,
    ForeignKey,
    Index,
    LargeBinary,
    String,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.engine.default import DefaultExecutionContext
from sqlalchemy.orm import Mapped, mapped_column

from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.run_state import RunState, Verdict
from trainwright_backend.core.db import Base, UtcDateTime


def words(kind: type[enum.StrEnum]) -> Enum:
    """Column type of an enum, stored as its values."""
    return Enum(
        kind, native_enum=False, length=32, values_callable=lambda members: [m.value for m in members]
    )


class EndCodeColumn(TypeDecorator[EndCode]):
    """Column type of an end code, stored as its value. One that a newer version stored is read as unknown."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: EndCode | None, dialect: Dialect) -> str | None:
        return None if value is None else EndCode(value).value

    def process_result_value(self, value: str | None, dialect: Dialect) -> EndCode | None:
        return None if value is None else EndCode(value)


class PlacementEnd(enum.StrEnum):
    """How a claimed placement ended."""

    ENDED = "ended"
    """Its end was accepted."""
    EXPIRED = "expired"
    """Its lease ran out."""


FILTERED_BY = ("state", "created_by", "created_by_name", "folded_name")
LISTED_BY = {
    order: ("team_id", *column, "id", *(name for name in FILTERED_BY if name not in column))
    for order, column in {
        "created": (),
        "name": ("folded_name",),
        "loss": ("loss",),
        "mfu": ("mfu",),
        "tokens_per_second": ("tokens_per_second",),
        "step": ("last_step",),
        "ended": ("ended",),
    }.items()
}
"""Columns of one index for each order of the list. They include all filters, so that a page is found without
reading rows, which are wide."""


def model_size(model: Mapping[str, Any]) -> str:
    """Layers and width of a spec's model: ``12x768``."""
    return f"{model['layers']}x{model['width']}"


def _spec_of(context: DefaultExecutionContext) -> dict[str, Any]:
    spec: dict[str, Any] = context.get_current_parameters()["spec"]
    return spec


class Run(Base):
    """One training that a person requested."""

    __tablename__ = "run"
    __table_args__ = (
        Index("ix_run_state_id", "state", "id"),
        *(Index(f"ix_run_by_{name}", *columns) for name, columns in LISTED_BY.items()),
        Index("ix_run_forked_checkpoint_id", "forked_checkpoint_id"),
        Index("ix_run_team_id_dataset", "team_id", "dataset"),
        Index("ix_run_team_id_model", "team_id", "model"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    team_id: Mapped[UUID] = mapped_column(ForeignKey("team.id", ondelete="CASCADE"))
    preparation_id: Mapped[UUID | None] = mapped_column(
        ForeignKey("preparation.id", ondelete="SET NULL"), index=True
    )
    """Empty once the data of an ended run was deleted."""
    created: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("account.id", ondelete="SET NULL"), index=True)
    created_by_name: Mapped[str]
    """Name of the person at submission, which outlives the account."""

    name: Mapped[str]
    folded_name: Mapped[str] = mapped_column(
        default=lambda context: context.get_current_parameters()["name"].casefold()
    )
    """The name without case, for searching and sorting."""
    spec: Mapped[dict[str, Any]] = mapped_column(JSON)
    dataset: Mapped[str] = mapped_column(default=lambda context: _spec_of(context)["data"]["dataset"])
    """Id of the spec's dataset, by which runs are listed and grouped."""
    model: Mapped[str] = mapped_column(default=lambda context: model_size(_spec_of(context)["model"]))
    """Size of the spec's model, by which runs are listed and grouped: see `model_size`."""
    device: Mapped[str]
    """`cuda` or `cpu`."""
    slots: Mapped[int]
    """On all its nodes together."""
    nodes: Mapped[int] = mapped_column(default=1)
    """Each has the same number of slots. While an attempt on fewer nodes than the spec's is placed (`scheduling.fewer_nodes`), these
    are its nodes and slots."""
    avoided_nodes: Mapped[list[str]] = mapped_column(JSON, default=list)
    """Names of nodes that the next attempt is not placed on, because a person moved the run off them."""

    state: Mapped[RunState] = mapped_column(words(RunState))
    verdict: Mapped[Verdict | None] = mapped_column(words(Verdict))
    reason: Mapped[EndCode | None] = mapped_column(EndCodeColumn(32))
    message: Mapped[str]
    """Message of the newest transition."""
    fence: Mapped[int]
    attempt: Mapped[int]
    event_sequence: Mapped[int]
    """Number of the newest event; counted under this row's lock, so events become visible in their order."""

    waiting_reason: Mapped[str]
    priority: Mapped[int] = mapped_column(default=1)
    """Index in `Priority`. Of a team's waiting runs, those with a higher one start first."""
    queue_place: Mapped[UUID | None]
    """Among the team's waiting runs of equal priority. Empty: its id, so that earlier submissions start first."""
    backfill_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    """If it was placed ahead of its turn, in slots that an earlier run waits for: when that run was expected to start."""
    backfill_for: Mapped[UUID | None]
    """That run. No foreign key: it may be deleted."""
    progress: Mapped[str]
    """The supervisor's text about its current work."""
    started: Mapped[datetime | None] = mapped_column(UtcDateTime)
    ended: Mapped[datetime | None] = mapped_column(UtcDateTime)
    paused: Mapped[datetime | None] = mapped_column(UtcDateTime)
    """Since when it is paused; empty in all other states."""
    metered_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    """While its slots are occupied: the time up to which their usage is recorded (`teams.tables.SlotTime`)."""
    max_seconds: Mapped[float | None]
    """Maximum run time, from its spec. Empty: none."""
    occupied_seconds: Mapped[float] = mapped_column(default=0.0)
    """Metered time on nodes since it was submitted or resumed by a person."""
    retry_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    hinted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)

    last_step: Mapped[int | None] = mapped_column(BigInteger)
    """This and the next three are the latest metrics by which lists are sorted; `metrics` writes them with the
    summary."""
    loss: Mapped[float | None]
    mfu: Mapped[float | None]
    tokens_per_second: Mapped[float | None]

    notes: Mapped[str] = mapped_column(default="")
    """Written by people."""
    forked_from_id: Mapped[UUID | None]
    """The run whose checkpoint this one starts from; no foreign key, since it may be deleted."""
    forked_from_name: Mapped[str | None]
    forked_checkpoint_id: Mapped[UUID | None]
    """No foreign key: `checkpoints.retention` keeps a checkpoint as long as a fork needs it."""
    forked_step: Mapped[int | None] = mapped_column(BigInteger)
    traceparent: Mapped[str | None] = mapped_column(String(64))
    """The trace of the request that submitted it, in W3C's form. Empty: it was not traced."""

    @property
    def requested_nodes(self) -> int:
        """Number of nodes in its spec."""
        return int(self.spec.get("resources", {}).get("nodes", 1))

    @property
    def min_nodes(self) -> int:
        """Least number of nodes of a later attempt."""
        return int(self.spec.get("resources", {}).get("min_nodes") or self.requested_nodes)


class RunTag(Base):
    """A tag of a run."""

    __tablename__ = "run_tag"
    __table_args__ = (Index("ix_run_tag_team_id_tag_run_id", "team_id", "tag", "run_id"),)

    run_id: Mapped[UUID] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    tag: Mapped[str] = mapped_column(String(40), primary_key=True)
    team_id: Mapped[UUID] = mapped_column(ForeignKey("team.id", ondelete="CASCADE"))


class Recipe(Base):
    """Fields of a RunSpec that a team saved under a name, for later runs."""

    __tablename__ = "saved_recipe"
    __table_args__ = (UniqueConstraint("team_id", "name"),)

    id: Mapped[UUID] = mapped_column(primary_key=True)
    team_id: Mapped[UUID] = mapped_column(ForeignKey("team.id", ondelete="CASCADE"))
    name: Mapped[str] = mapped_column(String(80))
    spec: Mapped[dict[str, Any]] = mapped_column(JSON)
    """Without name and dataset; missing fields have their defaults."""
    saved: Mapped[datetime] = mapped_column(UtcDateTime)
    saved_by_name: Mapped[str]


class SavedView(Base):
    """A view of a team's list of runs that a person saved under a name."""

    __tablename__ = "saved_view"
    __table_args__ = (UniqueConstraint("team_id", "account_id", "name"),)

    id: Mapped[UUID] = mapped_column(primary_key=True)
    team_id: Mapped[UUID] = mapped_column(ForeignKey("team.id", ondelete="CASCADE"))
    account_id: Mapped[UUID] = mapped_column(ForeignKey("account.id", ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(String(80))
    view: Mapped[dict[str, Any]] = mapped_column(JSON)
    saved: Mapped[datetime] = mapped_column(UtcDateTime)


class Attempt(Base):
    """One execution of a run, created by the transition to `starting`."""

    __tablename__ = "attempt"

    run_id: Mapped[UUID] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    fence: Mapped[int]
    resume_step: Mapped[int]
    started: Mapped[datetime] = mapped_column(UtcDateTime)
    ended: Mapped[datetime | None] = mapped_column(UtcDateTime)
    reason: Mapped[EndCode | None] = mapped_column(EndCodeColumn(32))
    sequences_read: Mapped[int | None] = mapped_column(BigInteger)
    """If it diverged: sequences of the data order that it had read, its last batch included."""


class AttemptFile(Base):
    """Stored size of a file of an attempt: its events, or the log of a rank."""

    __tablename__ = "attempt_file"

    run_id: Mapped[UUID] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    file: Mapped[str] = mapped_column(primary_key=True)
    bytes: Mapped[int] = mapped_column(BigInteger)
    line_ends: Mapped[int] = mapped_column(BigInteger, default=0)
    """Line feeds in the stored bytes of a log."""
    has_open_line: Mapped[bool] = mapped_column(default=False)
    """A log's last line has no end yet."""


class LogChunk(Base):
    """A range of a log as it arrived."""

    __tablename__ = "log_chunk"
    __table_args__ = (
        Index("ix_log_chunk_lines_before", "run_id", "attempt", "file", "lines_before", "offset"),
    )

    run_id: Mapped[UUID] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    file: Mapped[str] = mapped_column(primary_key=True)
    offset: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    lines_before: Mapped[int] = mapped_column(BigInteger)
    """Line feeds in the log before this chunk."""
    received: Mapped[datetime | None] = mapped_column(UtcDateTime)
    """Empty if an earlier version stored it."""
    content: Mapped[bytes] = mapped_column(LargeBinary)


class RunEvent(Base):
    """Something that happened to a run. The event of a transition has the row's new values."""

    __tablename__ = "run_event"

    run_id: Mapped[UUID] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True)
    time: Mapped[datetime] = mapped_column(UtcDateTime)
    type: Mapped[str]
    state: Mapped[RunState | None] = mapped_column(words(RunState))
    verdict: Mapped[Verdict | None] = mapped_column(words(Verdict))
    reason: Mapped[EndCode | None] = mapped_column(EndCodeColumn(32))
    fence: Mapped[int]
    attempt: Mapped[int]
    step: Mapped[int | None]
    message: Mapped[str]


class RunSummary(Base):
    """Latest metrics of a run; written by `metrics`."""

    __tablename__ = "run_summary"

    run_id: Mapped[UUID] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    step: Mapped[int]
    attempt: Mapped[int]
    values: Mapped[dict[str, float]] = mapped_column(JSON)
    spark: Mapped[list[list[float]]] = mapped_column(JSON)
    """At most 32 pairs of step and loss."""
    spark_stride: Mapped[int]
    """Only steps that are multiples of it are in `spark`; it doubles when `spark` is full."""
    peak_name: Mapped[str | None]
    bf16_peak_name: Mapped[str | None]
    peak_beaten: Mapped[bool] = mapped_column(default=False)
    """The newest attempt was faster than its peak, so the peak is wrong and no fractions of it are kept."""


class Placement(Base):
    """A run's allocation on one of its nodes. A claimed one is kept as the record of its attempt."""

    __tablename__ = "placement"
    __table_args__ = (UniqueConstraint("run_id", "claim_id"),)

    id: Mapped[UUID] = mapped_column(primary_key=True)
    run_id: Mapped[UUID] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), index=True)
    node_id: Mapped[UUID | None] = mapped_column(ForeignKey("node.id", ondelete="SET NULL"), index=True)
    node_name: Mapped[str]
    device: Mapped[str]
    slots: Mapped[list[int]] = mapped_column(JSON)
    node_rank: Mapped[int] = mapped_column(default=0)
    """Position of the node in the run; rank 0 is on node 0, which ships the events and exports."""
    peer: Mapped[str | None]
    """Where the node's launcher could listen, as ``host:port``; empty until its files are fetched."""
    placed: Mapped[datetime] = mapped_column(UtcDateTime)

    claim_id: Mapped[str | None]
    fence: Mapped[int | None]
    job: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    """The granted JobSpec, so that a repeated claim gets the same response."""
    downloads: Mapped[list[dict[str, Any]]] = mapped_column(JSON)
    """Path, bytes, digest and object key of each file; each response signs new links."""
    lease_seconds: Mapped[float | None]
    """The longest lease granted: a renewal may extend it, only a new claim shortens it."""
    renewal: Mapped[int]
    renewed: Mapped[datetime | None] = mapped_column(UtcDateTime)
    """Only for display (`suspect`): whether a lease expired depends on the renewal's number and the reaper's
    own clock."""
    stall: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True), default=None)
    """Where the node's ranks have stalled; empty while they make progress."""
    closed: Mapped[PlacementEnd | None] = mapped_column(words(PlacementEnd), index=True)
    end_reason: Mapped[EndCode | None] = mapped_column(EndCodeColumn(32))


class PlacementSlot(Base):
    """An occupied slot; the primary key prevents two runs from having one."""

    __tablename__ = "placement_slot"

    node_id: Mapped[UUID] = mapped_column(ForeignKey("node.id", ondelete="CASCADE"), primary_key=True)
    device: Mapped[str] = mapped_column(primary_key=True)
    slot_index: Mapped[int] = mapped_column(primary_key=True)
    placement_id: Mapped[UUID] = mapped_column(ForeignKey("placement.id", ondelete="CASCADE"), index=True)


class NodeSize(Base):
    """Slots of each node that ever joined; written by `nodes`, read when a run is submitted."""

    __tablename__ = "node_size"

    node_name: Mapped[str] = mapped_column(primary_key=True)
    device: Mapped[str] = mapped_column(primary_key=True)
    slots: Mapped[int]
    joined: Mapped[bool]
    """False once the node was removed."""
    slot_bytes: Mapped[int | None] = mapped_column(BigInteger, default=None)
    """Memory of a slot: of the smallest GPU, or a CPU slot's share of the node's."""
