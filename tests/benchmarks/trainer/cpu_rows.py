"""The trainer's rows of ``make bench``, by name. A row returns entries by name.

Raises:
    RefusedError: (every row) its peer is missing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from tests.benchmarks.report.entries import Entry
from tests.benchmarks.trainer import (
    arithmetic,
    auto_stages,
    checkpointing,
    communication,
    data_loading,
    exporting,
    first_step,
    startup,
    step_time,
)

Entries = dict[str, Entry]
Row = Callable[[argparse.Namespace], Entries]

TRAINER_ROWS: dict[str, Row] = {
    "bytes": lambda given: communication.run(given.toy),
    "state": lambda given: arithmetic.state(given.toy),
    "optimizer": lambda given: arithmetic.optimizer(given.toy),
    "overhead": lambda given: step_time.overhead(given.toy, given.folder),
    "overhead-100ms": lambda given: step_time.overhead_of_long_steps(given.toy, given.folder),
    "overhead-hf-trainer": lambda given: step_time.overhead_of_hf_trainer(given.toy, given.folder),
    "compile": lambda given: step_time.compiled(given.toy, given.folder),
    "loader": lambda given: data_loading.loader(given.toy, given.folder),
    "checkpoint-stall": lambda given: checkpointing.stall(given.toy, given.folder),
    "checkpoint-persist": lambda given: checkpointing.persist(given.toy, given.folder),
    "checkpoint-load": lambda given: checkpointing.load(given.toy, given.folder),
    "export-memory": lambda given: exporting.memory(given.toy, given.folder),
    "first-step": lambda given: first_step.first_step(given.toy, given.folder),
    "start-up": lambda given: startup.start_up(given.toy, given.folder),
    "stages-auto": lambda given: auto_stages.stages_auto(given.toy, given.folder),
    "degree-1": lambda given: step_time.degree_1(given.toy, given.folder),
}
