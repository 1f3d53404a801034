"""``.venv-peers``: the packages that rows compare with, separate from ``.venv``. It is created when a row first needs
it.

It sees the packages of ``.venv``, above all torch, so that a peer computes with the same build; its own packages come first.
Versions and hashes are in ``requirements/peers.txt``. Without a network only the rows that need it are refused.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.benchmarks.harness.locked_packages import PIP, ROOT, ensure_installed
from tests.benchmarks.report.results import RefusedError

_LOCK = ROOT / "requirements" / "peers.txt"
FOLDER = ROOT / ".venv-peers"
_PYTHON = FOLDER / "bin" / "python"


def peers_python(create: bool = True) -> str:
    """The interpreter that has the peers.

    Raises:
        RefusedError: it is missing, and cannot or must not be created.
    """
    ensure_installed(FOLDER, _LOCK, _install, create)
    return str(_PYTHON)


def _install() -> None:
    try:
        subprocess.run([sys.executable, "-m", "venv", str(FOLDER)], check=True)
        subprocess.run([str(_PYTHON), *PIP, "-r", str(_LOCK)], check=True)
    except subprocess.CalledProcessError as error:
        raise RefusedError(f"its peers cannot be installed: `{' '.join(error.cmd)}` failed") from error
    ours, theirs = (sysconfig.get_path("purelib", vars=of) for of in (None, _paths()))
    # After the environment's own packages. A plain path would not follow the links of editable installs.
    (Path(theirs) / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")


def _paths() -> dict[str, str]:
    return {"base": str(FOLDER), "platbase": str(FOLDER)}
