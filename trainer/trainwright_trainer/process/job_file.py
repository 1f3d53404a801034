"""Reading ``job.json``, which says what to train."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from trainwright.contracts.base import problems
from trainwright.contracts.job_spec import JobSpec
from trainwright_trainer.runtime.errors import BadJobError


def read_job(path: Path) -> JobSpec:
    """Parse ``job.json``.

    Raises:
        BadJobError: the file is unreadable or breaks a rule.
    """
    try:
        return JobSpec.model_validate_json(path.read_bytes())
    except ValidationError as error:
        found = [f"{problem.field}: {problem.message}" for problem in problems(error, JobSpec)]
        raise BadJobError(" ".join(found)) from error
    except OSError as error:
        raise BadJobError(f"{path}: {error.strerror}") from error
