"""One rank: sleeps where a real one computes. Rank 0 writes the events and the checkpoints."""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

from tests.agent.standin.behaviour import STEP_SECONDS, Job, name_process, now, obey, write


def main() -> None:
    job, rank = Job(sys.argv[1]), int(sys.argv[2])
    name_process(f"tw-rank-{rank}")
    obey(job)
    (job.out / "logs").mkdir(parents=True, exist_ok=True)
    log = (job.out / "logs" / f"rank-{rank}.log").open("a", buffering=1)
    log.write(f"rank {rank} of attempt {job.attempt}\n")
    if "silent" in job.words:
        time.sleep(600)
    if rank == 0:
        _publish_position(
            job,
            type="attempt_started",
            attempt=job.attempt,
            resume_step=job.resume,
            ranks=job.ranks,
            parameters=1,
            device="none",
        )
    for step in range(job.resume + 1, job.steps + 1):
        time.sleep(STEP_SECONDS)
        if "crash" in job.words and rank == 1 and step == 5:
            failure = {"code": "diverged", "message": "loss is nan", "rank": 1, "sequences_read": 40}
            write(job.out / "failure-1.json", failure)
            os._exit(3)
        if rank == 0:
            _publish_position(job, type="step", step=step, values={"loss": 1 / step, "tokens": float(step)})
            log.write(f"step {step}\n")
            if step == job.steps or step % job.every == 0:
                _save(job, step)
        if step < job.steps and job.should_stop():
            _leave(job, rank, step)
            return
    if rank == 0:
        _publish_position(job, type="finished", step=job.steps)
        write(job.out / "outcome.json", {"code": "finished", "message": "Finished.", "step": job.steps})


def _leave(job: Job, rank: int, step: int) -> None:
    """Save after ``step`` unless that has been done, and write the outcome."""
    if rank == 0:
        if step % job.every:
            _save(job, step)
        write(job.out / "outcome.json", {"code": "saved", "message": "Saved.", "step": step})


def _publish_position(job: Job, **line: object) -> None:
    with (job.out / "events.jsonl").open("a") as events:
        events.write(json.dumps({"time": now(), **line}) + "\n")


def _save(job: Job, step: int) -> None:
    name = f"step-{step}"
    digest = save(job.out / "checkpoints" / name, "state", step)
    _publish_position(
        job, type="checkpoint_saved", step=step, folder=name, digest=digest, bytes=1, seconds=0.0
    )


def save(folder: Path, kind: str, step: int) -> str:
    """Write a checkpoint of one small file; returns the digest of its manifest."""
    folder.mkdir(parents=True)
    weights = f"weights of step {step}".encode()
    (folder / "model.safetensors").write_bytes(weights)
    entry = {
        "name": "model.safetensors",
        "bytes": len(weights),
        "digest": hashlib.sha256(weights).hexdigest(),
    }
    manifest = {
        "schema_version": 1,
        "kind": kind,
        "step": step,
        "files": [entry],
        "config_digest": "0" * 64,
        "code_version": "0",
    }
    content = json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(content)
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    main()
