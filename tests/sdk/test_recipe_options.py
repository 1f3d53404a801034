"""What the options of `datasets upload` make of a recipe."""

import pytest
import typer

from trainwright.commands.datasets import recipe_of
from trainwright.contracts.recipe import ReadSpec, Recipe, Rules, TextDocuments

BASE = Recipe(drop_duplicates=True, rules=Rules(min_characters=20))


@pytest.mark.parametrize(
    ("options", "sets", "expected"),
    [
        ((None, None, None), None, None),
        ((None, None, None), [], None),
        ((TextDocuments.BLANK_LINE, None, None), [], Recipe(read=ReadSpec(text_documents="blank_line"))),
        ((None, "body", True), [], Recipe(read=ReadSpec(field="body"), drop_duplicates=True)),
        ((None, "7", None), [], Recipe(read=ReadSpec(field="7"))),
        ((None, None, None), ["recipe.rejected_limit=0.5"], Recipe(rejected_limit=0.5)),
        ((None, None, None), ["rules.max_characters=9"], Recipe(rules=Rules(max_characters=9))),
    ],
)
def test_options_make_a_recipe_or_none(
    options: tuple[TextDocuments | None, str | None, bool | None],
    sets: list[str] | None,
    expected: Recipe | None,
) -> None:
    assert recipe_of(*options, sets) == expected


def test_options_change_a_recipe_and_leave_the_rest_of_it() -> None:
    changed = recipe_of(None, "body", None, ["recipe.rules.max_characters=900"], BASE)
    assert changed == Recipe(
        read=ReadSpec(field="body"), drop_duplicates=True, rules=Rules(min_characters=20, max_characters=900)
    )
    assert recipe_of(None, None, None, ["rules.min_characters="], BASE) == Recipe(drop_duplicates=True)
    assert recipe_of(None, None, True, None, BASE) is None, "nothing changes"


@pytest.mark.parametrize("change", ["recipe.rulez.x=1", "recipe.rejected_limit=2", "nonsense", "mix=3"])
def test_what_is_no_recipe_is_refused(change: str) -> None:
    with pytest.raises(typer.Exit):
        recipe_of(None, None, None, [change])
