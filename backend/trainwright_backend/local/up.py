"""Running a platform in the foreground, as ``trainwright-server up`` does."""

from __future__ import annotations

import signal
import time
from functools import partial
from pathlib import Path

from trainwright_backend.core.db import open_database
from trainwright_backend.core.errors import Busy, Conflict
from trainwright_backend.local.data_folder import DataFolder, PlatformError
from trainwright_backend.local.platform import Platform, bind_socket, print_status
from trainwright_backend.local.restarts import Restarts
from trainwright_backend.teams import one_time_links

CHECK_SECONDS = 0.5


def run_until_interrupted(data: Path, host: str, port: int, cpu_slots: int, reload: bool) -> None:
    """Run a platform until Ctrl-C or SIGTERM. Processes that exit are started again.

    Prints the address and, before the first account exists, the link that creates the first owner.

    Raises:
        FolderInUseError: a running platform uses ``data``.
        PlatformError: a process did not start the first time, or the port is in use.
    """
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # SIGINT too: shells start background jobs with SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    folder = DataFolder.acquire(data)
    listener = bind_socket(host, port)
    try:
        print_status(f"Starting broker, database, API, worker and node agent in {folder.path}.")
        with Platform(
            folder, listener, cpu_slots=cpu_slots, reload=reload, announcement=_greeting
        ) as platform:
            print_status(
                "Ctrl-C stops the platform and its runs; runs resume from their last checkpoint at the next start."
            )
            print_status(f"The logs of broker, API, worker and node agent are in {platform.logs}.")
            restarts = Restarts(platform, print_status)
            try:
                while True:
                    restarts.check()
                    time.sleep(CHECK_SECONDS)
            finally:
                print_status("Stopping the runs, then agent, worker, API and broker.")
                platform.stop_runs()
    except KeyboardInterrupt:
        print_status("Stopped.")


def _greeting(platform: Platform) -> str:
    """The address, and either the link that creates the first account or the sign-in page."""
    settings = platform.settings()
    database = open_database(settings, {})
    try:
        link = database.retry_write(partial(one_time_links.first_owner_link, settings=settings))
        entrance = f"Create the first account: {link.url}"
    except Conflict:
        entrance = f"Sign in: {platform.url}/sign-in"
    except Busy as error:
        raise PlatformError(error.detail) from error
    finally:
        database.dispose()
    return f"Trainwright serves at {platform.url} from {platform.folder.path}.\n{entrance}"
