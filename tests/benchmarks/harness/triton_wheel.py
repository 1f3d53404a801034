"""``.triton``: Triton, the compiler for GPUs, separate from ``.venv``, since torch's build for CPUs comes without it.

Version and hashes are in ``requirements/triton.txt``; 700 MB once installed.

    python -m tests.benchmarks.harness.triton_wheel     installs it
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.benchmarks.harness.locked_packages import PIP, ROOT, ensure_installed
from tests.benchmarks.report.results import RefusedError

_LOCK = ROOT / "requirements" / "triton.txt"
FOLDER = ROOT / ".triton"


def triton_folder(create: bool = True) -> Path:
    """The folder to put on the path of a process that compiles for GPUs.

    Raises:
        RefusedError: it is missing, and cannot or must not be created.
    """
    ensure_installed(FOLDER, _LOCK, _install, create)
    return FOLDER


def _install() -> None:
    command = [sys.executable, *PIP, "--no-compile", "--target", str(FOLDER), "-r", str(_LOCK)]
    try:
        subprocess.run(command, check=True)
    except subprocess.CalledProcessError as error:
        raise RefusedError(f"Triton cannot be installed: `{' '.join(command)}` failed") from error


if __name__ == "__main__":
    triton_folder()
