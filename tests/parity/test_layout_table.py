"""`make parity-table ARGS=--layouts` at toy size: it trains, judges each pair, and writes the page."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.parity import layouts, run
from tests.trainer.training.test_layouts import FP32_NOISE, TABLES, Table

TOY = Table(2, {"kind": "fp32"}, ("one", "data 2"), FP32_NOISE)
TOO_STRICT = TOY._replace(layouts=("data 2", "tensor 2"), noise=0.0)
"""Two data ranks and two tensor ranks do not add in the same order."""


def _rows(page: str) -> list[list[str]]:
    """Cells of the table of layouts, without its head."""
    table = page.partition(layouts.BEGIN)[2].partition(layouts.END)[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.slow(target="parity")
def test_each_pair_is_trained_judged_and_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committed = run.PAGE.read_text()
    page = tmp_path / run.PAGE.name
    page.write_text(committed)
    monkeypatch.setattr(run, "PAGE", page)
    monkeypatch.setattr(layouts, "TABLES", {"toy": TOY})
    assert run.main(["--layouts"]) == 0
    ((precision, home, other, back, losses),) = _rows(page.read_text())
    assert (precision, home, other, back) == ("toy", "data 2", "one", "the same bits")
    found, allowed = map(float, losses.split(" of "))
    assert found < allowed
    assert page.read_text().partition(layouts.BEGIN)[0] == committed.partition(layouts.BEGIN)[0]
    assert page.read_text().partition(layouts.END)[2] == committed.partition(layouts.END)[2]
    monkeypatch.setattr(layouts, "TABLES", {"too strict": TOO_STRICT})
    assert run.main(["--layouts"]) == 1
    ((*_, losses),) = _rows(page.read_text())
    assert "**fails**: the losses of the other layout differ too much" in losses


def test_the_page_has_all_pairs() -> None:
    wanted = [[name, b, a] for name, table in TABLES.items() for a, b in pairwise(table.layouts)]
    rows = _rows(run.PAGE.read_text())
    assert [row[:3] for row in rows] == wanted
    assert not any("**fails**" in row[4] for row in rows)
