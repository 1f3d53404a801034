"""Claiming: a node takes a run that was placed on it, with a lease and a fence, exactly once.

The agent makes the claim id before it claims, so a claim whose answer was lost is repeated and gets the same answer,
at any time. The seat is taken by compare-and-set; the move to `leased` counts the fence up under the same guard. What
a claim grants starts nothing: that is for the answer to the supervisor's first renewal.
"""

from typing import Any
from uuid import UUID

from sqlalchemy import select, update

from trainwright.contracts.agent_protocol import Claim, CpuPeak, Download, Inventory, Timers
from trainwright.contracts.job_spec import DATA_FOLDER, RESUME_FOLDER, JobKind, JobSpec, Peak, ResumePoint
from trainwright.contracts.precision_spec import PrecisionKind
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.run_state import RunState
from trainwright.contracts.shards import MANIFEST_NAME, TOKENIZER_NAME
from trainwright.planner.peaks import vendor_peak
from trainwright_backend.checkpoints.forks import Resume, where_to_begin
from trainwright_backend.core.db import Write, now
from trainwright_backend.core.doomed import LINK_SECONDS
from trainwright_backend.core.errors import Conflict
from trainwright_backend.core.ids import parse_id, public_id, unknown
from trainwright_backend.core.storage import LocalStore
from trainwright_backend.datasets.preparations import get_preparation, preparation_files
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.moves import lock_run, move
from trainwright_backend.runs.tables import Attempt, Placement, Run


def claim(
    session: Write, store: LocalStore, node_id: UUID, run_id: str, claim_id: str, timers: Timers
) -> Claim:
    """Give the node the run that is placed on it, or repeat what ``claim_id`` was given.

    Raises:
        NotFound: the run was deleted.
        Conflict: ``claim_refused``: it is not placed on this node, or another claim has it.
    """
    run = lock_run(session, parse_id("run", run_id))
    if run is None:
        raise unknown("run", run_id)
    earlier = _seat_of(session, run, claim_id)
    if earlier is not None and earlier.node_id == node_id:
        return _answer(store, earlier, timers)
    seat = _free_seat(session, run, node_id)
    if seat is None or earlier is not None:
        raise _refused()
    node = session.get_one(Node, node_id)
    if node.draining:  # since it was placed; the control loop gives the seat to another node
        raise _refused()
    resume = where_to_begin(session, run)
    if resume is None and run.forked_checkpoint_id is not None:
        raise _refused()  # the control loop fails it: `forks.fail_lost`
    job = _job(run, node, seat, resume)
    move(session, run, RunState.LEASED, f"claimed by {node.name}")
    if not take_seat(session, seat, claim_id, run.fence):
        raise _refused()
    seat.job = job.model_dump(mode="json")
    seat.downloads = _downloads(session, run, job, resume)
    seat.lease_seconds = timers.lease_seconds
    seat.renewed = now()
    session.flush()
    start_attempt(session, run, node, job)
    return _answer(store, seat, timers)


def take_seat(session: Write, seat: Placement, claim_id: str, fence: int) -> bool:
    """Compare-and-set: the seat is the claim's if it was nobody's."""
    unclaimed = update(Placement).where(Placement.id == seat.id, Placement.claim_id.is_(None))
    taken = session.change(unclaimed.values(claim_id=claim_id, fence=fence))
    session.refresh(seat)
    return taken == 1


def start_attempt(session: Write, run: Run, node: Node, job: JobSpec) -> None:
    """All seats of the run are claimed: its next attempt begins."""
    resume_step = job.resume.step if job.resume else 0
    what = "exporting" if job.kind is JobKind.EXPORT else "training"
    origin = f"from step {resume_step:,}" if job.resume else "from the start"
    move(session, run, RunState.STARTING, f"attempt {run.attempt + 1} on {node.name}: {what} {origin}")
    session.add(
        Attempt(run_id=run.id, number=run.attempt, fence=run.fence, resume_step=resume_step, started=now())
    )
    session.flush()


def _seat_of(session: Write, run: Run, claim_id: str) -> Placement | None:
    claimed = select(Placement).where(Placement.run_id == run.id, Placement.claim_id == claim_id)
    return session.scalars(claimed).one_or_none()


def _free_seat(session: Write, run: Run, node_id: UUID) -> Placement | None:
    """The node's seat in a run that still waits for its claim."""
    if run.state is not RunState.QUEUED:
        return None
    mine = (Placement.run_id == run.id, Placement.node_id == node_id)
    return session.scalars(select(Placement).where(*mine, Placement.claim_id.is_(None))).one_or_none()


def _refused() -> Conflict:
    return Conflict("claim_refused", "This run is not waiting for this node. Delete the folder of the claim.")


def _job(run: Run, node: Node, seat: Placement, resume: Resume | None) -> JobSpec:
    """What the attempt is to do, with the numbers that only the node's inventory knows."""
    spec = RunSpec.model_validate(run.spec)
    kind = spec.precision.kind
    inventory = Inventory.model_validate(node.inventory)
    point = None if resume is None else _point(resume)
    trained = point is not None and point.step >= spec.schedule.steps
    return JobSpec(
        kind=JobKind.EXPORT if trained else JobKind.TRAIN,
        run_id=public_id("run", run.id),
        attempt=run.attempt + 1,
        fence=run.fence + 1,
        spec=spec,
        device="cuda" if seat.device == "cuda" else "cpu",
        slots=tuple(seat.slots),
        threads_per_rank=_threads(inventory, seat.device),
        peak=_peak(inventory, seat, kind),
        bf16_peak=_peak(inventory, seat, PrecisionKind.BF16) if kind is PrecisionKind.FP8 else None,
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


def _threads(inventory: Inventory, device: str) -> int:
    slots = len(inventory.gpus) if device == "cuda" else inventory.cpu_slots
    return max(1, inventory.cores // max(1, slots))


def _peak(inventory: Inventory, seat: Placement, kind: PrecisionKind) -> Peak | None:
    """What MFU will be a fraction of: a GPU's stated figure, or what the node measured for one of its CPU slots."""
    if seat.device == "cuda":
        names = {gpu.name for gpu in inventory.gpus if gpu.index in seat.slots}
        return vendor_peak(names.pop(), kind.value) if len(names) == 1 else None
    rate = _cpu_rate(inventory.cpu_peak, kind)
    if rate is None or rate <= 0:
        return None
    device = inventory.cpu_name or "one CPU slot"
    return Peak(flops_per_second=rate, dtype=kind.value, device=device, measured=True)


def _cpu_rate(measured: CpuPeak | None, kind: PrecisionKind) -> float | None:
    if measured is None:
        return None
    return {
        PrecisionKind.FP32: measured.fp32,
        PrecisionKind.BF16: measured.bf16,
        PrecisionKind.FP8: measured.fp8,
    }[kind]


def _downloads(session: Write, run: Run, job: JobSpec, resume: Resume | None) -> list[dict[str, Any]]:
    """Files of the attempt's folder; an export needs no shards."""
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


def _answer(store: LocalStore, seat: Placement, timers: Timers) -> Claim:
    assert seat.claim_id is not None and seat.fence is not None and seat.job is not None
    job = JobSpec.model_validate(seat.job)
    downloads = [
        Download(**file, url=store.sign("GET", file["object_key"], LINK_SECONDS)) for file in seat.downloads
    ]
    granted = timers.model_copy(update={"lease_seconds": seat.lease_seconds or timers.lease_seconds})
    return Claim(
        claim_id=seat.claim_id,
        fence=seat.fence,
        attempt=job.attempt,
        timers=granted,
        job=job,
        downloads=downloads,
    )
