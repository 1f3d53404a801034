"""Any layout trains to the same losses and gradients: the short form of ``make parity``, and faults that it must see."""

from pathlib import Path

import pytest

from tests.parity.cases import CELLS, SHORT, Cell
from tests.parity.compare import distance, together
from tests.parity.faults import FAULTS, PLANTED, Planted
from tests.parity.learning import Task, learn, write_cell
from tests.parity.matrix import Matrix
from tests.parity.partial_sums import learn_in_parts
from tests.parity.run import PAGE, page, read
from tests.trainer.jobs import TINY
from tests.trainer.ranks import on_mesh
from trainwright.contracts.parallelism_spec import Degrees
from trainwright.contracts.run_spec import RunSpec

STEPS = 5


def test_layouts_learn_what_one_process_does(tmp_path: Path, prepared: Path) -> None:
    found = {verdict.name: verdict.wrong for verdict in Matrix(tmp_path, prepared, STEPS).verdicts(SHORT)}
    assert set(found) == set(SHORT)
    assert not {name: wrong for name, wrong in found.items() if wrong}


def test_each_collective_that_is_left_out_or_misrouted_is_seen(tmp_path: Path, prepared: Path) -> None:
    """Two steps: a weight that is not handed round is missed in the second one. Without a fault nothing is said."""
    assert {one.fault for one in PLANTED} == set(FAULTS)
    sound = [Planted(None, cell) for cell in {one.cell: None for one in PLANTED}]
    said = Matrix(tmp_path, prepared, 2).caught([*sound, *PLANTED])
    assert not {one.cell: words for one, words in said.items() if one.fault is None and words}
    unseen = [one for one, words in said.items() if one.fault is not None and not words]
    assert not unseen


def test_tensor_ranks_in_bfloat16_round_what_one_process_does_that_adds_up_parts(
    tmp_path: Path, prepared: Path
) -> None:
    """Of four seeds, three gave the same bits; in one, a sum in float32 took a rounding the other way: a fifth remained."""
    alone = Task(write_cell(tmp_path / "alone", prepared, Cell(1, {}, "bf16")), steps=1)
    cut = Task(write_cell(tmp_path / "cut", prepared, CELLS["bf16: tensor 2"]), steps=1)
    whole, parts, ranks = (
        together(told)
        for told in (
            on_mesh(Degrees(), learn, alone),
            on_mesh(Degrees(), learn_in_parts, alone, 2),
            on_mesh(Degrees(tensor=2), learn, cut),
        )
    )
    assert distance(ranks, whole).first > 1e-3
    assert distance(ranks, parts).first < distance(ranks, whole).first / 2


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_is_a_run_that_may_be_submitted(name: str) -> None:
    """Or says why it is not compared."""
    cell = CELLS[name]
    given = TINY | cell.spec | {"resources": {"device": "cpu", "slots_per_node": cell.ranks}}
    assert RunSpec.model_validate(given).degrees.ranks == cell.ranks
    assert cell.like is None or cell.like == "one process" or CELLS[cell.like].ranks <= cell.ranks


def test_the_page_is_the_record() -> None:
    assert PAGE.read_text() == page(read())
