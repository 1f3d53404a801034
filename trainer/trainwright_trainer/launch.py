"""The command with which the agent starts the launcher.

Importing torch takes seconds, and the parent may die in the meantime. So the parent-death signal is armed first.

    python -m trainwright_trainer.launch JOB_JSON
"""

from __future__ import annotations

import sys
from pathlib import Path

from trainwright_trainer.process.signals import die_with_parent
from trainwright_trainer.runtime.garbage_collection import collection_paused


def main(job_file: Path) -> int:
    """Arm the parent-death signal, then load torch and launch; returns the exit code."""
    die_with_parent()
    with collection_paused():
        from trainwright_trainer.process.launcher import launch

    return launch(job_file.resolve())


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
