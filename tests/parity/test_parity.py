"""Any layout trains to the same losses and gradients: the short form of ``make parity``, and faults that it must see."""

from pathlib import Path

import pytest

from tests.parity.cases import CELLS, SHORT
from tests.parity.faults import FAULTS, PLANTED, Planted
from tests.parity.matrix import Matrix
from tests.parity.run import PAGE, page, read
from tests.trainer.jobs import TINY
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


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_is_a_run_that_may_be_submitted(name: str) -> None:
    """Or says why it is not compared."""
    cell = CELLS[name]
    given = TINY | cell.spec | {"resources": {"device": "cpu", "slots_per_node": cell.ranks}}
    assert RunSpec.model_validate(given).degrees.ranks == cell.ranks
    assert cell.like is None or cell.like == "one process" or CELLS[cell.like].ranks <= cell.ranks


def test_the_page_is_the_record() -> None:
    assert PAGE.read_text() == page(read())
