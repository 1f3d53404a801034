"""Names of series: which of them a request means, and which belong to single tensors.

A series of one tensor has a slash in its name, ``fp8_amax/<tensor>``. A large model has thousands of them, so they are
answered and streamed to those who ask for them, and never stand in a run's summary. Those with the same word before
the slash are a family: they are measured in the same steps.
"""

from collections.abc import Sequence

ANY = "*"

ELAPSED = "elapsed_seconds"
"""Training time up to each step: worked out of `seconds` for those who name it, never stored or streamed."""


def is_of_tensor(name: str) -> bool:
    """Whether it is one of the many series that are shown on demand only."""
    return "/" in name


def family(name: str) -> str:
    """What stands for the series where only its steps matter: ``fp8_amax/`` for all amaxes, else its own name."""
    head, slash, _ = name.partition("/")
    return head + slash


class Selection:
    """The series that a request means: those named, ``*`` standing for any text; with no name, all but tensors'."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names = tuple(names)

    @property
    def wants_tensors(self) -> bool:
        """False when series of tensors cannot be meant, which are the many."""
        return any(is_of_tensor(name) or ANY in name for name in self._names)

    @property
    def wants_elapsed(self) -> bool:
        """Whether `ELAPSED` is named."""
        return ELAPSED in self._names

    def __contains__(self, name: str) -> bool:
        if not self._names:
            return not is_of_tensor(name)
        return any(_means(pattern, name) for pattern in self._names)


def _means(pattern: str, name: str) -> bool:
    """Whether the pattern fits. Each part is sought once from left to right, so that no pattern is slow."""
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
