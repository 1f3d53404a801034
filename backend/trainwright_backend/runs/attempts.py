"""Layouts, nodes and times of attempts, from their placements and the JobSpecs that their claims were granted.

A run's spec has the layout of its next attempt, which may differ.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import bindparam, select

from trainwright.contracts.api.actions import RunLayout
from trainwright.contracts.job_spec import JobKind
from trainwright_backend.core.db import Read
from trainwright_backend.runs.tables import Attempt, Placement, Run

_NEWEST_LAYOUTS = (
    select(
        Placement.run_id,
        Placement.job["spec"]["parallelism"],
        Placement.job["spec"]["batch"]["micro_sequences"].as_integer(),
    )
    .join(Run, Run.id == Placement.run_id)
    .where(Run.id.in_(bindparam("run_ids", expanding=True)), Placement.fence == Run.fence)
    .where(Placement.job["kind"].as_string() == JobKind.TRAIN)
)
_CLAIMED_NODES = (
    select(Placement.run_id, Placement.fence, Placement.node_name)
    .where(Placement.run_id.in_(bindparam("run_ids", expanding=True)), Placement.fence.is_not(None))
    .order_by(Placement.fence, Placement.node_rank)
)
_ENDED_ATTEMPTS = select(Attempt.run_id, Attempt.started, Attempt.ended).where(
    Attempt.run_id.in_(bindparam("run_ids", expanding=True)), Attempt.ended.is_not(None)
)
"""This, `_CLAIMED_NODES` and `_NEWEST_LAYOUTS` are built once (see `core.db`)."""


def layout_of(spec: dict[str, Any]) -> RunLayout:
    """The layout in a stored spec."""
    return _layout(spec.get("parallelism"), spec["batch"]["micro_sequences"])


def newest_layouts(session: Read, run_ids: Sequence[UUID]) -> dict[UUID, RunLayout]:
    """The layout of each run's newest attempt, if the attempt trains and this version can read it."""
    found = {}
    for run_id, parallelism, size in session.execute(_NEWEST_LAYOUTS, {"run_ids": run_ids}):
        with suppress(ValidationError):  # written by a version with other rules
            found[run_id] = _layout(parallelism, size)
    return found


def nodes_by_fence(session: Read, run_ids: Sequence[UUID]) -> dict[tuple[UUID, int], list[str]]:
    """Names of the nodes that claimed each attempt of the runs, in the order of their ranks."""
    found: dict[tuple[UUID, int], list[str]] = {}
    for run_id, fence, name in session.execute(_CLAIMED_NODES, {"run_ids": run_ids}):
        assert fence is not None, "a claimed placement has a fence"
        found.setdefault((run_id, fence), []).append(name)
    return found


def seconds_of_attempts(session: Read, run_ids: Sequence[UUID]) -> dict[UUID, float]:
    """How long the ended attempts of each run took together."""
    found: dict[UUID, float] = {}
    for run_id, started, ended in session.execute(_ENDED_ATTEMPTS, {"run_ids": run_ids}):
        assert ended is not None
        found[run_id] = found.get(run_id, 0.0) + (ended - started).total_seconds()
    return found


def node_of_log(nodes: Sequence[str], slots_per_node: int, file: str) -> str | None:
    """The node of the rank that wrote ``file`` (`rank-<n>.log`).

    Args:
        nodes: of the attempt, in the order of their ranks.
        slots_per_node: of each node.
        file: name of the log.
    """
    rank = file.removeprefix("rank-").removesuffix(".log")
    if file != f"rank-{rank}.log" or not rank.isdecimal():
        return None
    node = int(rank) // slots_per_node
    return nodes[node] if node < len(nodes) else None


def _layout(parallelism: dict[str, Any] | None, micro_sequences: int) -> RunLayout:
    return RunLayout.model_validate({"parallelism": parallelism or {}, "micro_sequences": micro_sequences})
