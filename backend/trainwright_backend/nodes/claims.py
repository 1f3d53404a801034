"""Claiming: a node takes a run that was placed on it, with a lease and a fence, exactly once.

The agent generates the claim id before it claims, so a claim whose answer was lost can be repeated with the same
answer until its placement is closed: an ended attempt gets no new links to files. The placement is taken by compare-and-set, and the transition to `leased` increments the
fence under the same guard. A claim starts nothing yet: the answer to the supervisor's first renewal does.
"""

from typing import Any
from uuid import UUID

from sqlalchemy import select, update

from trainwright.contracts.agent_protocol import Claim, Download, Inventory, Timers
from trainwright.contracts.job_spec import DATA_FOLDER, RESUME_FOLDER, JobKind, JobSpec, Peak, ResumePoint
from trainwright.contracts.precision_spec import PrecisionKind
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.run_state import RunState
from trainwright.contracts.shards import MANIFEST_NAME, TOKENIZER_NAME
from trainwright.planner.peak_flops import vendor_peak
from trainwright_backend.checkpoints.fork import Resume, resume_point
from trainwright_backend.core.db import Write, now
from trainwright_backend.core.deletion_queue import LINK_SECONDS
from trainwright_backend.core.errors import Conflict
from trainwright_backend.core.ids import parse_id, public_id
from trainwright_backend.core.object_store import LocalStore
from trainwright_backend.datasets.preparations import get_preparation, preparation_files
from trainwright_backend.nodes.service import threads_per_slot
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.tables import Attempt, Placement, Run
from trainwright_backend.runs.transitions import lock_run, move


def claim(
    session: Write, store: LocalStore, node_id: UUID, run_id: str, claim_id: str, timers: Timers
) -> Claim:
    """Grant the node the run that is placed on it, or repeat the answer to ``claim_id``.

    Raises:
        Conflict: ``claim_refused``: the run is not placed on this node, or does not exist, which nodes cannot tell
            apart; another claim has it; or the attempt of this claim has ended.
    """
    run = lock_run(session, parse_id("run", run_id))
    if run is None:
        raise _refused()
    earlier = _placement_of(session, run, claim_id)
    if earlier is not None and earlier.node_id == node_id and earlier.closed is None:
        return _answer(store, earlier, timers)
    placement = unclaimed_placement(session, run, node_id)
    if placement is None or earlier is not None:
        raise _refused()
    node = session.get_one(Node, node_id)
    if node.draining:  # since the run was placed; the control loop places it on another node
        raise _refused()
    resume = resume_point(session, run)
    if resume is None and run.forked_checkpoint_id is not None:
        raise _refused()  # the control loop fails it: `fork.fail_fork_without_resume_point`
    job = _job(run, node, placement, resume)
    move(session, run, RunState.LEASED, f"claimed by {node.name}")
    if not take_placement(session, placement, claim_id, run.fence):
        raise _refused()
    placement.job = job.model_dump(mode="json")
    placement.downloads = _downloads(session, run, job, resume)
    placement.lease_seconds = timers.lease_seconds
    placement.renewed = now()
    session.flush()
    start_attempt(session, run, node, job)
    return _answer(store, placement, timers)


def take_placement(session: Write, placement: Placement, claim_id: str, fence: int) -> bool:
    """Compare-and-set: the claim gets the placement if no other claim has it."""
    unclaimed = update(Placement).where(Placement.id == placement.id, Placement.claim_id.is_(None))
    taken = session.change(unclaimed.values(claim_id=claim_id, fence=fence))
    session.refresh(placement)
    return taken == 1


def start_attempt(session: Write, run: Run, node: Node, job: JobSpec) -> None:
    """Start the run's next attempt: all its placements are claimed."""
    resume_step = job.resume.step if job.resume else 0
    what = "exporting" if job.kind is JobKind.EXPORT else "training"
    origin = f"from step {resume_step:,}" if job.resume else "from the start"
    move(session, run, RunState.STARTING, f"attempt {run.attempt + 1} on {node.name}: {what} {origin}")
    session.add(
        Attempt(run_id=run.id, number=run.attempt, fence=run.fence, resume_step=resume_step, started=now())
    )
    session.flush()


