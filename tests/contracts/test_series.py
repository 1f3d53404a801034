"""The registry of series has one entry per name."""

from trainwright.contracts.series import FAMILIES, RENAMED_SERIES, SERIES, STORED_SERIES, current_name


def test_each_name_is_registered_once() -> None:
    names = [info.name for info in SERIES] + [family.name for family in FAMILIES]
    assert len(names) == len(set(names))
    assert all(info.title and info.description.endswith(".") for info in (*SERIES, *FAMILIES))


def test_an_older_name_leads_to_a_registered_one() -> None:
    for old, new in RENAMED_SERIES.items():
        assert old not in STORED_SERIES and current_name(old) == new in STORED_SERIES
