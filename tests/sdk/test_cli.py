"""What `--set` makes of its text; the commands themselves are tested against a live platform."""

from typing import Any

import pytest

from trainwright.commands.terminal import set_value


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("optimizer.clip_norm=", {"optimizer": {"clip_norm": None}}),
        ("optimizer.clip_norm=null", {"optimizer": {"clip_norm": None}}),
        ("optimizer.clip_norm=0.5", {"optimizer": {"clip_norm": 0.5}}),
        ("data.tokenizer.vocabulary=", {"data": {"tokenizer": {"vocabulary": None}}}),
        ("precision.fp8=", {"precision": {"fp8": None}}),
        # what takes no null stays text, for validation to refuse by name
        ("precision.fp8.skip_limit=", {"precision": {"fp8": {"skip_limit": ""}}}),
        ("name=", {"name": ""}),
        ("optimizer.clip=", {"optimizer": {"clip": ""}}),
        ("no.such.field=", {"no": {"such": {"field": ""}}}),
    ],
)
def test_nothing_after_the_equals_sign_is_null_where_the_field_may_be(
    change: str, expected: dict[str, Any]
) -> None:
    spec: dict[str, Any] = {}
    set_value(spec, change)
    assert spec == expected
