"""An invalid spec is refused at its field, with the value and a valid alternative."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from trainwright.contracts.base import Problem, Strict, problems
from trainwright.contracts.data_spec import TokenizerKind, TokenizerSpec
from trainwright.contracts.job_spec import JobSpec
from trainwright.contracts.presets import PRESETS
from trainwright.contracts.run_spec import RunSpec


def spec(**sections: Any) -> dict[str, Any]:
    return {"name": "pilot", "data": {"dataset": "ds_x"}, **sections}


def refusals(content: dict[str, Any]) -> list[Problem]:
    with pytest.raises(ValidationError) as caught:
        RunSpec.model_validate(content)
    return problems(caught.value, RunSpec)


@pytest.mark.parametrize(
    ("sections", "field", "words"),
    [
        ({"modle": {}}, "modle", "Did you mean 'model'?"),
        ({"optimizer": {"lerning_rate": 1e-3}}, "optimizer.lerning_rate", "Did you mean 'learning_rate'?"),
        ({"data": {"dataset": "d", "tokenizer": {"vocab": 9}}}, "data.tokenizer.vocab", "'vocabulary'?"),
        ({"optimizer": {"zzz": 1}}, "optimizer.zzz", "It has: kind, learning_rate"),
        ({"model": {"width": 100}}, "model.width", "100 is not divisible by heads (6)"),
        ({"model": {"kv_heads": 4}}, "model.kv_heads", "4 must divide heads 6"),
        ({"model": {"head_size": 33}}, "model.head_size", "33 must be even"),
        (
            {"optimizer": {"learning_rate": -1}},
            "optimizer.learning_rate",
            "-1 is too small: write more than 0",
        ),
        ({"parallelism": {"tensor": 5_000}}, "parallelism.tensor", "5,000 is too large: write 1 to 1,024."),
        ({"seed": 10**30}, "seed", "This number is too large"),
        (
            {"seed": "9" * 5_000},
            "seed",
            "This number has too many digits: write at least 0 and less than 2^63.",
        ),
        (
            {"optimizer": {"learning_rate": float("inf")}},
            "optimizer.learning_rate",
            "finite number: more than 0",
        ),
        (
            {"data": {"dataset": "d", "validation_fraction": 0.7}},
            "data.validation_fraction",
            "0.7 is too large: write 0 to 0.5.",
        ),
        ({"parallelism": {"stages": "evne"}}, "parallelism.stages", "Choose even or auto. Or: Write a list"),
        ({"optimizer": {"learning_rate": float("nan")}}, "optimizer.learning_rate", "finite"),
        ({"optimizer": {"momentum": 0.9}}, "optimizer.momentum", "applies to muon only"),
        ({"schedule": {"steps": 10, "warmup_steps": 10}}, "schedule.warmup_steps", "less than steps"),
        ({"batch": {"global_sequences": 9}}, "batch.global_sequences", "multiple of"),
        ({"parallelism": {"data": 3}}, "parallelism.data", "must be ranks ÷"),
        ({"name": "../etc"}, "name", "Use letters, digits"),
        ({"name": ""}, "name", "This must not be empty."),
        ({"name": "x" * 81}, "name", "This is too long: write at most 80 characters."),
        ({"seed": "many"}, "seed", "whole number"),
        ({"model": 7}, "model", "object"),
        ({"schema_version": 3}, "schema_version", "2"),
    ],
)
def test_a_wrong_spec_names_field_and_remedy(sections: dict[str, Any], field: str, words: str) -> None:
    found = refusals(spec(**sections))
    assert [problem.field for problem in found] == [field]
    assert words in found[0].message


def test_unsupported_values_are_refused_with_the_reason() -> None:
    (problem,) = refusals(spec(parallelism={"context": 2}))
    assert problem.field == "parallelism.context"
    assert "not supported yet" in problem.message


def test_all_wrong_fields_are_reported_together() -> None:
    found = refusals({"optimizer": {"beta1": 2}, "batch": {"sequence_tokens": 1}})
    assert {p.field for p in found} == {"name", "data", "optimizer.beta1", "batch.sequence_tokens"}


def test_a_spec_survives_json() -> None:
    original = RunSpec.model_validate(spec(model=PRESETS["mini"].model_dump()))
    assert RunSpec.model_validate_json(original.model_dump_json()) == original


def test_defaults_are_a_valid_spec_for_every_preset() -> None:
    for preset in PRESETS.values():
        RunSpec.model_validate(spec(model=preset.model_dump()))


def test_the_vocabulary_has_the_requested_size_or_that_of_its_kind() -> None:
    assert TokenizerSpec().size == 4_096
    assert TokenizerSpec(kind=TokenizerKind.BYTES).size == 257
    assert TokenizerSpec(kind=TokenizerKind.BYTES, vocabulary=272).size == 272


def test_every_field_of_the_schema_has_a_description() -> None:
    """Descriptions are the help texts of the form, the CLI and the docs, so none may be missing."""
    schema = json.loads(json.dumps(RunSpec.model_json_schema()))
    bare = [
        f"{name}.{field}"
        for name, part in [("RunSpec", schema), *schema["$defs"].items()]
        for field, content in part.get("properties", {}).items()
        if not content.get("description")
    ]
    assert bare == []


FP8 = {"kind": "fp8"}


@pytest.mark.parametrize(
    ("sections", "field"),
    [
        ({"precision": {"kind": "bf16", "fp8": {}}}, "precision.fp8"),
        ({"precision": FP8 | {"fp8": {"scaling": "row", "amax": "delayed"}}}, "precision.fp8.amax"),
        ({"precision": FP8 | {"fp8": {"scaling": "block", "level": "O3"}}}, "precision.fp8.scaling"),
        ({"precision": FP8 | {"fp8": {"moments": "block", "level": "O1"}}}, "precision.fp8.moments"),
        (
            {"precision": FP8 | {"fp8": {"optimizer_in_backward": True}}},
            "precision.fp8.optimizer_in_backward",
        ),
        ({"precision": FP8 | {"fp8": {"bf16_first_layers": 6}}}, "precision.fp8.bf16_first_layers"),
        ({"precision": FP8, "model": {"width": 200, "heads": 5}}, "model.width"),
        ({"precision": FP8, "model": {"feed_forward": 100}}, "model.feed_forward"),
        ({"precision": FP8, "batch": {"sequence_tokens": 9}}, "batch.micro_sequences"),
        ({"precision": FP8 | {"fp8": {"scaling": "block"}}}, "model.width"),
        ({"schedule": {"decay_steps": 5}}, "schedule.decay_steps"),
        ({"schedule": {"kind": "wsd", "steps": 60, "decay_steps": 55}}, "schedule.decay_steps"),
    ],
)
def test_invalid_combinations_are_refused_at_a_field(sections: dict[str, Any], field: str) -> None:
    assert [problem.field for problem in refusals(spec(**sections))] == [field]


@pytest.mark.parametrize(
    ("sections", "field"),
    [
        ({"schedule": {"steps": True}}, "schedule.steps"),
        ({"data": {"dataset": "ds_1", "validation_fraction": False}}, "data.validation_fraction"),
        ({"optimizer": {"clip_norm": True}}, "optimizer.clip_norm"),
    ],
)
def test_true_and_false_are_no_numbers(sections: dict[str, Any], field: str) -> None:
    (problem,) = refusals(spec(**sections))
    assert (problem.field, problem.message) == (field, "Write a number, not true or false.")


@pytest.mark.parametrize(
    ("schedule", "warmup"),
    [
        ({"steps": 9}, 0),
        ({"steps": 300}, 30),
        ({"steps": 300, "warmup_steps": None}, 30),
        ({"steps": 100_000}, 50),
        ({"steps": 300, "warmup_steps": 0}, 0),
        ({"steps": 300, "warmup_steps": 299}, 299),
    ],
)
def test_an_empty_warmup_is_a_tenth_of_the_steps_at_most_50(schedule: dict[str, Any], warmup: int) -> None:
    assert RunSpec.model_validate(spec(schedule=schedule)).schedule.resolved_warmup_steps == warmup


RELEASE = {"optimizer_in_backward": True, "skip_limit": 0}
FREE = {"batch": {"micro_sequences": 64}, "optimizer": {"clip_norm": None}}


@pytest.mark.parametrize(
    ("sections", "recipe", "remedy"),
    [
        ({}, {"skip_limit": 1}, "skip_limit to 0"),
        ({"optimizer": {}}, {}, "clip_norm to null"),
        ({"batch": {}}, {}, "equal batch.global_sequences"),
        ({"batch": {"micro_sequences": 32}, "resources": {"slots_per_node": 2}}, {}, "one slot"),
    ],
)
def test_gradients_are_released_only_if_nothing_needs_all_of_them(
    sections: dict[str, Any], recipe: dict[str, Any], remedy: str
) -> None:
    (problem,) = refusals(spec(precision=FP8 | {"fp8": RELEASE | recipe}, **FREE | sections))
    assert problem.field == "precision.fp8.optimizer_in_backward"
    assert remedy in problem.message
    assert problem.message.count(" since ") == 1


def test_everything_that_prevents_a_release_is_reported_together() -> None:
    (problem,) = refusals(spec(precision=FP8 | {"fp8": {"optimizer_in_backward": True}}))
    assert problem.message.count(" since ") == 3
    RunSpec.model_validate(spec(precision=FP8 | {"fp8": RELEASE}, **FREE))


def test_fp8_uses_the_default_recipe_explicitly() -> None:
    run = RunSpec.model_validate(spec(precision=FP8))
    assert run.precision.fp8 is not None
    assert RunSpec.model_validate_json(run.model_dump_json()) == run


@pytest.mark.parametrize(
    ("given", "kind"), [({}, "bf16"), ({"kind": "auto"}, "bf16"), ({"kind": "fp32"}, "fp32")]
)
def test_a_job_has_no_open_choice_of_precision(given: dict[str, str], kind: str) -> None:
    """Jobs that were written by hand, or before `auto` existed, keep their meaning."""
    spec = {"name": "by hand", "data": {"dataset": "ds_1"}, "precision": given}
    job = {"run_id": "run_1", "attempt": 1, "fence": 1, "spec": spec, "device": "cpu", "slots": [0]}
    assert JobSpec.model_validate(job).spec.precision.kind == kind


PYDANTIC_WORDS = (
    "Input should",
    "String should",
    "validator",
    "unable to parse",
    "match pattern",
    "This number and",
    "[",
)


@pytest.mark.parametrize(
    "wrong", ["0,5", "x", -(2**70), 2**70, 0.5, [], {"x": 1}, [1.5], "9" * 5_000, float("inf")]
)
def test_no_refusal_uses_the_words_of_the_validation_library(wrong: Any) -> None:
    seen = 0
    for section, field in RunSpec.model_fields.items():
        inner = (
            field.annotation.model_fields
            if isinstance(field.annotation, type) and issubclass(field.annotation, Strict)
            else {}
        )
        for sections in ({section: wrong}, *({section: {key: wrong}} for key in inner)):
            try:
                RunSpec.model_validate({"name": "pilot", "data": {"dataset": "ds_1"}} | sections)
            except ValidationError as error:
                for found in problems(error, RunSpec):
                    seen += 1
                    text = found.message
                    assert not [word for word in PYDANTIC_WORDS if word.lower() in text.lower()], (
                        found.field,
                        text,
                    )
                    assert "than This number" not in found.message
    assert seen > 20


@pytest.mark.parametrize(
    ("precision", "chosen", "exported"),
    [
        ("fp32", "auto", "fp32"),
        ("bf16", "auto", "bf16"),
        ("fp8", "auto", "bf16"),
        ("bf16", "fp32", "fp32"),
        ("fp32", "bf16", "bf16"),
    ],
)
def test_an_export_has_the_format_of_the_run_unless_another_is_chosen(
    precision: str, chosen: str, exported: str
) -> None:
    sections = {"precision": {"kind": precision}, "checkpoint": {"export_dtype": chosen}}
    assert RunSpec.model_validate(spec(**sections)).export_format == exported
