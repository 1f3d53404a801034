"""Checking whether the ranks of a node make progress, by the counts that they publish (``contracts.rank_progress``).

Ranks wait for each other, so one that hangs stops all of them within a step, on every node. A node's supervisor sees
only its own ranks. If they stall, it reports their progress. The platform receives the reports of all
nodes; it decides whether the run hangs, and finds the rank that causes it.

Time counts only while this process watches. If this process was stopped or the machine slept, the ranks did not run either.
Some activities may take long without a sign of progress, and so may the first steps. They get ten times the limit, unless a
rank's process is stopped, here or on another node. While a checkpoint is saved, bytes that appear on the disk are progress.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path

from trainwright.contracts.job_spec import CHECKPOINTS_FOLDER, OUTPUT_FOLDER
from trainwright.contracts.rank_progress import (
    PROGRESS_BYTES,
    PROGRESS_FOLDER,
    RankActivity,
    RankProgress,
    Stall,
    StalledRank,
    progress_file_name,
    read_progress,
)
from trainwright_agent.supervisor.stall_limit import StallLimit
from trainwright_agent.untrusted_files import opened_folder, read_small

PATIENCE = 10.0
"""Times the limit that ranks may take without progress outside of steps, and in the first steps."""
_MAX_GAP_SECONDS = 2.0
"""Longest time between two checks that counts; the rest of a longer gap does not."""
_COUNTED_FILES = 10_000
_COUNTED_FOLDERS = 100
"""The trainer writes files and folders, perhaps very many. Counting them must not delay the renewal of the lease."""
_SAVING = (RankActivity.SAVING, RankActivity.ENDING)


class StallDetector:
    """Watches the ranks of one attempt on one node.

    Args:
        folder: the attempt's folder.
        ranks: the ranks of this node.
        find_stopped: returns the ranks whose processes are stopped; called only while none makes progress.
        clock: seconds that do not jump.
    """

    def __init__(
        self,
        folder: Path,
        ranks: Sequence[int],
        find_stopped: Callable[[], set[int]],
        clock: Callable[[], float],
    ) -> None:
        self._folder = folder
        self._ranks = ranks
        self._find_stopped = find_stopped
        self._clock = clock
        self._limit = StallLimit()
        self._looked = clock()
        self._stalled_seconds = 0.0
        self._seen: tuple[object, ...] = ()

    def look(self, floor_seconds: float, stopped_elsewhere: bool = False) -> Stall | None:
        """The progress of the ranks, if they have made none for longer than the limit; None otherwise, or if no rank
        publishes its progress.

        Args:
            floor_seconds: the least limit.
            stopped_elsewhere: whether a rank's process is stopped on another node of the run.
        """
        elapsed_seconds = min(self._clock() - self._looked, _MAX_GAP_SECONDS)
        self._looked = self._clock()
        progress_by_rank = read_progress_of_ranks(self._folder, self._ranks)
        if not progress_by_rank:
            return None
        first = max(progress_by_rank.values(), key=lambda progress: progress.step)
        self._limit.observe(elapsed_seconds, first.step, in_step=first.activity is RankActivity.STEP)
        self._note(progress_by_rank, elapsed_seconds)
        limit_seconds = self._limit.seconds(floor_seconds)
        if self._stalled_seconds < limit_seconds:
            return None
        stopped = self._find_stopped()
        if not stopped and not stopped_elsewhere and self._may_take_long(progress_by_rank):
            limit_seconds *= PATIENCE
        if self._stalled_seconds < limit_seconds:
            return None
        ranks = [
            StalledRank(rank=rank, position=progress, stopped=rank in stopped)
            for rank, progress in progress_by_rank.items()
        ]
        return Stall(seconds=self._stalled_seconds, limit_seconds=limit_seconds, ranks=ranks)

    def _note(self, progress_by_rank: Mapping[int, RankProgress], elapsed_seconds: float) -> None:
        saves = any(progress.activity in _SAVING for progress in progress_by_rank.values())
        seen = (progress_by_rank, count_saved_bytes(self._folder) if saves else 0)
        self._stalled_seconds = self._stalled_seconds + elapsed_seconds if seen == self._seen else 0.0
        self._seen = seen

    def _may_take_long(self, progress_by_rank: Mapping[int, RankProgress]) -> bool:
        in_steps = all(progress.activity is RankActivity.STEP for progress in progress_by_rank.values())
        return not in_steps or not self._limit.is_learned


def read_progress_of_ranks(folder: Path, ranks: Sequence[int]) -> dict[int, RankProgress]:
    """The progress that ``ranks`` publish in the attempt's ``folder``."""
    found = {}
    for rank in ranks:
        names = (OUTPUT_FOLDER, PROGRESS_FOLDER, progress_file_name(rank))
        progress = read_progress(read_small(folder, *names, limit_bytes=PROGRESS_BYTES))
        if progress is not None:
            found[rank] = progress
    return found


def count_saved_bytes(folder: Path) -> int:
    """Bytes of the checkpoints' files on this node, also of one that is being written."""
    try:
        with opened_folder(folder, OUTPUT_FOLDER, CHECKPOINTS_FOLDER) as checkpoints:
            names = [entry.name for entry in islice(os.scandir(checkpoints), _COUNTED_FOLDERS)]
        return sum(_folder_bytes(folder, name) for name in names)
    except OSError:
        return 0


def _folder_bytes(folder: Path, name: str) -> int:
    try:
        with opened_folder(folder, OUTPUT_FOLDER, CHECKPOINTS_FOLDER, name) as checkpoint:
            files = islice(os.scandir(checkpoint), _COUNTED_FILES)
            return sum(file.stat(follow_symlinks=False).st_size for file in files)
    except OSError:  # it was renamed or deleted meanwhile
        return 0
