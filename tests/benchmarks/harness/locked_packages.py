"""Packages that only some rows need, in a folder of their own: installed once, and again when their lock file changes."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.report.results import RefusedError

ROOT = Path(__file__).resolve().parents[3]

PIP = (
    "-m",
    "pip",
    "--disable-pip-version-check",
    "--no-input",
    "install",
    "--quiet",
    "--no-deps",
    "--require-hashes",
)
"""Of an interpreter; the lock file holds versions and hashes of everything."""


def ensure_installed(folder: Path, lock: Path, install: Callable[[], None], create: bool) -> None:
    """Install the packages of ``lock`` into ``folder`` by ``install``, unless it has them. An outdated folder is
    deleted first.

    Raises:
        RefusedError: they are missing, and must not be installed.
    """
    stamp, wanted = folder / "installed", hashlib.sha256(lock.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    if not create:
        raise RefusedError(f"{folder.name} is not installed: `make bench` without --toy installs it")
    print(f"installing {lock.relative_to(ROOT)} into {folder.name}, once", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    install()
    stamp.write_text(wanted)
