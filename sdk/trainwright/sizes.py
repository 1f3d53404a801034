"""Sizes as people read them, the same in pages, messages and commands."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def format_bytes(size_bytes: int) -> str:
    """A size with three digits in the largest fitting unit: 4.71 MiB, 12 GiB, 1,000 TiB."""
    size, power = float(size_bytes), 0
    while size >= 1_000 and power < len(_UNITS) - 1:
        size, power = size / 1_024, power + 1
    return f"{trimmed(size)} {_UNITS[power]}"


def trimmed(number: float) -> str:
    """``number`` with at most three digits that differ from zero after rounding: 4.71, 12, 1,000."""
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.{1 if number >= 10 else 2}f}".rstrip("0").rstrip(".")
