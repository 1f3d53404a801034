"""The row of the pages runs at toy size and writes what the browser measured."""

import json
import os
from pathlib import Path
from shutil import which

import pytest

from tests.benchmarks import cpu
from trainwright_backend.api.site import STATIC_FOLDER

NAMES = {"interactive", "frame-points", "frame-points-task", "frame-logs", "frame-logs-task", "compare"}


@pytest.mark.slow(target="bench-dry")
@pytest.mark.skipif(
    which(os.environ.get("CHROMIUM_PATH", "chromium")) is None
    or not (STATIC_FOLDER / "index.html").is_file(),
    reason="needs Chromium and the built frontend",
)
def test_the_row_writes_every_figure(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    assert cpu.main(["ui", "--toy", "--json", str(file)]) == 0
    entries = json.loads(file.read_text())
    assert entries.keys() == {f"ui-{name}" for name in NAMES}
    for entry in entries.values():
        assert 0 < entry["ours"] < 1_000
        assert entry["ratio"] == pytest.approx(entry["ours"] / entry["peer"])
