#!/bin/sh
# PostgreSQL and a broker for development, from the wheels that the tests use: no Docker, no root, empty at every start,
# removed by Ctrl-C. Prints the settings that point the platform at them.
set -eu
cd "$(dirname "$0")/.."

exec .venv/bin/python - <<'EOF_PYTHON'
import signal
import tempfile
from pathlib import Path

from tests.services import running_postgres
from trainwright_backend.core.broker import start_broker

with tempfile.TemporaryDirectory(prefix="trainwright-") as folder:
    Path(folder, "postgres").mkdir(mode=0o700)
    Path(folder).chmod(0o711)  # the server may run as another user, who needs access to its folder
    with running_postgres(Path(folder, "postgres")) as database:
        broker = start_broker(Path(folder, "broker"))
        print(f"export TRAINWRIGHT_DATABASE_URL='{database}'")
        print(f"export TRAINWRIGHT_HINTS_URL='{broker.url}' TRAINWRIGHT_TASKS_URL='{broker.url}'", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            broker.stop()
EOF_PYTHON
