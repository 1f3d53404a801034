"""What a recipe refuses is said with value and range, in the unit that people write."""

from typing import Any

import pytest
from pydantic import ValidationError

from trainwright.contracts.base import problems
from trainwright.contracts.recipe import Recipe


@pytest.mark.parametrize(
    ("recipe", "field", "words"),
    [
        (
            {"rules": {"min_letter_fraction": 1.4}},
            "rules.min_letter_fraction",
            "140 % is too large: it can be 0 to 100 %.",
        ),
        (
            {"rules": {"max_repeated_line_fraction": -0.1}},
            "rules.max_repeated_line_fraction",
            "-10 % is too small",
        ),
        (
            {"rejected_limit": 2},
            "rejected_limit",
            "200 % is too large: it can be 0 to 100 %. In a file, 2 is too large",
        ),
        (
            {"mix": [{"dataset": "ds_a", "weight": 1}] * 2},
            "mix",
            "ds_a is named twice: add up its weights.",
        ),
        ({"rejected_limit": "2"}, "rejected_limit", "it can be 0 to 100 %"),
        (
            {"rules": {"min_characters": 0}},
            "rules.min_characters",
            "0 is too small: write 1 to 1,000,000,000.",
        ),
        (
            {"mix": [{"dataset": "a", "weight": 0}]},
            "mix.0.weight",
            "0 is too small: write more than 0 and at most 1,000,000.",
        ),
    ],
)
def test_a_refusal_says_what_was_given_and_the_range_that_it_has_on_the_page(
    recipe: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        Recipe.model_validate(recipe)
    (problem,) = problems(caught.value, Recipe)
    assert problem.field == field
    assert words in problem.message
