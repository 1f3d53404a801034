"""Rows of the trainer: each beside a peer in turn, in fresh processes (``turns``).

A row gives entries by name. One whose peer is missing is refused with the reason, and gives none.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from tests.benchmarks import arithmetic, first_step, loading, saving, stages_auto, start_up, steps, traffic
from tests.benchmarks.entries import Entry

Entries = dict[str, Entry]
Row = Callable[[argparse.Namespace], Entries]

TRAINER_ROWS: dict[str, Row] = {
    "bytes": lambda given: traffic.run(given.toy),
    "state": lambda given: arithmetic.state(given.toy),
    "optimizer": lambda given: arithmetic.optimizer(given.toy),
    "overhead": lambda given: steps.overhead(given.toy, given.folder),
    "overhead-100ms": lambda given: steps.overhead_of_long_steps(given.toy, given.folder),
    "overhead-hf-trainer": lambda given: steps.overhead_beside_hf_trainer(given.toy, given.folder),
    "compile": lambda given: steps.compiled(given.toy, given.folder),
    "loader": lambda given: loading.loader(given.toy, given.folder),
    "checkpoint-stall": lambda given: saving.stall(given.toy, given.folder),
    "checkpoint-persist": lambda given: saving.persist(given.toy, given.folder),
    "checkpoint-load": lambda given: saving.load(given.toy, given.folder),
    "first-step": lambda given: first_step.first_step(given.toy, given.folder),
    "start-up": lambda given: start_up.start_up(given.toy, given.folder),
    "stages-auto": lambda given: stages_auto.stages_auto(given.toy, given.folder),
    "degree-1": lambda given: steps.degree_1(given.toy, given.folder),
}
