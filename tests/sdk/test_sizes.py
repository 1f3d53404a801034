import pytest

from trainwright.sizes import format_bytes, format_distinct


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (4_939_211, "4.71 MiB"),
        (855_000, "835 KiB"),
        (2_040_109_465, "1.9 GiB"),
        (1_023 * 2**20, "1 GiB"),
        (200 * 2**20, "200 MiB"),
        (2**40, "1 TiB"),
        (5000 * 2**40, "5,000 TiB"),
    ],
)
def test_a_size_is_shown_in_the_unit_with_the_fewest_digits(size_bytes: int, text: str) -> None:
    assert format_bytes(size_bytes) == text


@pytest.mark.parametrize(
    ("size_bytes", "other_bytes", "texts"),
    [
        (int(140.4 * 2**30), int(139.6 * 2**30), ("140.4 GiB", "139.6 GiB")),
        (2**30 + 1, 2**30, ("1.000000001 GiB", "1.000000000 GiB")),
        (2**30, 2**30, ("1 GiB", "1 GiB")),
        (8 * 2**30, 2**40, ("8 GiB", "1 TiB")),
    ],
)
def test_different_sizes_never_look_equal(size_bytes: int, other_bytes: int, texts: tuple[str, str]) -> None:
    assert format_distinct(size_bytes, other_bytes) == texts
