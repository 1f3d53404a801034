"""Submitting a run: resolve the spec and store the row, in one transaction.

A submission that can never fit the team's limit or the memory of any node, for a device that no node has, or for another team's
dataset is refused immediately. One that has to wait for data, for a free node, or for the team's other runs is accepted. Until
the first node joins, sizes are unknown, so every size is accepted and waits.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import select

from trainwright.contracts.api.datasets import PreparationState
from trainwright.contracts.api.plans import RunPlan
from trainwright.contracts.api.queue import Priority
from trainwright.contracts.api.runs import SpecCheck
from trainwright.contracts.base import Problem, problems
from trainwright.contracts.data_spec import DataSpec
from trainwright.contracts.parallelism_spec import Device, ResourcesSpec
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.run_state import RunState
from trainwright.planner.flops import count_parameters
from trainwright.planner.plan import Host, plan
from trainwright.tracing import current_traceparent
from trainwright_backend.core.author import Author
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.errors import Invalid
from trainwright_backend.core.ids import new_id, public_id
from trainwright_backend.datasets.data_resolution import check_data, resolve_data
from trainwright_backend.datasets.preparations import get_preparation, why_too_short
from trainwright_backend.datasets.tables import Preparation
from trainwright_backend.runs.gpu_choice import check_gpus
from trainwright_backend.runs.joined_nodes import (
    JoinedNode,
    can_run,
    check_engine,
    check_precision,
    gpu_names,
    has_precision,
    is_loopback,
    named,
    needs_equal_gpus,
    nodes_for,
    nodes_together,
)
from trainwright_backend.runs.limit_usage import check_queued_runs, check_slots
from trainwright_backend.runs.precision_choice import choose_precision
from trainwright_backend.runs.rank_memory import check_memory, largest_slot, smallest_slot
from trainwright_backend.runs.tables import NodeSize, Run, RunSummary
from trainwright_backend.runs.transitions import add_event, add_run
from trainwright_backend.teams.idempotency import deleted_error, reserve_key
from trainwright_backend.teams.slot_quota import count_slots
from trainwright_backend.teams.tables import IdempotencyKey
from trainwright_backend.teams.usage import SECONDS_AN_HOUR

NO_NODE = "no node has joined yet"
_NO_SLOTS = {
    Device.CUDA: "No node has a GPU. Use resources.device cpu, or add a node with a GPU.",
    Device.CPU: "No node offers CPU slots. Use resources.device cuda, or add a node that offers CPU slots.",
}


@dataclass(frozen=True)
class SubmitResult:
    """The run of a submission."""

    run: Run
    replayed: bool
    """The same submission was received before."""


def submit_run(
    session: Write,
    team_id: UUID,
    author: Author,
    spec: RunSpec,
    key: str | None,
    priority: Priority = Priority.NORMAL,
) -> SubmitResult:
    """Store a run for ``spec``, or find the one that was created with the same ``key``.

    Raises:
        AppError: 422 ``idempotency_key_reused``: the key was used with another body; 410 ``run_deleted``.
        Invalid: the spec does not fit the installation, or can never fit the team's limit.
    """
    request = spec.model_dump(mode="json")
    if priority is not Priority.NORMAL:
        request["priority"] = priority
    earlier = reserve_key_or_find_run(session, team_id, key, request)
    if earlier is not None:
        return SubmitResult(earlier, replayed=True)
    run = create_run(session, team_id, author, spec, key)
    run.priority = list(Priority).index(priority)
    session.flush()
    return SubmitResult(run, replayed=False)


def create_run(
    session: Write,
    team_id: UUID,
    author: Author,
    spec: RunSpec,
    key: str | None,
    prepared: UUID | None = None,
) -> Run:
    """Store a run for ``spec``, for which ``key`` was just reserved (`reserve_key_or_find_run`).

    ``prepared`` replaces the preparation that the data section resolves to: another version of the platform may have made
    different shards from the same data.

    Raises:
        AppError: 403 ``quota_exceeded``: the team, or the person, has as many waiting runs as allowed.
        Invalid: the spec does not fit the installation, or can never fit the team's limit.
    """
    resolved = resolve_spec(session, spec)
    check_slots(session, team_id, author.user_id, resolved)
    check_queued_runs(session, team_id, author.user_id)
    if prepared is None:
        data, preparation = resolve_data(session, team_id, resolved.data)
    else:
        data, preparation = resolved.data, get_preparation(session, team_id, prepared)
    _check_length(preparation, resolved)
    choice = choose_precision(session, with_data(resolved, data))
    check_memory(session, choice.spec)
    run = _new_run(team_id, author, choice.spec, preparation.id)
    run.waiting_reason = "" if _any_node_joined(session) else NO_NODE
    add_run(session, run)
    session.created_id = public_id("run", run.id)
    for reason in choice.reasons:
        add_event(session, run, "precision_chosen", reason)
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
    if key is not None:
        session.get_one(IdempotencyKey, (team_id, key)).run_id = run.id
    return run


def resolve_spec(session: Read, spec: RunSpec) -> RunSpec:
    """``spec`` with its device and the length of its warm-up chosen.

    Raises:
        Invalid: no node has the device or the engine, or more slots than the largest node that ever joined has.
    """
    resolved = with_device(session, spec)
    for check in _NODE_CHECKS:
        check(session, resolved)
    return with_warmup(resolved)


def _check_node_slots(session: Read, resources: ResourcesSpec) -> None:
    """Refuse more slots on a node than any node has, for resources with their device chosen."""
    device = resources.device
    largest = _largest_node(session, device)
    if largest is not None and largest.slots == 0:
        raise Invalid.at("resources.device", _NO_SLOTS[device], device.value)
    if largest is not None and resources.slots_per_node > largest.slots:
        raise Invalid.at(
            "resources.slots_per_node",
            f"{count_slots(device, resources.slots_per_node)} are more than any node has: the largest that ever joined, "
            f"{largest.node_name}, has {largest.slots}. Request fewer, or add a larger node.",
            resources.slots_per_node,
        )


def _largest_node(session: Read, device: Device) -> NodeSize | None:
    """The node with the most slots of a device that ever joined; None before the first one."""
    sizes = select(NodeSize).where(NodeSize.device == device)
    return session.scalars(sizes.order_by(NodeSize.slots.desc()).limit(1)).first()


def _with_available_slots(session: Read, spec: object) -> tuple[object, list[Problem]]:
    """``spec``, any JSON value, with as many slots as the largest node has if it requests more, and the problem of those it requests.

    Other fields may fit only one of the two numbers, such as a batch that is divided among the ranks.
    """
    given = spec.get("resources", {}) if isinstance(spec, Mapping) else None
    try:
        resources = _with_device(session, ResourcesSpec.model_validate(given))
        _check_node_slots(session, resources)
    except ValidationError:
        return spec, []
    except Invalid as error:
        largest = _largest_node(session, resources.device)
        if largest is None or largest.slots == 0:
            return spec, error.errors
        assert isinstance(spec, Mapping) and isinstance(given, Mapping)
        return {**spec, "resources": {**given, "slots_per_node": largest.slots}}, error.errors
    return spec, []


def _check_nodes(session: Read, spec: RunSpec) -> None:
    """Refuse more nodes than joined, as far as they can be part of a run on several nodes."""
    resources = spec.resources
    capable = nodes_for(session, spec)
    if resources.nodes == 1 or not capable:
        return
    peers = [
        node
        for node in capable
        if node.peer_address is not None and can_run(node, spec) and has_precision(node.gpus, spec.precision)
    ]
    alike = needs_equal_gpus(spec)
    together = nodes_together(
        peers,
        resources.nodes,
        lambda node: is_loopback(node.peer_address),
        lambda node: gpu_names(node.gpus) if alike else None,
    )
    if resources.nodes > len(together):
        number = "1 joined node qualifies" if len(together) == 1 else f"{len(together)} joined nodes qualify"
        raise Invalid.at(
            "resources.nodes",
            f"This run needs {resources.nodes} nodes with {count_slots(resources.device, resources.slots_per_node)} each; "
            f"{number}.{_why_not_others(capable, peers, together)} Request fewer, or add nodes.",
            resources.nodes,
        )


def _why_not_others(
    capable: Sequence[JoinedNode], peers: Sequence[JoinedNode], together: Sequence[JoinedNode]
) -> str:
    """Why other nodes of the same size do not qualify, and the remedy."""
    text = ""
    if unreachable := [node for node in capable if node.peer_address is None]:
        text += (
            f" {named(unreachable)} reported no address for other nodes: upgrade the agent, or start it with"
            " --peer-address."
        )
    others = [node for node in peers if node not in together]
    if any(is_loopback(node.peer_address) != is_loopback(together[0].peer_address) for node in others):
        text += (
            " Nodes that joined through a loopback address share runs only with each other: start their agents with"
            " --peer-address, or join them through the server's address in the network."
        )
    if unlike := [node for node in others if gpu_names(node.gpus) != gpu_names(together[0].gpus)]:
        text += (
            f" {named(unlike)} has other GPUs, which would make the faster ones wait in each step: use parallelism.pipeline with"
            " stages auto over unlike nodes."
        )
    return text


_NODE_CHECKS: Sequence[Callable[[Read, RunSpec], None]] = (
    lambda session, spec: _check_node_slots(session, spec.resources),
    _check_nodes,
    check_engine,
    check_precision,
    check_gpus,
)
"""What the joined nodes must have for a spec with its device chosen. Each check raises `Invalid`."""


def with_device(session: Read, spec: RunSpec) -> RunSpec:
    """``spec`` with ``auto`` replaced by a device."""
    return spec.model_copy(update={"resources": _with_device(session, spec.resources)})


def _with_device(session: Read, resources: ResourcesSpec) -> ResourcesSpec:
    device = resources.device
    if device is Device.AUTO:
        has_cuda = select(NodeSize).where(NodeSize.device == Device.CUDA, NodeSize.slots > 0, NodeSize.joined)
        device = Device.CUDA if session.scalars(has_cuda.limit(1)).first() else Device.CPU
    return resources.model_copy(update={"device": device})


def with_warmup(spec: RunSpec) -> RunSpec:
    """``spec`` with the length of its warm-up, which a later change of its steps then leaves as it is."""
    schedule = spec.schedule.model_copy(update={"warmup_steps": spec.schedule.resolved_warmup_steps})
    return spec.model_copy(update={"schedule": schedule})


def validate_run(session: Read, team_id: UUID, spec: object) -> SpecCheck:
    """Check ``spec``, any JSON value, against the schema and the installation; nothing is stored.

    Problems of data, nodes, limits and memory are returned together. If it requests more slots than any node has, everything else is
    checked with as many as the largest node has.
    """
    possible, too_many = _with_available_slots(session, spec)
    found = _Problems(too_many)
    given = _parse(spec)
    parsed = _parse(possible) if too_many else given
    if isinstance(parsed, ValidationError):
        if isinstance(given, ValidationError):
            found.add(problems(parsed, RunSpec))
            found.collect(lambda: _check_given_data(session, team_id, possible))
            return found.check()
        parsed = given
    placed = with_device(session, parsed)
    for check in _NODE_CHECKS:
        found.collect(partial(check, session, placed))
    try:
        stored, preparation = plannable_spec(session, team_id, parsed)
    except Invalid as error:
        found.add(error.errors)
        found.collect(lambda: check_slots(session, team_id, None, placed))
        found.collect(lambda: check_memory(session, choose_precision(session, placed).spec))
        return found.check()
    found.collect(lambda: check_slots(session, team_id, None, stored))
    if preparation is not None:
        found.collect(lambda: _check_length(preparation, stored))
    found.collect(lambda: check_memory(session, stored))
    if isinstance(given, ValidationError):
        return found.check()
    if given is not parsed:
        stored, _ = plannable_spec(session, team_id, given)
    return found.check(
        spec=stored,
        parameters=count_parameters(
            stored.model, stored.data.tokenizer.size, stored.batch.sequence_tokens
        ).total,
        train_tokens=preparation.train_tokens if preparation else None,
        warnings=_data_warnings(preparation, stored) if preparation else [],
    )


def _check_given_data(session: Read, team_id: UUID, spec: object) -> None:
    """Check the data of a spec that other sections make invalid."""
    given = spec.get("data") if isinstance(spec, Mapping) else None
    with suppress(ValidationError):
        check_data(session, team_id, DataSpec.model_validate(given))


def _parse(spec: object) -> RunSpec | ValidationError:
    try:
        return RunSpec.model_validate(spec)
    except ValidationError as error:
        return error


class _Problems:
    """The problems of a spec, the first of each field."""

    def __init__(self, found: Sequence[Problem]) -> None:
        self._found = {problem.field: problem for problem in found}

    def add(self, found: Sequence[Problem]) -> None:
        for problem in found:
            self._found.setdefault(problem.field, problem)

    def collect(self, check: Callable[[], object]) -> None:
        """Add the problems that ``check`` raises."""
        try:
            check()
        except Invalid as error:
            self.add(error.errors)

    def check(self, **known: Any) -> SpecCheck:
        """The result, with what is known about the spec."""
        return SpecCheck(valid=not self._found, problems=list(self._found.values()), **known)


def plannable_spec(session: Read, team_id: UUID, spec: RunSpec) -> tuple[RunSpec, Preparation | None]:
    """The spec that `submit_run` would store, and the preparation of its data, if there is one. Whether the nodes, the team's limit and
    the length of the data suffice is not checked.

    Raises:
        Invalid: the data does not fit the spec, or no node has the engine.
    """
    placed = with_warmup(with_device(session, spec))
    check_engine(session, placed)
    data, preparation = check_data(session, team_id, placed.data)
    return choose_precision(session, with_data(placed, data)).spec, preparation


def plan_run(session: Read, team_id: UUID, spec: RunSpec) -> RunPlan:
    """The plan of a run for ``spec``, even if no node could run it.

    Raises:
        Invalid: as `plannable_spec`.
    """
    resolved, _ = plannable_spec(session, team_id, spec)
    return plan(
        resolved,
        cuda=resolved.resources.device is Device.CUDA,
        slot=smallest_slot(session, resolved),
        largest=largest_slot(session, resolved),
        host=_largest_host(session, resolved),
    )


def _largest_host(session: Read, spec: RunSpec) -> Host | None:
    """The joined node with most memory of those that could run ``spec``: placing prefers it where offload needs
    it."""
    capable = [item for item in nodes_for(session, spec) if can_run(item, spec)]
    largest = max(capable, key=lambda node: node.memory_bytes, default=None)
    return Host(largest.name, largest.memory_bytes) if largest else None


def with_data(spec: RunSpec, data: DataSpec) -> RunSpec:
    """``spec`` with its resolved ``data``."""
    return spec.model_copy(update={"data": data})


def _check_length(preparation: Preparation, spec: RunSpec) -> None:
    """Refuse data shorter than one sequence. If it is still being prepared, placement checks again."""
    why = why_too_short(preparation, spec.batch.sequence_tokens)
    if why is not None:
        raise Invalid.at("batch.sequence_tokens", why, spec.batch.sequence_tokens)


def _data_warnings(preparation: Preparation, spec: RunSpec) -> list[str]:
    """A warning if a ready preparation has too few tokens to validate on."""
    tokens, length = preparation.validation_tokens, spec.batch.sequence_tokens
    if preparation.state != PreparationState.READY or tokens is None or tokens > length:
        return []
    return [
        f"There will be no validation loss: the validation split has {tokens:,} tokens, and one sequence of {length:,} needs "
        f"{length + 1:,}. Raise data.validation_fraction, or lower batch.sequence_tokens."
    ]


def _new_run(team_id: UUID, author: Author, spec: RunSpec, preparation_id: UUID) -> Run:
    return Run(
        id=new_id(),
        team_id=team_id,
        preparation_id=preparation_id,
        created=now(),
        created_by=author.user_id,
        created_by_name=author.name,
        name=spec.name,
        spec=spec.model_dump(mode="json"),
        device=spec.resources.device.value,
        slots=spec.resources.ranks,
        nodes=spec.resources.nodes,
        max_seconds=None if spec.resources.max_hours is None else spec.resources.max_hours * SECONDS_AN_HOUR,
        state=RunState.QUEUED,
        verdict=None,
        reason=None,
        message=f"submitted by {author.name}",
        fence=0,
        attempt=0,
        event_sequence=1,
        waiting_reason="",
        progress="",
        traceparent=current_traceparent(),
    )


def reserve_key_or_find_run(session: Write, team_id: UUID, key: str | None, request: Any) -> Run | None:
    """Reserve ``key`` for this submission, or find the run that it created. A concurrent request waits.

    Args:
        key: None takes nothing and finds nothing.
        request: JSON; everything that determines the new run.

    Raises:
        AppError: 422 ``idempotency_key_reused``: the key was used with another body; 410 ``run_deleted``.
    """
    earlier = reserve_key(session, team_id, key, request)
    if earlier is None:
        return None
    if earlier.run_id is None:
        raise deleted_error("run")
    return session.get_one(Run, earlier.run_id)


def _any_node_joined(session: Read) -> bool:
    return session.scalars(select(NodeSize).limit(1)).first() is not None
