"""Trains cells, each with its references, and reports how far they are apart.

Cells with equally many ranks run one after the other in the same processes, a few at a time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count, islice
from math import inf
from pathlib import Path

from tests.parity.cases import ALONE, CELLS, PRECISIONS, Cell
from tests.parity.compare import (
    Apart,
    Distance,
    Learned,
    apart,
    bound,
    control,
    finer,
    judged,
    same_bits,
    together,
    undetected_zeros,
    worst,
)
from tests.parity.faults import Planted
from tests.parity.learning import RankResult, Task, learn_all, write_cell
from tests.trainer.ranks import on_mesh
from trainwright.contracts.parallelism_spec import Degrees

_TOGETHER = 6
"""Cells per set of processes. Each leaves its process groups behind."""

_RECUT = {"batch": {"micro_sequences": 2}}


@dataclass(frozen=True)
class Verdict:
    """Result of one cell."""

    name: str
    found: Distance
    """The difference of each kind that is nearest to its bound."""

    allowed: Distance
    bits: bool
    """Whether it has the bits of the one process, or of the cell that it must equal."""

    wrong: list[str]


@dataclass
class Matrix:
    """Trainings of ``steps`` steps, and the results of the one process and other cells."""

    folder: Path
    data: Path
    steps: int
    patience_seconds: int = 300
    _alone: dict[str, Learned] = field(default_factory=dict)
    """Results of cells with one rank, by ``_key``."""

    _learned: dict[str, Learned] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)

    def verdicts(self, names: Iterable[str], until: float = inf) -> Iterator[Verdict]:
        """Train the cells and those that they must equal, and judge each as soon as its ranks are done. Once
        ``time.monotonic`` is ``until``, no further cells are trained.
        """
        wanted = [name for name in names if CELLS[name].not_built is None]
        self._train_alone([CELLS[name] for name in wanted])
        likes = [cell.like for cell in map(CELLS.__getitem__, wanted) if cell.like not in (None, ALONE)]
        needed = dict.fromkeys([*filter(None, likes), *wanted])
        order = sorted(needed, key=lambda name: CELLS[name].ranks)
        for ranks in sorted({CELLS[name].ranks for name in order}):
            same = iter([name for name in order if CELLS[name].ranks == ranks])
            while time.monotonic() < until and (some := list(islice(same, _TOGETHER))):
                self._train(ranks, some)
                yield from (self._verdict(name) for name in some if name in wanted)

    def caught(self, faults: list[Planted], also: Iterable[str] = ()) -> dict[Planted, list[str]]:
        """Complaints of the comparison about each fault, injected for one or two steps; empty if a fault is
        not detected.

        Args:
            also: further precisions whose controls are trained, for a later call of ``undetected_zeros``.
        """
        cells = [*(CELLS[fault.cell] for fault in faults), *(Cell(1, {}, kind) for kind in also)]
        self._train_alone(cells)
        results = {}
        for ranks in sorted({CELLS[fault.cell].ranks for fault in faults}):
            same = [fault for fault in faults if CELLS[fault.cell].ranks == ranks]
            tasks = [Task(self._write(CELLS[item.cell]), self.steps, item.fault) for item in same]
            for one, of_ranks in zip(same, self._on(ranks, tasks), strict=True):
                results[one] = self._seen(CELLS[one.cell], of_ranks)
        return results

    def undetected_zeros(self, precisions: Iterable[str]) -> dict[str, list[str]]:
        """By precision, the weights whose gradient could be zero in the last step without being detected."""
        kinds = list(precisions)
        self._train_alone([Cell(1, {}, kind) for kind in kinds])
        return {kind: undetected_zeros(*self._bound_of(Cell(1, {}, kind))) for kind in kinds}

    def _seen(self, cell: Cell, of_ranks: list[RankResult | str]) -> list[str]:
        failures = [result for result in of_ranks if isinstance(result, str)]
        if failures:
            return failures
        one, allowed = self._one(cell), self._allowed(cell)
        try:
            learned = together([result for result in of_ranks if isinstance(result, RankResult)])
            return judged(cell, learned, one, allowed, None)
        except AssertionError as error:
            return [str(error)]

    def _verdict(self, name: str) -> Verdict:
        cell, learned = CELLS[name], self._learned[name]
        one, allowed = self._one(cell), self._allowed(cell)
        like = one if cell.like == ALONE else self._learned[cell.like] if cell.like else None
        return Verdict(
            name,
            *worst(apart(learned, one), allowed),
            same_bits(learned, like or one),
            judged(cell, learned, one, allowed, like),
        )

    def _one(self, cell: Cell) -> Learned:
        return self._alone[_key(cell.precision, cell, False)]

    def _allowed(self, cell: Cell) -> Apart:
        return self._bound_of(_control_of(cell))[1]

    def _bound_of(self, control_cell: Cell) -> tuple[Learned, Apart]:
        """A model in one process, and how far others may be from it: bounds follow from how far rounding moves it."""
        alone, recut = (
            {
                kind: self._alone[key]
                for kind in PRECISIONS
                if (key := _key(kind, control_cell, cut)) in self._alone
            }
            for cut in (False, True)
        )
        one = alone[control_cell.precision]
        return one, bound(control(control_cell.precision, alone, recut), one.losses[0])

    def _train_alone(self, cells: list[Cell]) -> None:
        """Train the one process of each cell and the controls."""
        needed: dict[str, Task] = {}
        controls = [_control_of(cell) for cell in cells]
        for cell, recut in [
            *(
                (replace(control_cell, precision=finer(control_cell.precision)), False)
                for control_cell in controls
            ),
            *((control_cell, recut) for recut in (False, True) for control_cell in controls),
            *((cell, False) for cell in cells),
        ]:
            key = _key(cell.precision, cell, recut)
            if key not in needed and key not in self._alone:
                one = Cell(1, {}, cell.precision, cell.sections)
                job_file = self._write(one, **(_RECUT if recut else {}))
                needed[key] = Task(job_file, self.steps, every_step=True)
        for key, results in zip(needed, self._on(1, list(needed.values())), strict=True):
            self._alone[key] = together(_successful(results))

    def _train(self, ranks: int, names: list[str]) -> None:
        tasks = [Task(self._write(CELLS[name]), self.steps) for name in names]
        for name, results in zip(names, self._on(ranks, tasks), strict=True):
            self._learned[name] = together(_successful(results))

    def _on(self, ranks: int, tasks: list[Task]) -> list[list[RankResult | str]]:
        """Results by task, then by rank."""
        if not tasks:
            return []
        by_rank = on_mesh(Degrees(replicas=ranks), learn_all, tasks, patience_seconds=self.patience_seconds)
        return [list(of_ranks) for of_ranks in zip(*by_rank, strict=True)]

    def _write(self, cell: Cell, **more: dict[str, int]) -> Path:
        return write_cell(self.folder / f"{next(self._numbers)}", self.data, cell, **more)


def _control_of(cell: Cell) -> Cell:
    """The model of ``cell`` in one process, without its settings of the optimizer."""
    sections = {name: section for name, section in cell.sections.items() if name != "optimizer"}
    return Cell(1, {}, cell.precision, sections)


def _key(precision: str, cell: Cell, recut: bool) -> str:
    return repr((precision, cell.sections, recut))


def _successful(results: list[RankResult | str]) -> list[RankResult]:
    """Results of trainings that must all succeed."""
    return [result for result in results if isinstance(result, RankResult)]
