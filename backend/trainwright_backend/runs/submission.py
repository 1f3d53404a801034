"""Submitting a run: resolve the spec, reserve the slots, store the row; all of it in one transaction or nothing.

A submission over the team's quota, for a device nobody has, or for a dataset that is not the team's is refused at
once. One that waits for data or for a free node is accepted. Before the first node has joined nothing is known about
sizes, so then every size is accepted and waits.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite

from trainwright.contracts.api.plans import RunPlan
from trainwright.contracts.api.runs import Verdicts
from trainwright.contracts.data_spec import DataSpec
from trainwright.contracts.parallelism_spec import Device
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.run_state import RunState
from trainwright.planner.flops import count_parameters
from trainwright.planner.plan import Host, Slot, plan
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.errors import AppError, Invalid
from trainwright_backend.core.ids import new_id
from trainwright_backend.datasets.preparations import get_preparation, why_too_short
from trainwright_backend.datasets.resolution import check_data, resolve_data
from trainwright_backend.datasets.tables import Preparation
from trainwright_backend.runs.fleet import can_run, check_engine, machines_for
from trainwright_backend.runs.moves import begin
from trainwright_backend.runs.tables import NodeSize, Run, RunSummary, Submission
from trainwright_backend.teams.service import reserve

NO_NODE = "no node has joined yet"
LONGEST_KEY = 200
_NO_SLOTS = {
    Device.CUDA: "No node has a GPU. Use resources.device cpu, or let a node with one join.",
    Device.CPU: "No node gives CPU slots. Use resources.device cuda, or let a node that gives some join.",
}


@dataclass(frozen=True)
class Submitter:
    """The person behind a submission."""

    user_id: UUID
    name: str


@dataclass(frozen=True)
class Submitted:
    """The run of a submission."""

    run: Run
    replayed: bool
    """The same submission came before."""


def submit_run(
    session: Write, team_id: UUID, submitter: Submitter, spec: RunSpec, key: str | None
) -> Submitted:
    """Store a run for ``spec``, or find the one that the same ``key`` made.

    Raises:
        AppError: 422 ``idempotency_key_reused``: the key came with another body; 410 ``run_deleted``.
        AppError: 403 ``quota_exceeded``.
        Invalid: the spec does not fit the installation.
    """
    earlier = earlier_run(session, team_id, key, spec.model_dump(mode="json"))
    if earlier is not None:
        return Submitted(earlier, replayed=True)
    return Submitted(begin_run(session, team_id, submitter, spec, key), replayed=False)


def begin_run(
    session: Write,
    team_id: UUID,
    submitter: Submitter,
    spec: RunSpec,
    key: str | None,
    prepared: UUID | None = None,
) -> Run:
    """Store a run for ``spec``, which ``key`` has just been taken for (`earlier_run`).

    ``prepared`` is the preparation to train on where it is not for the data section to say which: another version of
    the platform may have made other shards of the same data.

    Raises:
        AppError: 403 ``quota_exceeded``.
        Invalid: the spec does not fit the installation.
    """
    resolved = resolve_resources(session, spec)
    if prepared is None:
        data, preparation = resolve_data(session, team_id, resolved.data)
    else:
        data, preparation = resolved.data, get_preparation(session, team_id, prepared)
    _check_length(preparation, resolved)
    run = _new_run(team_id, submitter, with_data(resolved, data), preparation.id)
    run.waiting_reason = "" if _any_node_joined(session) else NO_NODE
    begin(session, run)
    session.add(
        RunSummary(
            run_id=run.id,
            step=0,
            attempt=0,
            values={},
            spark=[],
            spark_stride=1,
            peak_name=None,
            bf16_peak_name=None,
        )
    )
    reserve(session, team_id, run.device, run.slots, run.id)
    if key is not None:
        session.get_one(Submission, (team_id, key)).run_id = run.id
    return run


def resolve_resources(session: Read, spec: RunSpec) -> RunSpec:
    """``spec`` with its device chosen.

    Raises:
        Invalid: no node has the device or the engine, or more slots than the largest node that ever joined has.
    """
    asked = spec.resources
    device = asked.device
    if device is Device.AUTO:
        has_cuda = select(NodeSize).where(NodeSize.device == Device.CUDA, NodeSize.slots > 0, NodeSize.joined)
        device = Device.CUDA if session.scalars(has_cuda.limit(1)).first() else Device.CPU
    largest = session.scalars(
        select(NodeSize).where(NodeSize.device == device).order_by(NodeSize.slots.desc()).limit(1)
    ).first()
    if largest is not None and largest.slots == 0:
        message = _NO_SLOTS[device]
        raise Invalid.at("resources.device", message, device.value)
    if largest is not None and asked.slots_per_node > largest.slots:
        raise Invalid.at(
            "resources.slots_per_node",
            f"{asked.slots_per_node} {device} slots are more than any node has: the largest that ever joined, "
            f"{largest.node_name}, has {largest.slots}. Ask for fewer, or let a larger node join.",
            asked.slots_per_node,
        )
    resolved = spec.model_copy(update={"resources": asked.model_copy(update={"device": device})})
    check_engine(session, resolved)
    return resolved


def check_spec(session: Read, team_id: UUID, spec: RunSpec) -> Verdicts:
    """What `submit_run` would store, short of the quota.

    Raises:
        Invalid: it would be refused.
    """
    resolved = resolve_resources(session, spec)
    data, preparation = check_data(session, team_id, resolved.data)
    if preparation is not None:
        _check_length(preparation, resolved)
    stored = with_data(resolved, data)
    parameters = count_parameters(stored.model, stored.data.tokenizer.size).total
    return Verdicts(valid=True, spec=stored, parameters=parameters)


def plan_run(session: Read, team_id: UUID, spec: RunSpec) -> RunPlan:
    """What the layout of a run for ``spec`` would come to.

    Raises:
        Invalid: a submission would be refused.
    """
    verdicts = check_spec(session, team_id, spec)
    assert verdicts.spec is not None
    resources = verdicts.spec.resources
    slot = _smallest_slot(session, resources.device, resources.slots_per_node)
    cuda = resources.device is Device.CUDA
    return plan(verdicts.spec, cuda=cuda, slot=slot, host=_largest_host(session, verdicts.spec))


def _smallest_slot(session: Read, device: Device, slots: int) -> Slot | None:
    """That with least memory, of joined nodes with so many; None where none has said its memory."""
    sizes = select(NodeSize).where(NodeSize.device == device, NodeSize.joined, NodeSize.slots >= slots)
    known = sizes.where(NodeSize.slot_bytes.is_not(None)).order_by(NodeSize.slot_bytes, NodeSize.node_name)
    found = session.scalars(known.limit(1)).first()
    return Slot(found.node_name, found.slot_bytes) if found and found.slot_bytes else None


def _largest_host(session: Read, spec: RunSpec) -> Host | None:
    """The joined node with most memory of those that could run ``spec``: placing prefers it where offload needs it."""
    able = [one for one in machines_for(session, spec) if can_run(one, spec)]
    largest = max(able, key=lambda one: one.memory_bytes, default=None)
    return Host(largest.name, largest.memory_bytes) if largest else None


def with_data(spec: RunSpec, data: DataSpec) -> RunSpec:
    """``spec`` over ``data``, in which nothing is left open."""
    return spec.model_copy(update={"data": data})


def _check_length(preparation: Preparation, spec: RunSpec) -> None:
    """Refuse data that is shorter than one sequence. While it is prepared nobody knows; then placing looks again."""
    why = why_too_short(preparation, spec.batch.sequence_tokens)
    if why is not None:
        raise Invalid.at("batch.sequence_tokens", why, spec.batch.sequence_tokens)


def _new_run(team_id: UUID, submitter: Submitter, spec: RunSpec, preparation_id: UUID) -> Run:
    return Run(
        id=new_id(),
        team_id=team_id,
        preparation_id=preparation_id,
        created=now(),
        created_by=submitter.user_id,
        created_by_name=submitter.name,
        name=spec.name,
        spec=spec.model_dump(mode="json"),
        device=spec.resources.device.value,
        slots=spec.resources.slots_per_node,
        state=RunState.QUEUED,
        verdict=None,
        reason=None,
        message=f"submitted by {submitter.name}",
        fence=0,
        attempt=0,
        event_sequence=1,
        waiting_reason="",
        progress="",
    )


def earlier_run(session: Write, team_id: UUID, key: str | None, asked: Any) -> Run | None:
    """Take ``key`` for this submission, or find the run it made. Two at once: the second waits for the first.

    Args:
        key: None takes nothing and finds nothing.
        asked: JSON; everything that the new run follows from.

    Raises:
        AppError: 422 ``idempotency_key_reused``: the key came with another body; 410 ``run_deleted``.
    """
    if key is None:
        return None
    if not 1 <= len(key) <= LONGEST_KEY:
        raise Invalid.at("Idempotency-Key", f"The key has 1 to {LONGEST_KEY} characters.", len(key))
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    insert = sqlite.insert if session.get_bind().dialect.name == "sqlite" else postgresql.insert
    row = {"team_id": team_id, "key": key, "body_digest": digest, "run_id": None, "created": now()}
    taken = session.execute(
        insert(Submission).values(**row).on_conflict_do_nothing().returning(Submission.key)
    ).first()
    if taken is not None:
        return None
    earlier = session.get_one(Submission, (team_id, key))
    if earlier.body_digest != digest:
        detail = "This Idempotency-Key came with another body before. Use a new key for a new run."
        raise AppError("idempotency_key_reused", 422, detail)
    if earlier.run_id is None:
        detail = "The run of this Idempotency-Key was deleted. Use a new key for a new run."
        raise AppError("run_deleted", 410, detail)
    return session.get_one(Run, earlier.run_id)


def _any_node_joined(session: Read) -> bool:
    return session.scalars(select(NodeSize).limit(1)).first() is not None
