"""Backups: the server's commands for them, and a platform that starts from a restored data folder."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.live import live_environment, store_cpu_peak
from trainwright_backend.local.data_folder import DataFolder
from trainwright_backend.local.platform import Platform, bind_socket


def run_server_command(*words: str, python_path: str | None = None) -> None:
    """Fail unless a command of `trainwright-server` succeeds; ``python_path`` leads to another release."""
    command = [sys.executable, "-m", "trainwright_backend.cli", *words]
    environment = dict(os.environ) | ({} if python_path is None else {"PYTHONPATH": python_path})
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2_000:]


@contextmanager
def restored_platform(
    folder: Path, timers: Mapping[str, float], settings: Mapping[str, str] | None = None
) -> Iterator[Platform]:
    """A platform on a restored data folder, until the block ends; its runs' processes end with it."""
    data = DataFolder.acquire(folder)
    store_cpu_peak(folder / "agent", cpu_slots=2)
    environment = live_environment(timers) | dict(settings or {})
    platform = Platform(data, bind_socket("127.0.0.1", 0), environment=environment)
    try:
        with platform:
            yield platform
            platform.stop_runs()
    finally:
        data.release()
