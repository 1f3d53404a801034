"""Reads every Parquet file of a folder as `parquet_process` would, each in a fork to load the libraries once.

``python -m tests.prepare.read_many FOLDER FIELD`` prints each reader's exit status by file name as JSON. It
is the negative signal number if a signal ended the reader.
"""

import json
import os
import signal
import sys
from pathlib import Path

from trainwright.prepare import parquet_process

MAX_SECONDS = 20


def read(path: Path, field: str) -> int:
    """Exit status of a process that reads only this file."""
    pid = os.fork()
    if not pid:
        status = 1  # like Python's for an uncaught exception
        try:
            signal.alarm(MAX_SECONDS)
            os.dup2(os.open(path, os.O_RDONLY), 0)
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            status = parquet_process.main(["values", field, "0"])
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    folder, field = Path(sys.argv[1]), sys.argv[2]
    print(json.dumps({path.name: read(path, field) for path in sorted(folder.iterdir())}))
