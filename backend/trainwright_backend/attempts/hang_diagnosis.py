"""Which rank the others wait for, when no rank of a run makes progress.

All ranks of a group along a mesh axis enter the same collectives in the same order. So a rank that has entered more
collectives than another rank of its group waits for that rank, or soon will. A rank that others wait for, and that waits for
no one itself, is the cause. So is any rank whose process is stopped.

Collectives inside libraries are not counted: FSDP, DeepSpeed, the sends of pipeline schedules, compiled graphs. For these,
the module compares the sections of a step instead. Ranks with the same layers finish them in the same order.

The module only computes on what the nodes reported; it does not use the database.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trainwright.contracts.listing import listed
from trainwright.contracts.parallelism_spec import Degrees
from trainwright.contracts.rank_progress import (
    AXES,
    AxisName,
    RankActivity,
    RankProgress,
    lines_along,
)

SHOWN_RANKS = 3
"""How many ranks, and how many axes of a rank, a message names."""

_DOING = {
    RankActivity.STARTING: "at its start",
    RankActivity.STEP: "in step {step}",
    RankActivity.VALIDATION: "in the validation after step {step}",
    RankActivity.SAVING: "saving the checkpoint of step {step}",
    RankActivity.ENDING: "after its last step",
}


@dataclass(frozen=True)
class PlacedRank:
    """The progress of a rank, and its node."""

    node: str
    progress: RankProgress
    stopped: bool = False


@dataclass(frozen=True)
class Missing:
    """Collectives of one axis that other ranks have entered and this rank has not."""

    axis: AxisName
    number: int
    """The number of the first of these collectives."""

    waiting: tuple[int, ...]
    """The ranks that have entered it."""


@dataclass(frozen=True)
class Diagnosis:
    """The cause of a hang, as far as their progress shows it."""

    culprits: tuple[int, ...]
    """The ranks that the others wait for; empty if no rank is behind another."""

    sentence: str


def diagnose(ranks: Mapping[int, PlacedRank], degrees: Degrees) -> Diagnosis:
    """Find the ranks that keep all ``ranks`` from making progress."""
    missing = _missing(ranks, degrees)
    stopped = tuple(rank for rank, placed in sorted(ranks.items()) if placed.stopped)
    culprits = stopped or _waited_for(missing) or _behind_in_sections(ranks, degrees)
    if not culprits and degrees.ranks == 1:
        return Diagnosis((), f"Rank 0 hangs {_everywhere(ranks)}. Its log of stacks shows where.")
    if not culprits:
        return Diagnosis(
            (), f"All ranks are at the same place: {_everywhere(ranks)}. Check the network between them."
        )
    told = [_told(rank, ranks, missing[rank]) for rank in culprits[:SHOWN_RANKS]]
    if len(culprits) > SHOWN_RANKS:
        told.append(f"The others also wait for {len(culprits) - SHOWN_RANKS} more ranks.")
    return Diagnosis(culprits, " ".join(told))


def _missing(ranks: Mapping[int, PlacedRank], degrees: Degrees) -> dict[int, list[Missing]]:
    """The collectives that others in a rank's groups have entered and it has not, by rank; the smallest groups first."""
    lines = [(axis, line) for axis in AXES for line in lines_along(axis, degrees)]
    found: dict[int, list[Missing]] = {rank: [] for rank in ranks}
    for axis, line in sorted(lines, key=lambda item: len(item[1])):
        entered = {rank: ranks[rank].progress.on(axis).entered for rank in line if rank in ranks}
        most = max(entered.values(), default=0)
        for rank, count in entered.items():
            if count < most:
                ahead = tuple(other for other in entered if entered[other] > count)
                found[rank].append(Missing(axis, count + 1, ahead))
    return found


def _waited_for(missing: Mapping[int, Sequence[Missing]]) -> tuple[int, ...]:
    """The ranks that others wait for and that wait for no one; if there are none, all that are behind another rank."""
    waiting = {rank for found in missing.values() for one in found for rank in one.waiting}
    behind = sorted(rank for rank, found in missing.items() if found)
    return tuple(rank for rank in behind if rank not in waiting) or tuple(behind)


def _behind_in_sections(ranks: Mapping[int, PlacedRank], degrees: Degrees) -> tuple[int, ...]:
    found: list[int] = []
    for line in lines_along(AxisName.STAGE, degrees):
        ended = {rank: ranks[rank].progress.sections for rank in line if rank in ranks}
        found += [rank for rank, count in ended.items() if count < max(ended.values())]
    return tuple(sorted(found))


def _told(rank: int, ranks: Mapping[int, PlacedRank], missing: Sequence[Missing]) -> str:
    placed = ranks[rank]
    where = _DOING[placed.progress.activity].format(step=f"{placed.progress.step:,}")
    stopped = " Its process is stopped." if placed.stopped else ""
    if missing:
        places = ", nor at ".join(_place(one, ranks) for one in missing[:SHOWN_RANKS])
        return f"Rank {rank} on {placed.node} has not arrived at {places}. It is {where}.{stopped}"
    inside = [
        f"{_name(count.operation(count.left + 1), count.left + 1)} of the {count.axis} axis"
        for count in placed.progress.axes
        if count.left < count.entered
    ]
    at = f"is at {' and '.join(inside)}" if inside else "is behind the ranks with the same layers"
    if placed.stopped and not inside:
        at = "makes no progress"
    return f"Rank {rank} on {placed.node} {at} {where}.{stopped}"


def _place(missing: Missing, ranks: Mapping[int, PlacedRank]) -> str:
    counts = (ranks[rank].progress.on(missing.axis) for rank in missing.waiting)
    operation = next(filter(None, (count.operation(missing.number) for count in counts)), None)
    return (
        f"{_name(operation, missing.number)} of the {missing.axis} axis, where {_ranks(missing.waiting)} "
        f"{'waits' if len(missing.waiting) == 1 else 'wait'}"
    )


def _name(operation: str | None, number: int) -> str:
    return f"{operation or 'collective'} {number:,}"


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {listed(ranks, SHOWN_RANKS)}"


def _everywhere(ranks: Mapping[int, PlacedRank]) -> str:
    activities: Iterable[str] = sorted(
        {
            _DOING[placed.progress.activity].format(step=f"{placed.progress.step:,}")
            for placed in ranks.values()
        }
    )
    return " or ".join(activities)
