"""``.venv-peers``: the packages that rows compare with, apart from ``.venv``. It is made when a row first needs it.

It sees the packages of ``.venv``, above all torch, so that a peer computes with the same build; its own packages come first.
Versions and hashes are in ``requirements/peers.txt``. Without a network only the rows that need it are refused.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.benchmarks.report.results import RefusedError

_ROOT = Path(__file__).resolve().parents[3]
_LOCK = _ROOT / "requirements" / "peers.txt"
FOLDER = _ROOT / ".venv-peers"


def peers_python(create: bool = True) -> str:
    """The interpreter that has the peers.

    Raises:
        RefusedError: it is missing, and cannot or must not be made.
    """
    python, stamp = FOLDER / "bin" / "python", FOLDER / "installed"
    wanted = hashlib.sha256(_LOCK.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        if not create:
            raise RefusedError("its peers are not installed: `make bench` without --toy installs .venv-peers")
        _install(python)
        stamp.write_text(wanted)
    return str(python)


def _install(python: Path) -> None:
    print(f"installing {_LOCK.relative_to(_ROOT)} into {FOLDER.name}, once", flush=True)
    shutil.rmtree(FOLDER, ignore_errors=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet"]
    try:
        subprocess.run([sys.executable, "-m", "venv", str(FOLDER)], check=True)
        subprocess.run([*pip, "--no-deps", "--require-hashes", "-r", str(_LOCK)], check=True)
    except subprocess.CalledProcessError as error:
        raise RefusedError(f"its peers cannot be installed: `{' '.join(error.cmd)}` failed") from error
    ours, theirs = (sysconfig.get_path("purelib", vars=of) for of in (None, _paths()))
    # After the environment's own packages. A plain line would not follow the links of editable installs.
    (Path(theirs) / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")


def _paths() -> dict[str, str]:
    return {"base": str(FOLDER), "platbase": str(FOLDER)}
