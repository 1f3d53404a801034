"""The trainer's launcher, whose ranks check for a different stop file."""

import sys
from pathlib import Path

from trainwright_trainer import launch
from trainwright_trainer.process import rank

if __name__ == "__main__":
    rank.STOP_NAME = "no-such-file.json"
    sys.exit(launch.main(Path(sys.argv[1])))
