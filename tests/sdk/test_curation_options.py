"""The curation that results from the options of `datasets upload`."""

import pytest
import typer

from trainwright.commands.datasets import curation_of
from trainwright.contracts.curation import CurationSpec, FilterRules, ReadSpec, TextDocuments

BASE = CurationSpec(drop_duplicates=True, rules=FilterRules(min_characters=20))


@pytest.mark.parametrize(
    ("options", "sets", "expected"),
    [
        ((None, None, None), None, None),
        ((None, None, None), [], None),
        (
            (TextDocuments.BLANK_LINE, None, None),
            [],
            CurationSpec(read=ReadSpec(text_documents="blank_line")),
        ),
        ((None, "body", True), [], CurationSpec(read=ReadSpec(field="body"), drop_duplicates=True)),
        ((None, "7", None), [], CurationSpec(read=ReadSpec(field="7"))),
        ((None, None, None), ["curation.rejected_limit=0.5"], CurationSpec(rejected_limit=0.5)),
        ((None, None, None), ["rules.max_characters=9"], CurationSpec(rules=FilterRules(max_characters=9))),
    ],
)
def test_options_result_in_a_curation_or_none(
    options: tuple[TextDocuments | None, str | None, bool | None],
    sets: list[str] | None,
    expected: CurationSpec | None,
) -> None:
    assert curation_of(*options, sets) == expected


def test_options_change_only_their_fields_of_a_curation() -> None:
    changed = curation_of(None, "body", None, ["curation.rules.max_characters=900"], BASE)
    assert changed == CurationSpec(
        read=ReadSpec(field="body"),
        drop_duplicates=True,
        rules=FilterRules(min_characters=20, max_characters=900),
    )
    assert curation_of(None, None, None, ["rules.min_characters="], BASE) == CurationSpec(
        drop_duplicates=True
    )
    assert curation_of(None, None, True, None, BASE) is None, "nothing changes"


@pytest.mark.parametrize("change", ["curation.rulez.x=1", "curation.rejected_limit=2", "nonsense", "mix=3"])
def test_invalid_options_are_refused(change: str) -> None:
    with pytest.raises(typer.Exit):
        curation_of(None, None, None, [change])
