"""Estimating a run from its spec: FLOPs, memory and bytes by formulas, and time only from a measurement; until there is one, the
time that it would take at the peak of the fastest node.

The time comes from an earlier run of the team that computed the same on the same kind of node: model and vocabulary,
sequence and micro batch, layout, precision, recomputation. The JobSpec granted to an attempt's claim says what the
attempt computed, because a run's layout may change between attempts. Speeds of other models or machines are not
extrapolated: showing no figure is better than showing a guess.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import defer, load_only

from trainwright.contracts.api.usage import MeasuredThroughput, RunEstimate
from trainwright.contracts.job_spec import JobSpec
from trainwright.contracts.parallelism_spec import Device
from trainwright.contracts.run_spec import RunSpec
from trainwright.planner.checkpoints import state_bytes, stored_bytes
from trainwright.planner.flops import count_parameters, training_flops
from trainwright.planner.plan import memory_needs, plan
from trainwright_backend.checkpoints.usage import checkpoint_bytes
from trainwright_backend.core.db import Read
from trainwright_backend.core.errors import Invalid
from trainwright_backend.core.ids import public_id
from trainwright_backend.metrics.reading import read_curves
from trainwright_backend.metrics.tables import MetricSeries
from trainwright_backend.nodes.inventory import inventory_of, slots_of, threads_per_slot
from trainwright_backend.nodes.peaks import fastest_peak
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.submission import plannable_spec
from trainwright_backend.runs.tables import Attempt, Placement, Run
from trainwright_backend.teams.storage_quota import storage_use
from trainwright_backend.teams.usage import SECONDS_AN_HOUR

SECONDS_A_DAY = 86_400.0
LOOKED_AT_RUNS = 200
"""The newest runs on as many slots of the same device."""
MIN_STEPS = 5
"""Fewer steps are not a measurement, because the first ones compile and warm up."""
MAX_STEPS = 10_000
RATE = "tokens_per_second"


@dataclass(frozen=True)
class Kind:
    """The properties that make two nodes equally fast for a rank."""

    device: str
    name: str
    """Name of the GPU or the CPU."""
    threads_per_rank: int | None
    """Threads of a rank on CPUs; None on GPUs."""


def estimate_run(session: Read, team_id: UUID, requested: RunSpec, begin_step: int = 0) -> RunEstimate:
    """Estimate a run for ``requested`` that continues from ``begin_step``, as a fork does, even if no node could run it.

    Raises:
        Invalid: as `plannable_spec`, or no steps are left to train.
    """
    spec, _ = plannable_spec(session, team_id, requested)
    steps = spec.schedule.steps
    if begin_step >= steps:
        rule = f"A run that continues from step {begin_step:,} needs more steps than that. Raise it."
        raise Invalid.at("schedule.steps", rule, steps)
    cuda = spec.resources.device is Device.CUDA
    planned = plan(spec, cuda=cuda)
    flops = training_flops(spec, begin_step)
    measured = find_measured(session, team_id, spec)
    tokens = (steps - begin_step) * spec.tokens_per_step
    seconds = tokens / measured.tokens_per_second if measured is not None else None
    return RunEstimate(
        parameters=count_parameters(spec.model, spec.data.tokenizer.size, spec.batch.sequence_tokens).total,
        flops=flops,
        petaflop_days=flops / (1e15 * SECONDS_A_DAY),
        memory_bytes=memory_needs(spec, cuda).rank_bytes,
        host_bytes=planned.host_bytes,
        checkpoint_bytes=state_bytes(spec),
        stored_bytes=stored_bytes(spec, begin_step),
        storage=storage_use(session, team_id),
        team_checkpoint_bytes=checkpoint_bytes(session, team_id),
        measured=measured,
        seconds=seconds,
        seconds_at_peak=_seconds_at_peak(session, spec, flops) if measured is None else None,
        slot_hours=None if seconds is None else seconds * spec.resources.ranks / SECONDS_AN_HOUR,
    )


def _seconds_at_peak(session: Read, spec: RunSpec, flops: float) -> float | None:
    """The time at the peak of the fastest node with enough slots; None if there is none, or if the peak of one is unknown."""
    resources, kind = spec.resources, spec.precision.kind
    slots = [(node, slots_of(node)[resources.device]) for node in session.scalars(select(Node))]
    peaks = [
        fastest_peak(node, resources.device, found, kind)
        for node, found in slots
        if len(found) >= resources.slots_per_node
    ]
    known = [peak.flops_per_second for peak in peaks if peak is not None]
    return flops / (max(known) * resources.ranks) if known and len(known) == len(peaks) else None


def find_measured(session: Read, team_id: UUID, spec: RunSpec) -> MeasuredThroughput | None:
    """The team's newest attempt with the workload of ``spec`` on a kind of node that could run it, and its speed."""
    nodes, wanted = _NodeKinds(session, spec), workload(spec)
    for run, placement in _claimed_placements(session, team_id, spec):
        job = JobSpec.model_validate(placement.job)
        if workload(job.spec) != wanted:
            continue
        there = kind_of_job(job) or nodes.by_id.get(placement.node_id)
        if there not in nodes.at_hand:
            continue
        rate = _median_rate(session, run.id, job.attempt)
        if rate is not None:
            attempt = session.get_one(Attempt, (run.id, job.attempt))
            return MeasuredThroughput(
                run=public_id("run", run.id),
                name=run.name,
                node=placement.node_name,
                when=attempt.ended or attempt.started,
                tokens_per_second=rate,
            )
    return None


