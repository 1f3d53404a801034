"""The page on FP8 shows every plot, and plots are the same from the same seeds."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.benchmarks.report.results import DOCS
from tests.benchmarks.trainer import fp8_plots


def test_the_page_on_fp8_shows_every_plot_and_names_existing_code(repository: Path) -> None:
    page = (DOCS / "fp8.md").read_text()
    shown = set(re.findall(r"!\[.+\]\(fp8/(\w+)\.svg\)", page))
    assert shown == set(fp8_plots.PLOTS) - {"saved"}
    for name in shown:
        assert ElementTree.parse(DOCS / "fp8" / f"{name}.svg").getroot().tag.endswith("svg")
    code = repository / "trainer" / "trainwright_trainer"
    for name in re.findall(r"`((?:fp8|model|parallel)/\w+\.py)`", page):
        assert (code / name).is_file(), name


@pytest.mark.slow(target="bench-dry")
def test_plots_are_the_same_from_the_same_seeds() -> None:
    assert fp8_plots.moments() == fp8_plots.moments() == (DOCS / "fp8" / "moments.svg").read_text()