def _placement_of(session: Write, run: Run, claim_id: str) -> Placement | None:
    claimed = select(Placement).where(Placement.run_id == run.id, Placement.claim_id == claim_id)
    return session.scalars(claimed).one_or_none()


def unclaimed_placement(session: Write, run: Run, node_id: UUID) -> Placement | None:
    """The node's placement of a run that still waits for its claim."""
    if run.state is not RunState.QUEUED:
        return None
    mine = (Placement.run_id == run.id, Placement.node_id == node_id)
    return session.scalars(select(Placement).where(*mine, Placement.claim_id.is_(None))).one_or_none()


def _refused() -> Conflict:
    return Conflict("claim_refused", "This run is not waiting for this node. Delete the folder of the claim.")


def _job(run: Run, node: Node, placement: Placement, resume: Resume | None) -> JobSpec:
    """The attempt's job, with the values that only the node's inventory knows."""
    spec = RunSpec.model_validate(run.spec)
    kind = spec.precision.kind
    inventory = Inventory.model_validate(node.inventory)
    threads = threads_per_slot(node, placement.device)
    point = None if resume is None else _point(resume)
    trained = point is not None and point.step >= spec.schedule.steps
    return JobSpec(
        kind=JobKind.EXPORT if trained else JobKind.TRAIN,
        run_id=public_id("run", run.id),
        attempt=run.attempt + 1,
        fence=run.fence + 1,
        spec=spec,
        device="cuda" if placement.device == "cuda" else "cpu",
        slots=tuple(placement.slots),
        threads_per_rank=threads,
        peak=_peak(inventory, placement, kind, threads),
        bf16_peak=_peak(inventory, placement, PrecisionKind.BF16, threads)
        if kind is PrecisionKind.FP8
        else None,
        resume=point,
    )


def _point(resume: Resume) -> ResumePoint:
    checkpoint = resume.checkpoint
    assert checkpoint.manifest_digest is not None, "a committed checkpoint has a manifest"
    return ResumePoint(
        step=checkpoint.step,
        digest=checkpoint.manifest_digest,
        forked=resume.forked,
        data_from_start=resume.data_from_start,
    )


def _peak(inventory: Inventory, placement: Placement, kind: PrecisionKind, threads: int) -> Peak | None:
    """The peak for MFU: the vendor's figure for a GPU, or the node's own measurement of a CPU slot with the threads that
    it would have if all reported slots were allowed."""
    if placement.device == "cuda":
        names = {gpu.name for gpu in inventory.gpus if gpu.index in placement.slots}
        return vendor_peak(names.pop(), kind.value) if len(names) == 1 else None
    rate = None if inventory.cpu_peak is None else inventory.cpu_peak.rate(kind)
    if rate is None:
        return None
    device = inventory.cpu_name or "one CPU slot"
    measured_threads = max(1, inventory.cores // max(1, inventory.cpu_slots))
    rate *= threads / measured_threads
    return Peak(flops_per_second=rate, dtype=kind.value, device=device, measured=True)


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
    if resume is not None:
        files += [
            _download(
                f"{RESUME_FOLDER}/{file['name']}",
                file["bytes"],
                file["digest"],
                f"{resume.checkpoint.prefix}/{file['name']}",
            )
            for file in resume.checkpoint.files
        ]
    return files


def _download(path: str, count: int, digest: str, key: str) -> dict[str, Any]:
    return {"path": path, "bytes": count, "digest": digest, "object_key": key}


def _answer(store: LocalStore, placement: Placement, timers: Timers) -> Claim:
    assert placement.claim_id is not None and placement.fence is not None and placement.job is not None
    job = JobSpec.model_validate(placement.job)
    downloads = [
        Download(**file, url=store.sign("GET", file["object_key"], LINK_SECONDS))
        for file in placement.downloads
    ]
    granted = timers.model_copy(update={"lease_seconds": placement.lease_seconds or timers.lease_seconds})
    return Claim(
        claim_id=placement.claim_id,
        fence=placement.fence,
        attempt=job.attempt,
        timers=granted,
        job=job,
        downloads=downloads,
    )
