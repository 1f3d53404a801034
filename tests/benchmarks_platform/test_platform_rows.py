"""Each row of the platform runs at toy size and writes what it found."""

import json
from pathlib import Path

import pytest

from tests.benchmarks import cpu
from tests.benchmarks.platform_rows import DATA_AND_START_ROWS
from tests.benchmarks.texts import documents, in_parts, size_of


@pytest.mark.timeout(400)  # each contender is a process of its own, beside a whole platform
@pytest.mark.parametrize("row", DATA_AND_START_ROWS)
def test_a_row_of_the_platform_is_measured_and_written(row: str, tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    assert cpu.main([row, "--toy", "--json", str(file)]) == 0
    entries = json.loads(file.read_text())
    assert entries and all(name == row or name.startswith(f"{row}-") for name in entries)
    for entry in entries.values():
        assert entry["ours"] > 0 and entry["peer"] > 0
        assert entry["ratio"] == pytest.approx(entry["ours"] / entry["peer"])


def test_texts_are_bounded_unlike_each_other_and_the_same_each_time() -> None:
    texts = documents(2_000_000)
    assert 1_000_000 < size_of(texts) <= 2_000_000
    assert len(set(texts)) == len(texts) and documents(2_000_000) == texts
    parts = list(in_parts(texts, 50_000))
    assert len(parts) > 1 and all(size_of(part) >= 50_000 for part in parts)
    assert size_of(texts) - sum(map(size_of, parts)) < 50_000
    assert [text for part in parts for text in part] == texts[: sum(map(len, parts))]
