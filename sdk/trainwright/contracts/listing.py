"""A list of names in a sentence that stays short."""

from collections.abc import Sequence


def listed(items: Sequence[object], most: int) -> str:
    """`a, b and 3 more`: the first ``most`` items, and the number of the others."""
    shown = ", ".join(map(str, items[:most]))
    more = len(items) - most
    return f"{shown} and {more:,} more" if more > 0 else shown
