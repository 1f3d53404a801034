"""The benchmarks run, at toy size: what waits for a GPU must not meet its first error there."""

import json
import re
import sys
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.benchmarks import (
    cpu,
    gpu,
    parity,
    peer_venv,
    peers,
    plots,
    quota,
    stages_auto,
    steps,
    table,
    traffic,
    turns,
)
from tests.benchmarks.entries import at_least, at_most
from tests.benchmarks.results import DOCS, RECORD, RefusedError, append, read, result
from tests.benchmarks.rows import ROWS, Mark
from tests.benchmarks.shapes import SHAPES, TOY
from tests.benchmarks.trainer_rows import TRAINER_ROWS

MEASURED_HERE = [row for row in ROWS if not row.name.startswith("peer-")]
BESIDE_OTHERS = [row for row in ROWS if row.name.startswith("peer-")]


@pytest.mark.parametrize("row", MEASURED_HERE, ids=lambda row: row.name)
def test_a_row_runs_dry_and_leaves_nothing(row: gpu.Row, tmp_path: Path) -> None:
    before = RECORD.read_bytes() if RECORD.exists() else None
    found = gpu.run_row(row, dry=True, record=tmp_path / "gpu.json")
    assert found is not None
    # MFU needs the peak of a GPU; everything else that is judged must be measured.
    judged = {mark.figure for mark in row.marks if "mfu" not in mark.figure}
    assert judged <= set(found.figures)
    assert not (tmp_path / "gpu.json").exists()
    assert (RECORD.read_bytes() if RECORD.exists() else None) == before


