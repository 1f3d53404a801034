"""Claiming: a node takes a run that was placed on it, with a lease and a fence, exactly once.

The agent generates the claim id before it claims, so a claim whose response was lost can be repeated with the same response
until its placement is closed: an ended attempt gets no new links to files. The placement is taken by compare-and-set.
The first claim of a run moves it to `leased`, which increments the fence under the same guard; the other nodes of the
run claim that fence, and the last one starts the attempt. A claim does not start the trainer: the reply to a renewal of
the node's supervisor does.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import select, update

from trainwright.contracts.agent_protocol import Claim, Download, ExportJob, ExportRequest, Timers
from trainwright.contracts.job_spec import DATA_FOLDER, RESUME_FOLDER, JobKind, JobSpec, Peak, ResumePoint
from trainwright.contracts.listing import listed
from trainwright.contracts.precision_spec import PrecisionKind
from trainwright.contracts.run_state import RunState
from trainwright.contracts.token_shards import MANIFEST_NAME, TOKENIZER_NAME
from trainwright_backend.attempts.agent_silence import is_agent_silent
from trainwright_backend.attempts.fencing import (
    check_first_node,
    check_placement,
    placement_of_claim,
    run_of_node,
)
from trainwright_backend.checkpoints.resume import Resume, resume_point
from trainwright_backend.checkpoints.service import last_checkpoint
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.deletion_queue import LINK_SECONDS
from trainwright_backend.core.errors import Conflict
from trainwright_backend.core.ids import parse_id, public_id
from trainwright_backend.core.object_store import ObjectStore
from trainwright_backend.datasets.preparations import get_preparation, preparation_files
from trainwright_backend.nodes.inventory import takes_runs, threads_per_slot
from trainwright_backend.nodes.peaks import slot_peak
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.stored_spec import stored_spec
from trainwright_backend.runs.tables import Attempt, Placement, Run
from trainwright_backend.runs.transitions import lock_run, move
from trainwright_backend.scheduling.fewer_nodes import may_run_on, note_fewer_nodes

SHOWN_NODES = 4
"""Names in the message of an attempt."""


def claim(
    session: Write, store: ObjectStore, node_id: UUID, run_id: str, claim_id: str, timers: Timers
) -> Claim:
    """Grant the node the run that is placed on it, or repeat the response to ``claim_id``.

    Raises:
        Conflict: ``claim_refused``: the run is not placed on this node or does not exist (nodes cannot
            distinguish these); another claim has it; or the attempt of this claim has ended.
    """
    run = lock_run(session, parse_id("run", run_id))
    if run is None:
        raise _refused()
    earlier = _placement_of(session, run, claim_id)
    if earlier is not None and earlier.node_id == node_id and earlier.closed is None:
        return _answer(store, run, earlier, timers)
    placement = unclaimed_placement(session, run, node_id)
    if placement is None or earlier is not None:
        raise _refused()
    node = session.get_one(Node, node_id)
    # The control loop moves a placement away from a node that was drained or quarantined in the meantime.
    if not takes_runs(node):
        raise _refused()
    if not may_run_on(run, run.nodes):
        raise _refused()
    granted = _granted_to_others(session, run)
    if granted:
        job = _with_node_placement(JobSpec.model_validate(granted[0].job), node, placement)
        downloads = granted[0].downloads
    else:
        resume = resume_point(session, run)
        if resume is None and run.forked_checkpoint_id is not None:
            raise _refused()  # the control loop fails it: `fork.fail_fork_without_resume_point`
        job = _with_node_placement(_job(session, run, resume), node, placement)
        downloads = _downloads(session, run, job, resume)
        move(session, run, RunState.LEASED, f"claimed by {node.name}")
    if not take_placement(session, placement, claim_id, run.fence):
        raise _refused()
    placement.job = job.model_dump(mode="json")
    placement.downloads = downloads
    placement.lease_seconds = timers.lease_seconds
    placement.renewed = now()
    session.flush()
    if len(granted) + 1 == run.nodes:
        names = [item.node_name for item in sorted([*granted, placement], key=lambda item: item.node_rank)]
        start_attempt(session, run, names, job)
    return _answer(store, run, placement, timers)


def export_job(
    session: Write,
    store: ObjectStore,
    node_id: UUID,
    run_id: str,
    request: ExportRequest,
    timers: Timers,
) -> ExportJob:
    """The export of an attempt that trained on several nodes, for its first node.

    Raises:
        Conflict: ``stale_fence``; ``not_committed``: the last checkpoint has not been committed yet;
            ``agent_silent``: nobody uploads it; ``other_node``: it is not the first node.
    """
    run = run_of_node(session, node_id, run_id)
    placement = placement_of_claim(session, node_id, run, request.claim_id)
    check_placement(run, placement, request.fence)
    check_first_node(session, node_id, run)
    last = last_checkpoint(session, run)
    if last is None and is_agent_silent(session, placement, timers):
        raise Conflict(
            "agent_silent", "The agent of this node, which uploads the last checkpoint, is silent."
        )
    if last is None:
        raise Conflict("not_committed", "The checkpoint of the last step is not committed yet. Ask again.")
    resume = Resume(last, forked=False, data_from_start=False)
    job = JobSpec.model_validate(placement.job).model_copy(
        update={"kind": JobKind.EXPORT, "resume": _point(resume)}
    )
    return ExportJob(job=job, downloads=_signed(store, _resume_downloads(resume)))


def take_placement(session: Write, placement: Placement, claim_id: str, fence: int) -> bool:
    """Compare-and-set: the claim gets the placement if no other claim has it."""
    unclaimed = update(Placement).where(Placement.id == placement.id, Placement.claim_id.is_(None))
    taken = session.change(unclaimed.values(claim_id=claim_id, fence=fence))
    session.refresh(placement)
    return taken == 1


def start_attempt(session: Write, run: Run, node_names: Sequence[str], job: JobSpec) -> None:
    """Start the run's next attempt: all its placements are claimed."""
    resume_step = job.resume.step if job.resume else 0
    message = f"attempt {run.attempt + 1} on {listed(node_names, SHOWN_NODES)}"
    if job.resume:
        what = "exporting" if job.kind is JobKind.EXPORT else "training"
        message += f": {what} from step {resume_step:,}"
        if job.kind is JobKind.TRAIN and job.resume.sequences_read:
            message += f", without the data up to sequence {job.resume.sequences_read:,} of its order"
    move(session, run, RunState.STARTING, message)
    note_fewer_nodes(session, run, job.spec)
    run.avoided_nodes = []
    session.add(
        Attempt(run_id=run.id, number=run.attempt, fence=run.fence, resume_step=resume_step, started=now())
    )
    session.flush()


