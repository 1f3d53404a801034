"""Specs of schema version 1, and their field names, are upgraded to the current names everywhere."""

from copy import deepcopy
from typing import Any

import pytest
from pydantic import ValidationError

from trainwright.contracts.api.actions import NewClone, NewRecipe, Recipe
from trainwright.contracts.base import problems
from trainwright.contracts.job_spec import JobSpec
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.spec_upgrade import RENAMED_FIELDS, RENAMED_VALUES, upgrade_changes, upgrade_spec

OLD_FP8 = {"amax": "present", "high_first_layers": 1, "high_last_layers": 2, "release_gradients": False}
NEW_FP8 = {"amax": "current", "bf16_first_layers": 1, "bf16_last_layers": 2, "optimizer_in_backward": False}


def spec(fp8: dict[str, Any], **top: Any) -> dict[str, Any]:
    precision = {"kind": "fp8", "fp8": fp8}
    return {"name": "pilot", "data": {"dataset": "ds_1"}, "precision": precision} | top


@pytest.mark.parametrize("version", [{}, {"schema_version": 1}, {"schema_version": 2}])
def test_a_spec_of_version_1_equals_the_same_spec_of_version_2(version: dict[str, int]) -> None:
    given = spec(OLD_FP8, **version)
    before = deepcopy(given)
    assert RunSpec.model_validate(given) == RunSpec.model_validate(spec(NEW_FP8))
    assert given == before, "the input is not changed"


def test_a_spec_is_stored_with_version_2_and_can_be_read_again() -> None:
    stored = RunSpec.model_validate(spec(OLD_FP8, schema_version=1)).model_dump(mode="json")
    assert stored["schema_version"] == 2 and stored["precision"]["fp8"].items() >= NEW_FP8.items()
    assert RunSpec.model_validate(stored).model_dump(mode="json") == stored == upgrade_spec(stored)


def test_a_job_of_an_older_platform_is_read() -> None:
    job = {"run_id": "run_1", "attempt": 1, "fence": 1, "device": "cpu", "slots": [0]}
    found = JobSpec.model_validate(job | {"spec": spec(OLD_FP8, schema_version=1)})
    assert found.spec == RunSpec.model_validate(spec(NEW_FP8))


def test_old_and_new_name_together_are_refused() -> None:
    with pytest.raises(ValidationError) as caught:
        RunSpec.model_validate(spec({"high_first_layers": 1, "bf16_first_layers": 2}))
    (problem,) = problems(caught.value, RunSpec)
    assert problem.field == "precision.fp8.high_first_layers"


def test_a_problem_names_the_current_field() -> None:
    with pytest.raises(ValidationError) as caught:
        RunSpec.model_validate(spec({"high_first_layers": -1}))
    (problem,) = problems(caught.value, RunSpec)
    assert problem.field == "precision.fp8.bf16_first_layers"


def test_recipes_are_stored_and_shown_with_current_names() -> None:
    part = {"precision": {"kind": "fp8", "fp8": OLD_FP8}}
    current = {"precision": {"kind": "fp8", "fp8": NEW_FP8}}
    assert NewRecipe(name="night", spec=part).spec == current
    shown = Recipe.model_validate(
        {"id": "r", "name": "n", "spec": part, "saved": "2026-01-01T00:00:00Z", "saved_by": "Ada"}
    )
    assert shown.spec == current


def test_changes_of_a_clone_may_use_older_names() -> None:
    changes = {f"precision.fp8.{key}": value for key, value in OLD_FP8.items()}
    current = {f"precision.fp8.{key}": value for key, value in NEW_FP8.items()}
    assert NewClone(name="again", changes=changes).changes == current
    assert upgrade_changes({"precision.fp8": OLD_FP8}) == {"precision.fp8": NEW_FP8}
    assert upgrade_changes({"precision": {"fp8": OLD_FP8}}) == {"precision": {"fp8": NEW_FP8}}
    assert upgrade_changes({"precision.fp8.amax": 3, "name": "x"}) == {"precision.fp8.amax": 3, "name": "x"}


def test_content_that_is_not_a_spec_is_left_to_validation() -> None:
    assert upgrade_spec([1]) == [1]
    assert upgrade_spec({"precision": None, "batch": 3}) == {"precision": None, "batch": 3}


def test_renamed_fields_exist_under_their_new_names() -> None:
    whole = RunSpec.model_validate(spec({})).model_dump()
    for old, new in RENAMED_FIELDS.items():
        section, _, key = new.rpartition(".")
        assert section == old.rpartition(".")[0] and key in _at(whole, section)
    for field in RENAMED_VALUES:
        section, _, key = field.rpartition(".")
        assert key in _at(whole, section)


def _at(whole: dict[str, Any], path: str) -> dict[str, Any]:
    for key in path.split("."):
        whole = whole[key]
    return whole