@pytest.mark.parametrize("row", BESIDE_OTHERS, ids=lambda row: row.name)
def test_a_trainer_that_is_missing_is_refused_with_the_remedy(
    row: gpu.Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = row.name.removeprefix("peer-")
    monkeypatch.setitem(peers.PACKAGES, name, {"no_such_module": "no-such-package"})
    assert gpu.main([row.name, "--dry-run", "--record", str(tmp_path / "gpu.json")]) == 2
    assert "not installed: pip install no-such-package" in capsys.readouterr().out


def test_a_process_of_a_trainer_tells_the_seconds_of_its_timed_steps(tmp_path: Path) -> None:
    request = peers.Request(
        model=TOY.model, vocabulary=TOY.vocabulary, batch=TOY.batch, warm_up=1, timed=2, folder=tmp_path
    )
    seconds = peers._in_a_process(peers.OURS, request)
    assert len(seconds) == 2
    assert all(one > 0 for one in seconds)


def test_shapes_have_the_parameters_of_their_names() -> None:
    billions = {name: shape.parameters / 1e9 for name, shape in SHAPES.items()}
    expected = {"1.3b": 1.35, "3b": 3.37, "7b": 6.74, "8b": 8.03, "peer": 1.53}
    assert billions == pytest.approx(expected, abs=0.01)
    assert all(shape.tokens_per_step >= 16_384 for name, shape in SHAPES.items() if name != "8b")


def test_results_are_kept_and_the_newest_stands_in_the_table(tmp_path: Path) -> None:
    record = tmp_path / "gpu.json"
    for ratio in (1.0, 1.2):
        append(result("capped", "make gpu ROW=capped", {"ratio": ratio, "cap_gb": 120}), record)
    assert [one.figures["ratio"] for one in read(record)] == [1.0, 1.2]
    lines = table.tables(read(record)).splitlines()
    (capped,) = (line for line in lines if line.startswith("| `capped`"))
    assert "| 1.2 (no) |" in capped
    assert "waits for a GPU" in next(line for line in lines if line.startswith("| `memory-7b`"))


def test_the_committed_table_is_fresh() -> None:
    assert table.PAGE.read_text() == table.page(), "run `python -m tests.benchmarks.table`"


@pytest.mark.parametrize(
    ("value", "at_most", "reached"),
    [
        (1.3, False, "goal"),
        (1.15, False, "pass"),
        (1.0, False, "no"),
        (1.0, True, "goal"),
        (1.15, True, "pass"),
        (1.3, True, "no"),
    ],
)
def test_a_mark_judges(value: float, at_most: bool, reached: str) -> None:
    mark = Mark("ratio", 1.2, 1.1, at_most) if at_most else Mark("ratio", 1.1, 1.2)
    assert mark.reached(value) == reached


@pytest.mark.timeout(400)  # each contender is a process of its own
@pytest.mark.parametrize("row", [row for row in TRAINER_ROWS if row != "bytes"])
def test_a_ratio_is_measured_and_written(row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where the peers are not installed, the network plays no part in a test: this one stands in for all of them.
    monkeypatch.setattr(steps, "peers_python", lambda create: sys.executable)
    monkeypatch.setattr(steps, "HF_TRAINER", steps.BARE)
    file = tmp_path / "bench.json"
    file.write_text('{"other": {}}')
    if row == "stages-auto" and not _quota_can_be_set():
        assert cpu.main([row, "--toy", "--json", str(file)]) != 0
        assert json.loads(file.read_text()) == {"other": {}}
        return
    assert cpu.main([row, "--toy", "--json", str(file)]) == 0
    entries = json.loads(file.read_text())
    assert entries.pop("other") == {}
    assert row in entries and all(name.startswith(row.split("-")[0]) for name in entries)
    for entry in entries.values():
        assert set(entry) - {"other_clock"} == {"ours", "peer", "ratio", "unit", "pass", "goal", "reached"}
        assert entry["ratio"] == pytest.approx(entry["ours"] / entry["peer"])


def _quota_can_be_set() -> bool:
    try:
        with quota.cpu_quota(0.5):
            return True
    except RefusedError:
        return False


def test_where_no_cpu_quota_can_be_set_the_row_says_so_and_leaves_no_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = partial(quota.cpu_quota, root=tmp_path)
    monkeypatch.setattr(stages_auto, "cpu_quota", nowhere)
    file = tmp_path / "bench.json"
    assert cpu.main(["stages-auto", "--toy", "--json", str(file)]) == 2
    assert (
        "not measured, a rank is slowed down by a CPU quota, and none can be set" in capsys.readouterr().out
    )
    assert not file.exists() and not list(tmp_path.glob("trainwright-bench-*"))


def test_a_row_without_its_peer_says_so_and_leaves_no_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peer_venv, "_FOLDER", tmp_path / "none")
    file = tmp_path / "bench.json"
    assert cpu.main(["overhead-hf-trainer", "--toy", "--json", str(file)]) == 2
    assert "not measured, its peers are not installed" in capsys.readouterr().out
    assert not file.exists() or not json.loads(file.read_text())


def test_processes_take_turns_and_time_neither_waiting_nor_tidying(tmp_path: Path) -> None:
    contenders = {name: turns.Contender("tests.trainer.contenders", name) for name in ("slow", "quick")}
    request = turns.Request(
        folder=tmp_path, model=TOY.model, vocabulary=8, batch=TOY.batch, steps=9, threads=1
    )
    spent = turns.in_turn(contenders, request, warm_up=1, rounds=2, steps=2)
    assert [len(one.wall) for one in spent.values()] == [8, 8]
    assert min(spent["slow"].wall) >= 0.02 > spent["quick"].wall_median()
    assert spent["slow"].cpu_median() < 0.02  # it sleeps


def test_a_contender_that_ends_early_is_named(tmp_path: Path) -> None:
    contenders = {"ends": turns.Contender("tests.trainer.contenders", "ends")}
    request = turns.Request(
        folder=tmp_path, model=TOY.model, vocabulary=8, batch=TOY.batch, steps=9, threads=1
    )
    with pytest.raises(RuntimeError, match=r"contenders\.ends ended with code 3"):
        turns.in_turn(contenders, request, warm_up=1, rounds=1)


@pytest.mark.parametrize(("level", "what"), [("O1", "gradients"), ("O3", "weights")])
def test_bytes_are_counted_at_the_collectives(level: str, what: str) -> None:
    shape = traffic._MICRO.with_batch(1, 2)
    ours, peer = traffic.count(level, what, 2, shape)
    # Codes alone are half of the peer's bytes: less would mean that a collective was not seen.
    assert 0.5 <= ours / peer <= 0.51


def test_parity_runs_pairs_and_is_judged(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = parity.Plan(
        data,
        {"layers": 1, "width": 32, "heads": 2},
        sequence_tokens=32,
        sequences=4,
        steps=4,
        seeds=(1, 2),
        learning_rates=(3e-3,),
        validation_sequences=8,
    )
    losses = parity.losses(plan, processes=1)
    assert all(len(ends) == 2 for ends in losses.values())
    assert losses["bf16"] != losses["O2"]
    assert set(cpu.judge_parity(losses)) == {"parity-O1", "parity-O2", "parity-O3"}
    assert "bf16, rows reversed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("percents", "control", "why"),
    [
        ([0.1, 0.11, 0.12], [0.0, 0.1, -0.1], "upper end at most 0.25 %"),
        ([1.0, -0.5, 0.2], [0.0, 0.1, -0.1], "the interval holds 0"),
        ([1.0, 1.1, 1.2], [1.0, -1.0, 0.5], "upper end at most 1.5 × the control's spread"),
        ([1.0, 1.1, 1.2], [0.0, 0.1, -0.1], None),
    ],
)
def test_parity_has_three_ways_to_pass_and_one_to_fail(
    percents: list[float], control: list[float], why: str | None
) -> None:
    found = parity.why_it_passes(parity.Difference.of(percents), parity.Difference.of(control))
    assert found is None if why is None else found is not None and found.startswith(why)


def test_an_interval_is_students() -> None:
    """Of 1, 2, 3: mean 2, deviation 1, 4.303 / √3."""
    difference = parity.Difference.of([1.0, 2.0, 3.0])
    assert (difference.mean, difference.half_width) == pytest.approx((2.0, 2.4843), abs=1e-4)


def test_entries_are_judged_by_their_ratio() -> None:
    assert [at_most(ours, 2.0, "s", 0.6, 0.5).reached for ours in (1.0, 1.1, 1.3)] == ["goal", "pass", "no"]
    assert [at_least(ours, 2.0, "s", 0.5, 0.6).reached for ours in (1.3, 1.1, 0.9)] == ["goal", "pass", "no"]


def test_the_page_on_fp8_shows_every_picture_and_names_code_that_is_there(repository: Path) -> None:
    page = (DOCS / "fp8.md").read_text()
    shown = set(re.findall(r"!\[.+\]\(fp8/(\w+)\.svg\)", page))
    assert shown == set(plots.PLOTS) - {"saved"}
    for name in shown:
        assert ElementTree.parse(DOCS / "fp8" / f"{name}.svg").getroot().tag.endswith("svg")
    code = repository / "trainer" / "trainwright_trainer"
    for name in re.findall(r"`((?:fp8|model|parallel)/\w+\.py)`", page):
        assert (code / name).is_file(), name


def test_pictures_are_measured_and_the_same_from_the_same_seeds() -> None:
    assert plots.moments() == plots.moments() == (DOCS / "fp8" / "moments.svg").read_text()
