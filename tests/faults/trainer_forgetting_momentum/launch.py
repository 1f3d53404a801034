"""The trainer's launcher, whose ranks set the optimizer's state to zero after they have restored it."""

import sys
from pathlib import Path
from typing import Any

from trainwright_trainer import launch
from trainwright_trainer.optim.replicated_updater import ReplicatedUpdater
from trainwright_trainer.optim.updater import ReadTensor


def forget_momentum() -> None:
    restore = ReplicatedUpdater.restore

    def restore_weights(updater: ReplicatedUpdater, read: ReadTensor, scalars: dict[str, Any]) -> None:
        restore(updater, read, scalars)
        for item in updater.state():
            if not item.name.startswith("model."):
                item.tensor.zero_()

    ReplicatedUpdater.restore = restore_weights  # type: ignore[method-assign]


if __name__ == "__main__":
    forget_momentum()
    sys.exit(launch.main(Path(sys.argv[1])))
