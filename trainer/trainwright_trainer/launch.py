"""The launcher's command, which the agent starts.

It sees to its end before it is slow: importing torch takes seconds, in which the parent may die.

    python -m trainwright_trainer.launch JOB_JSON
"""

from __future__ import annotations

import sys
from pathlib import Path

from trainwright_trainer.garbage import importing
from trainwright_trainer.stop import die_with_parent


def main(job_file: Path) -> int:
    """Arm the parent-death signal, then load torch and launch; returns the exit code."""
    die_with_parent()
    with importing():
        from trainwright_trainer.elastic import launch

    return launch(job_file.resolve())


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
