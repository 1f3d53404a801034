"""Sizes as people read them, the same in pages, messages and commands."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def format_bytes(size_bytes: int) -> str:
    """A size with three digits in the largest fitting unit: 4.71 MiB, 12 GiB, 1,000 TiB."""
    size, power = float(size_bytes), 0
    while size >= 1_000 and power < len(_UNITS) - 1:
        size, power = size / 1_024, power + 1
    return f"{trimmed(size)} {_UNITS[power]}"


def format_distinct(size_bytes: int, other_bytes: int) -> tuple[str, str]:
    """Two sizes as `format_bytes` writes them, with more digits if different sizes would look equal."""
    one, other = format_bytes(size_bytes), format_bytes(other_bytes)
    if one != other or size_bytes == other_bytes:
        return one, other
    unit = one.rpartition(" ")[2]
    whole = 1_024 ** _UNITS.index(unit)
    for digits in range(1, 12):
        texts = [f"{size / whole:,.{digits}f}" for size in (size_bytes, other_bytes)]
        if texts[0] != texts[1]:
            break
    return f"{texts[0]} {unit}", f"{texts[1]} {unit}"


def trimmed(number: float) -> str:
    """``number`` rounded to three digits, or to a whole number from 100 on, without zeros at the end of the fraction: 4.71, 12, 1,000."""
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.{1 if number >= 10 else 2}f}".rstrip("0").rstrip(".")
