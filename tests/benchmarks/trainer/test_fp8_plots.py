"""The page on FP8 shows every plot, and plots are the same from the same seeds."""

import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace
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
@pytest.mark.parametrize("name", fp8_plots.PLOTS)
def test_every_plot_is_reproducible(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(fp8_plots.PLOTS, "losses", partial(fp8_plots.losses, steps=25))
    assert fp8_plots.main([name, "--folder", str(tmp_path)]) == 0
    assert capsys.readouterr().out
    drawn = tmp_path / f"{name}.svg"
    assert drawn.exists() is (name != "saved")
    if name == "moments":  # sums of others may differ in their last bit on another processor
        assert drawn.read_text() == (DOCS / "fp8" / "moments.svg").read_text()


@pytest.mark.slow(target="bench-dry")
def test_losses_are_refused_if_the_formats_do_not_reach_the_optimizer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        fp8_plots, "materialize", SimpleNamespace(FP8Updater=None)
    )  # no longer what `build` calls
    with pytest.raises(AssertionError, match="made elsewhere"):
        fp8_plots.losses(steps=2)