def _granted_to_others(session: Write, run: Run) -> list[Placement]:
    """The placements of the attempt that is being claimed which other nodes have claimed already."""
    if run.state is not RunState.LEASED:
        return []
    claimed = select(Placement).where(Placement.run_id == run.id, Placement.fence == run.fence)
    return list(session.scalars(claimed.order_by(Placement.node_rank)))


def _placement_of(session: Write, run: Run, claim_id: str) -> Placement | None:
    claimed = select(Placement).where(Placement.run_id == run.id, Placement.claim_id == claim_id)
    return session.scalars(claimed).one_or_none()


def unclaimed_placement(session: Write, run: Run, node_id: UUID) -> Placement | None:
    """The node's placement of a run that still waits for its claim."""
    if run.state not in (RunState.QUEUED, RunState.LEASED):
        return None
    mine = (Placement.run_id == run.id, Placement.node_id == node_id)
    return session.scalars(select(Placement).where(*mine, Placement.claim_id.is_(None))).one_or_none()


def _refused() -> Conflict:
    return Conflict("claim_refused", "This run is not waiting for this node. Delete the folder of the claim.")


def _job(session: Read, run: Run, resume: Resume | None) -> JobSpec:
    """The attempt's job, as far as it is the same on all its nodes."""
    spec = stored_spec(run).on_nodes(run.nodes)
    kind = spec.precision.kind
    point = None if resume is None else _point(resume)
    trained = point is not None and point.step >= spec.schedule.steps
    return JobSpec(
        kind=JobKind.EXPORT if trained else JobKind.TRAIN,
        run_id=public_id("run", run.id),
        attempt=run.attempt + 1,
        fence=run.fence + 1,
        spec=spec,
        device="cuda" if run.device == "cuda" else "cpu",
        slots=tuple(range(run.slots // run.nodes)),
        nodes=run.nodes,
        peak=_mean_peak(session, run, kind),
        bf16_peak=_mean_peak(session, run, PrecisionKind.BF16) if kind is PrecisionKind.FP8 else None,
        resume=point,
    )


def _with_node_placement(job: JobSpec, node: Node, placement: Placement) -> JobSpec:
    """``job`` for one of the run's nodes."""
    own = {
        "slots": tuple(placement.slots),
        "node_rank": placement.node_rank,
        "threads_per_rank": threads_per_slot(node, placement.device),
    }
    return job.model_copy(update=own)


def _point(resume: Resume) -> ResumePoint:
    checkpoint = resume.checkpoint
    assert checkpoint.manifest_digest is not None, "a committed checkpoint has a manifest"
    return ResumePoint(
        step=checkpoint.step,
        digest=checkpoint.manifest_digest,
        forked=resume.forked,
        data_from_start=resume.data_from_start,
        sequences_read=resume.sequences_read,
    )


def _mean_peak(session: Read, run: Run, kind: PrecisionKind) -> Peak | None:
    """The mean peak of a rank on the nodes of the attempt that is being claimed; None if one is not known."""
    placed = (
        select(Placement, Node)
        .join(Node, Node.id == Placement.node_id)
        .where(Placement.run_id == run.id, Placement.claim_id.is_(None))
        .order_by(Placement.node_rank)
    )
    peaks = [
        slot_peak(node, placement.device, placement.slots, kind)
        for placement, node in session.execute(placed)
    ]
    known = [peak for peak in peaks if peak is not None]
    if not known or len(known) < len(peaks):
        return None
    mean = sum(peak.flops_per_second for peak in known) / len(known)
    devices = ", ".join(dict.fromkeys(peak.device for peak in known))
    return known[0].model_copy(update={"flops_per_second": mean, "device": devices})


def _downloads(session: Write, run: Run, job: JobSpec, resume: Resume | None) -> list[dict[str, Any]]:
    """Files for the attempt's folder; an export needs no shards."""
    assert run.preparation_id is not None, "a run that has not ended keeps its data"
    preparation = get_preparation(session, run.team_id, run.preparation_id)
    needed = preparation_files(preparation)
    if job.kind is JobKind.EXPORT:
        needed = [file for file in needed if file.name in (MANIFEST_NAME, TOKENIZER_NAME)]
    files = [
        _download(f"{DATA_FOLDER}/{file.name}", file.bytes, file.digest, file.object_key) for file in needed
    ]
    return files if resume is None else files + _resume_downloads(resume)


def _resume_downloads(resume: Resume) -> list[dict[str, Any]]:
    """The files of a checkpoint."""
    prefix = resume.checkpoint.prefix
    return [
        _download(
            f"{RESUME_FOLDER}/{file['name']}", file["bytes"], file["digest"], f"{prefix}/{file['name']}"
        )
        for file in resume.checkpoint.files
    ]


def _download(path: str, count: int, digest: str, key: str) -> dict[str, Any]:
    return {"path": path, "bytes": count, "digest": digest, "object_key": key}


def _answer(store: ObjectStore, run: Run, placement: Placement, timers: Timers) -> Claim:
    assert placement.claim_id is not None and placement.fence is not None and placement.job is not None
    job = JobSpec.model_validate(placement.job)
    granted = timers.model_copy(update={"lease_seconds": placement.lease_seconds or timers.lease_seconds})
    return Claim(
        claim_id=placement.claim_id,
        fence=placement.fence,
        attempt=job.attempt,
        timers=granted,
        job=job,
        downloads=_signed(store, placement.downloads),
        traceparent=run.traceparent,
    )


def _signed(store: ObjectStore, downloads: Sequence[dict[str, Any]]) -> list[Download]:
    return [Download(**file, url=store.sign("GET", file["object_key"], LINK_SECONDS)) for file in downloads]
