"""Errors about a curation name the value and the valid range, in the unit that the user wrote."""

from typing import Any

import pytest
from pydantic import ValidationError

from trainwright.contracts.api.datasets import CountRequest, NewDataset, NewVersion
from trainwright.contracts.api.uploads import PreviewRequest
from trainwright.contracts.base import problems
from trainwright.contracts.curation import CurationSpec


@pytest.mark.parametrize(
    ("curation", "field", "words"),
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
            "ds_a is listed twice: add up its weights.",
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
def test_a_refusal_contains_the_given_value_and_the_range_in_the_page_s_unit(
    curation: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        CurationSpec.model_validate(curation)
    (problem,) = problems(caught.value, CurationSpec)
    assert problem.field == field
    assert words in problem.message


@pytest.mark.parametrize("key", ["curation", "recipe"])
def test_requests_may_use_the_older_name_of_a_curation(key: str) -> None:
    curation = {"drop_duplicates": True}
    asked = NewDataset.model_validate({"name": "a", "uploads": ["up_1"], key: curation})
    assert asked.curation == CurationSpec(drop_duplicates=True)
    assert NewVersion.model_validate({key: curation}).curation == asked.curation
    assert CountRequest.model_validate({"dataset": "ds_1", key: curation}).curation == asked.curation
    assert PreviewRequest.model_validate({"uploads": ["up_1"], key: curation}).curation == asked.curation


def test_a_request_with_both_names_is_refused() -> None:
    with pytest.raises(ValidationError):
        NewDataset.model_validate({"name": "a", "curation": {}, "recipe": {}})
