"""Tables of nodes: the machines that joined, their load, their failures, tests of their connections, and one-time join tokens."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import JSON, BigInteger, ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from trainwright_backend.core.db import Base, UtcDateTime


class Node(Base):
    """A machine with an agent."""

    __tablename__ = "node"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(63), unique=True)
    token_hash: Mapped[str] = mapped_column(String(64), unique=True)
    joined: Mapped[datetime] = mapped_column(UtcDateTime)
    inventory: Mapped[dict[str, Any]] = mapped_column(JSON)
    busy_slots: Mapped[dict[str, list[int]]] = mapped_column(JSON)
    """Slots, by device, on which the agent saw a process with a run's marker."""
    hardware: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    """Use of its hardware at the last heartbeat."""
    load_minute: Mapped[datetime | None] = mapped_column(UtcDateTime)
    """The newest minute in `NodeLoad`."""
    last_heartbeat: Mapped[datetime | None] = mapped_column(UtcDateTime)
    allowed_slots: Mapped[dict[str, int] | None] = mapped_column(JSON(none_as_null=True))
    """Most slots by device, even if the node reports more; None for as many as it reports."""
    draining: Mapped[bool] = mapped_column(default=False)
    """The node gets no new runs."""
    move_runs: Mapped[bool] = mapped_column(default=False)
    """While it drains, its runs are moved off. Always false otherwise."""
    quarantined: Mapped[datetime | None] = mapped_column(UtcDateTime)
    """Start of the quarantine, during which the node gets no runs; None if it is not in quarantine."""
    quarantine_reason: Mapped[str] = mapped_column(default="")
    self_test: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    """Result of the newest self-test."""


class NodeLoad(Base):
    """Use of a node's hardware at its first heartbeat of a minute. Rows of the last day are kept."""

    __tablename__ = "node_load"

    node_id: Mapped[UUID] = mapped_column(ForeignKey("node.id", ondelete="CASCADE"), primary_key=True)
    minute: Mapped[datetime] = mapped_column(UtcDateTime, primary_key=True)
    cpu_utilization: Mapped[float]
    memory_bytes: Mapped[int] = mapped_column(BigInteger)
    disk_bytes: Mapped[int] = mapped_column(BigInteger)
    gpus: Mapped[list[list[Any]]] = mapped_column(JSON)
    """Of each GPU its index, utilization, bytes, watts and degrees Celsius."""


class NodeFailure(Base):
    """A failure of a node's hardware, kernel or network. Only failures of the last day count."""

    __tablename__ = "node_failure"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    node_id: Mapped[UUID] = mapped_column(ForeignKey("node.id", ondelete="CASCADE"), index=True)
    time: Mapped[datetime] = mapped_column(UtcDateTime)
    code: Mapped[str] = mapped_column(String(32))
    message: Mapped[str]


class LinkTest(Base):
    """A running test of the connection between two nodes, for the self-test of a node in quarantine."""

    __tablename__ = "link_test"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    suspect_id: Mapped[UUID] = mapped_column(ForeignKey("node.id", ondelete="CASCADE"), index=True)
    """The node in quarantine."""
    listener_id: Mapped[UUID] = mapped_column(ForeignKey("node.id", ondelete="CASCADE"), index=True)
    connector_id: Mapped[UUID] = mapped_column(ForeignKey("node.id", ondelete="CASCADE"), index=True)
    key: Mapped[str] = mapped_column(String(64))
    begun: Mapped[datetime] = mapped_column(UtcDateTime)
    port: Mapped[int | None]
    """At which the listener waits; empty until it does."""
    listener_result: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    """A `LinkResult`; empty until the node has finished."""
    connector_result: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))


class JoinToken(Base):
    """Allows one machine to join once, under one name."""

    __tablename__ = "join_token"

    token_hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str] = mapped_column(String(63))
    any_slots: Mapped[bool] = mapped_column(default=False)
    """The node may later report more slots than at its join."""
    expires: Mapped[datetime] = mapped_column(UtcDateTime)
