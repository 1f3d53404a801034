"""The trainer's launcher with the changes of two other trainers of the tests."""

import sys
from pathlib import Path

from tests.faults.trainer_forgetting_momentum.launch import forget_momentum
from tests.faults.trainer_with_slow_steps.launch import wait_before_each_step
from trainwright_trainer import launch

if __name__ == "__main__":
    wait_before_each_step()
    forget_momentum()
    sys.exit(launch.main(Path(sys.argv[1])))
