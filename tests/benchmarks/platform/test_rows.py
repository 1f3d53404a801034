"""Every row of data, runs and the API runs at toy size and writes what it measured."""

import json
from pathlib import Path

import pytest

from tests.benchmarks import cpu
from tests.benchmarks.data.preparation import PREPARING_ROWS
from tests.benchmarks.platform.api_load import API_ROWS
from tests.benchmarks.platform.placement_rounds import PLACEMENT_ROWS
from tests.benchmarks.platform.run_start import START_ROWS
from tests.benchmarks.platform.transfers import TRANSFER_ROWS


@pytest.mark.slow(target="bench-dry")
@pytest.mark.parametrize("row", [*TRANSFER_ROWS, *PREPARING_ROWS, *START_ROWS, *API_ROWS, *PLACEMENT_ROWS])
def test_a_row_writes_the_ratio_it_measured(row: str, tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    assert cpu.main([row, "--toy", "--json", str(file)]) == 0
    entries = json.loads(file.read_text())
    assert entries and all(name == row or name.startswith(f"{row}-") for name in entries)
    for entry in entries.values():
        assert entry["ours"] > 0 and entry["peer"] > 0
        assert entry["ratio"] == pytest.approx(entry["ours"] / entry["peer"])
