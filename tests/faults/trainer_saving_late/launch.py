"""The trainer's launcher, whose ranks save only after the last step."""

import sys
from collections.abc import Callable
from pathlib import Path

from trainwright.contracts.job_spec import JobSpec
from trainwright_trainer import launch
from trainwright_trainer.checkpoint.save import Saver
from trainwright_trainer.checkpoint.snapshot import Snapshot


def save_last_step_only(job_file: Path) -> None:
    """Have `Saver.save` drop all checkpoints but that of the job's last step."""
    save = Saver.save
    last = JobSpec.model_validate_json(job_file.read_bytes()).spec.schedule.steps

    def save_last(saver: Saver, take: Callable[[], Snapshot]) -> None:
        snapshot = take()
        if snapshot.step == last:
            save(saver, lambda: snapshot)

    Saver.save = save_last


if __name__ == "__main__":
    save_last_step_only(Path(sys.argv[1]))
    sys.exit(launch.main(Path(sys.argv[1])))
