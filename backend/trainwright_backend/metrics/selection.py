"""Selecting series by name, and distinguishing series of single tensors from the others.

A series of one tensor has a slash in its name, ``fp8_amax/<tensor>``. A large model has thousands of them, so
they are returned and streamed only on request, and are never in a run's summary. Series with the same word
before the slash are a family and are measured in the same steps.
"""

from collections.abc import Sequence

from trainwright.contracts.series import ELAPSED, current_name

ANY = "*"


def is_of_tensor(name: str) -> bool:
    """Whether it is one of the many series that are returned only on request."""
    return "/" in name


def family(name: str) -> str:
    """The key of series with the same steps: ``fp8_amax/`` for all amaxes, otherwise the series' own name."""
    head, slash, _ = name.partition("/")
    return head + slash


class Selection:
    """The series that a request selects by names, in which ``*`` matches any text; without names, all but those
    of tensors."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names = tuple(current_name(name) for name in names)

    @property
    def wants_tensors(self) -> bool:
        """False if no series of a tensor can match; there may be thousands of them."""
        return any(is_of_tensor(name) or ANY in name for name in self._names)

    @property
    def wants_elapsed(self) -> bool:
        """Whether `ELAPSED` is requested by name."""
        return ELAPSED in self._names

    def __contains__(self, name: str) -> bool:
        if not self._names:
            return not is_of_tensor(name)
        return any(_means(pattern, name) for pattern in self._names)


def _means(pattern: str, name: str) -> bool:
    """Whether the pattern matches. Each part is searched once from left to right, so that no pattern is slow."""
    head, *rest = pattern.split(ANY)
    if not rest:
        return name == head
    *middle, tail = rest
    at, end = len(head), len(name) - len(tail)
    if at > end or not (name.startswith(head) and name.endswith(tail)):
        return False
    for part in middle:
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True
