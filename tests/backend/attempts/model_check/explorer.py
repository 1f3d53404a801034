"""Visiting every reachable state, and finding those from which no run can end."""

from collections import deque
from dataclasses import dataclass

from tests.backend.attempts.model_check.machines import Machines
from tests.backend.attempts.model_check.platform import BrokenRuleError
from tests.backend.attempts.model_check.world import World


@dataclass(frozen=True)
class Explored:
    """The visited states."""

    states: int
    moves: int


class CounterexampleError(Exception):
    """The moves that lead to a state in which a rule is broken."""

    def __init__(self, rule: str, path: list[str]) -> None:
        super().__init__("\n".join([rule, *path]))
        self.rule = rule


def explore(machines: Machines, start: World, most_states: int) -> Explored:
    """Visit all states in breadth-first order, so that a counterexample is short.

    Raises:
        CounterexampleError: a rule does not hold in a state, or a state from which no run can end was found.
        AssertionError: there are more than ``most_states`` states, so not all were visited.
    """
    numbers: dict[World, int] = {start: 0}
    parents: list[tuple[int, str]] = [(-1, "")]
    before: list[list[int]] = [[]]
    """For each state, the states from which a repairing move leads to it."""
    quiet: list[int] = []
    waiting = deque([start])
    moves = 0
    while waiting:
        world = waiting.popleft()
        number = numbers[world]
        try:
            machines.check(world)
            if machines.is_quiet(world):
                quiet.append(number)
            for move in machines.moves(world):
                moves += 1
                found = numbers.get(move.world)
                if found is None:
                    found = numbers[move.world] = len(parents)
                    parents.append((number, move.name))
                    before.append([])
                    waiting.append(move.world)
                    assert found < most_states, "the check must be made smaller"
                if move.repairs:
                    before[found].append(number)
        except BrokenRuleError as error:
            raise CounterexampleError(str(error), _path(parents, number)) from error
    stuck = _cannot_end(before, quiet)
    if stuck is not None:
        raise CounterexampleError("no repair ends the runs from here", _path(parents, stuck))
    return Explored(len(parents), moves)


def _cannot_end(before: list[list[int]], quiet: list[int]) -> int | None:
    """The first state from which no path of repairing moves leads to a quiet one."""
    can_end = bytearray(len(before))
    reached = list(quiet)
    for number in quiet:
        can_end[number] = 1
    while reached:
        for number in before[reached.pop()]:
            if not can_end[number]:
                can_end[number] = 1
                reached.append(number)
    stuck = can_end.find(0)
    return None if stuck < 0 else stuck


def _path(parents: list[tuple[int, str]], number: int) -> list[str]:
    names: list[str] = []
    while number > 0:
        number, name = parents[number]
        names.append(name)
    return names[::-1]
