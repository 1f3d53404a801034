"""The trainer's launcher, whose ranks save after the last step only."""

import sys
from pathlib import Path

from trainwright_trainer import launch, loop
from trainwright_trainer.build import Training

_right = loop._save


def _save(training: Training, step: int) -> None:
    if step == training.spec.schedule.steps:
        _right(training, step)


if __name__ == "__main__":
    loop._save = _save
    sys.exit(launch.main(Path(sys.argv[1])))