class _NodeKinds:
    """The kinds of the nodes, for a spec; they are read when they are needed, which takes long if there are many."""

    def __init__(self, session: Read, spec: RunSpec) -> None:
        self._session = session
        self._resources = spec.resources

    @cached_property
    def _nodes(self) -> Sequence[Node]:
        return self._session.scalars(select(Node)).all()

    @cached_property
    def by_id(self) -> dict[UUID | None, Kind | None]:
        return {node.id: kind_of_node(node, self._resources.device) for node in self._nodes}

    @cached_property
    def at_hand(self) -> set[Kind | None]:
        """The kinds of the nodes with enough slots."""
        device, least = self._resources.device, self._resources.slots_per_node
        large = [node.id for node in self._nodes if len(slots_of(node)[device]) >= least]
        return {self.by_id[node_id] for node_id in large} - {None}


def workload(spec: RunSpec) -> dict[str, Any]:
    """The settings that determine how long a token takes in a training step. Fixed costs of a step and a
    pipeline's bubble are spread over its accumulation rounds; validation and saving are not included."""
    return {
        "model": spec.model,
        "vocabulary": spec.data.tokenizer.size,
        "sequence_tokens": spec.batch.sequence_tokens,
        "micro_sequences": spec.batch.micro_sequences,
        "rounds": spec.accumulation_steps,
        "precision": spec.precision,
        "memory": spec.memory,
        "degrees": spec.degrees,
        "parallelism": spec.parallelism.model_copy(update={"data": None, "shard": None}),
    }


def kind_of_node(node: Node, device: str) -> Kind | None:
    """The kind of a joined node; None if it has no such device, or several kinds of GPUs."""
    inventory = inventory_of(node)
    if device == Device.CUDA:
        names = {gpu.name for gpu in inventory.gpus}
        return Kind(device, names.pop(), None) if len(names) == 1 else None
    if not inventory.cpu_slots or not inventory.cpu_name:
        return None
    return Kind(device, inventory.cpu_name, threads_per_slot(node, device))


def kind_of_job(job: JobSpec) -> Kind | None:
    """The kind of an attempt's node; None if its peak, which names the device, was unknown."""
    if job.peak is None:
        return None
    return Kind(job.device, job.peak.device, None if job.device == "cuda" else job.threads_per_rank)


def _claimed_placements(session: Read, team_id: UUID, spec: RunSpec) -> Iterator[tuple[Run, Placement]]:
    """Claimed placements of the team's runs on as many slots of the device, newest first."""
    resources = spec.resources
    like_it = (
        Run.team_id == team_id,
        Run.device == resources.device.value,
        Run.slots == resources.ranks,
        Run.nodes == resources.nodes,
    )
    newest = select(Run.id).where(*like_it, Run.tokens_per_second.is_not(None)).order_by(Run.id.desc())
    found = (
        select(Run, Placement)
        .join(Placement, Placement.run_id == Run.id)
        .where(Run.id.in_(newest.limit(LOOKED_AT_RUNS)), Placement.job.is_not(None))
        .order_by(Run.id.desc(), Placement.fence.desc())
        .options(load_only(Run.name), defer(Placement.downloads))
    )
    for row in session.execute(found):
        yield row.Run, row.Placement


def _median_rate(session: Read, run_id: UUID, attempt: int) -> float | None:
    """Median of an attempt's tokens per second; None if it made too few steps."""
    named = (MetricSeries.run_id == run_id, MetricSeries.attempt == attempt, MetricSeries.name == RATE)
    series = session.scalars(select(MetricSeries).where(*named)).one_or_none()
    if series is None:
        return None
    values: Sequence[float] = read_curves(session, [series], series.last_step - MAX_STEPS)[
        series.id
    ].values.tolist()
    return median(values) if len(values) >= MIN_STEPS and median(values) > 0 else None
