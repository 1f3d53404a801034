"""The trainer's launcher, whose ranks wait in each step before they read its batch."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from trainwright_trainer import launch
from trainwright_trainer.data.loader import Batch, Loader

STEP_SECONDS = 0.5


def wait_before_each_step() -> None:
    """Have `Loader.micro_batches` wait."""
    micro_batches = Loader.micro_batches

    def micro_batches_late(loader: Loader, step: int) -> Iterator[Batch]:
        time.sleep(STEP_SECONDS)
        return micro_batches(loader, step)

    Loader.micro_batches = micro_batches_late


if __name__ == "__main__":
    wait_before_each_step()
    sys.exit(launch.main(Path(sys.argv[1])))
