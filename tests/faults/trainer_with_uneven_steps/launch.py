"""The trainer's launcher, whose ranks wait in each step before they read its batch."""

import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from trainwright_trainer import launch
from trainwright_trainer.data.loader import Batch, Loader

MEDIAN_SECONDS = 1.0
SPREAD = 0.6
"""Of the logarithm: one wait in a hundred takes more than four times the median."""


def wait_before_each_step() -> None:
    """Have `Loader.micro_batches` wait, on each rank for another time."""
    micro_batches = Loader.micro_batches

    def micro_batches_late(loader: Loader, step: int) -> Iterator[Batch]:
        drawn = random.Random(f"{os.environ['RANK']} {step}")
        time.sleep(MEDIAN_SECONDS * drawn.lognormvariate(0.0, SPREAD))
        return micro_batches(loader, step)

    Loader.micro_batches = micro_batches_late


if __name__ == "__main__":
    wait_before_each_step()
    sys.exit(launch.main(Path(sys.argv[1])))
