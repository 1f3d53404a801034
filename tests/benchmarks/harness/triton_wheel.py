"""``.triton``: Triton, the compiler for GPUs, apart from ``.venv``: torch's build for CPUs comes without it.

Version and hashes are in ``requirements/triton.txt``; 700 MB once installed.

    python -m tests.benchmarks.harness.triton_wheel     installs it
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.benchmarks.report.results import RefusedError

_ROOT = Path(__file__).resolve().parents[3]
_LOCK = _ROOT / "requirements" / "triton.txt"
FOLDER = _ROOT / ".triton"


def triton_folder(create: bool = True) -> Path:
    """The folder to put on the path of a process that compiles for GPUs.

    Raises:
        RefusedError: it is missing, and cannot or must not be made.
    """
    stamp = FOLDER / "installed"
    wanted = hashlib.sha256(_LOCK.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        if not create:
            raise RefusedError("Triton is not installed: `make bench` without --toy installs .triton")
        _install()
        stamp.write_text(wanted)
    return FOLDER


def _install() -> None:
    print(f"installing {_LOCK.relative_to(_ROOT)} into {FOLDER.name}, once", flush=True)
    shutil.rmtree(FOLDER, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet"]
    command = [
        *pip,
        "--no-deps",
        "--no-compile",
        "--require-hashes",
        "--target",
        str(FOLDER),
        "-r",
        str(_LOCK),
    ]
    try:
        subprocess.run(command, check=True)
    except subprocess.CalledProcessError as error:
        raise RefusedError(f"Triton cannot be installed: `{' '.join(command)}` failed") from error


if __name__ == "__main__":
    triton_folder()
