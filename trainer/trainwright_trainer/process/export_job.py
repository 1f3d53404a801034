"""Exporting a job in its own process: a failed export is repeated without training twice.

It exports the checkpoint of the last step: from ``out/checkpoints/`` if all its ranks were on this node in this
attempt, otherwise from ``resume/``. It never falls back to an earlier step.
"""

from __future__ import annotations

from pathlib import Path

from trainwright.contracts.checkpoint import CheckpointManifest, digest_of
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.job_spec import (
    CHECKPOINTS_FOLDER,
    DATA_FOLDER,
    EXPORT_FOLDER,
    RESUME_FOLDER,
    JobKind,
    JobSpec,
    Outcome,
    output_folder,
)
from trainwright_trainer.checkpoint.export import export
from trainwright_trainer.checkpoint.load import read_checkpoint
from trainwright_trainer.checkpoint.snapshot import config_digest
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.process.outcome import (
    FailureReport,
    release_failure_file,
    reserve_failure_file,
    write_outcome,
)
from trainwright_trainer.runtime.errors import BadJobError


def export_job(job_file: Path) -> int:
    """Write ``out/export``; returns the exit code of this process."""
    out = output_folder(job_file)
    out.mkdir(parents=True, exist_ok=True)
    with FailureReport(out, rank=0) as report:
        reserve_failure_file(out, 0)
        step = _export(job_file, out)
        release_failure_file(out, 0)
    if report.failed:
        return 1
    write_outcome(out, Outcome(code=EndCode.FINISHED, message="The export is complete.", step=step))
    return 0


def _export(job_file: Path, out: Path) -> int:
    job = read_job(job_file)
    checkpoint, manifest = _last_checkpoint(job, job_file.parent, out)
    digest = digest_of(manifest.to_bytes())
    export(checkpoint, manifest, digest, job_file.parent / DATA_FOLDER, job.spec, out / EXPORT_FOLDER)
    return manifest.step


def _last_checkpoint(job: JobSpec, folder: Path, out: Path) -> tuple[Path, CheckpointManifest]:
    last, digest = job.spec.schedule.steps, config_digest(job.spec)
    trained = out / CHECKPOINTS_FOLDER / f"step-{last}"
    if job.kind is JobKind.TRAIN and trained.is_dir():
        return trained, read_checkpoint(trained, digest, None)
    if job.resume is None or job.resume.step != last:
        raise BadJobError(f"there is no checkpoint of the last step ({last}) in out/checkpoints or resume")
    resume = folder / RESUME_FOLDER
    return resume, read_checkpoint(resume, digest, job.resume.digest)
