"""The export of a job: a process of its own, so that one that died is made again and nothing is trained twice.

It takes the checkpoint of the last step from ``out/checkpoints/``, where training has just left it, or from
``resume/``, when an earlier attempt has. It never falls back to an earlier one.
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
    JobSpec,
    Outcome,
    output_folder,
)
from trainwright_trainer.checkpoint.export import export
from trainwright_trainer.checkpoint.load import read_checkpoint
from trainwright_trainer.checkpoint.snapshot import config_digest
from trainwright_trainer.ends import (
    BadJobError,
    read_job,
    release_last_words,
    reserve_last_words,
    write_failure,
    write_outcome,
)


def export_job(job_file: Path) -> int:
    """Write ``out/export``; returns the exit code of this process."""
    out = output_folder(job_file)
    out.mkdir(parents=True, exist_ok=True)
    try:
        reserve_last_words(out, 0)
        step = _export(job_file, out)
        release_last_words(out, 0)
    except Exception as error:
        write_failure(out, 0, error)
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
    if trained.is_dir():
        return trained, read_checkpoint(trained, digest, None)
    if job.resume is None or job.resume.step != last:
        raise BadJobError(
            f"there is no checkpoint of the last step {last}: neither in out/checkpoints nor in resume"
        )
    resume = folder / RESUME_FOLDER
    return resume, read_checkpoint(resume, digest, job.resume.digest)
