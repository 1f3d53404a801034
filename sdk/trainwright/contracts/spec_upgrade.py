"""Upgrades RunSpecs of older schema versions: renamed fields and values.

Stored runs, jobs, saved recipes and users' files stay readable: every place that takes a spec, a section of one or a dotted
field name upgrades it first. Older and current names may be mixed; a field with its current name is not changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

SCHEMA_VERSION: Literal[2] = 2

RENAMED_FIELDS = {
    "precision.fp8.high_first_layers": "precision.fp8.bf16_first_layers",
    "precision.fp8.high_last_layers": "precision.fp8.bf16_last_layers",
    "precision.fp8.release_gradients": "precision.fp8.optimizer_in_backward",
}
"""Dotted names of version 1 and the current ones, in the same section."""

RENAMED_VALUES = {"precision.fp8.amax": {"present": "current"}}
"""Values of fields in version 1, and the current ones."""


def upgrade_spec(given: Any) -> Any:
    """Return ``given``, a spec or a part of one, with current names. ``given`` itself is not changed.

    Anything but a mapping is returned as it is, for validation to reject.
    """
    if not isinstance(given, Mapping):
        return given
    upgraded = _upgrade_section(given, "")
    if upgraded.get("schema_version") == 1:
        upgraded["schema_version"] = SCHEMA_VERSION
    return upgraded


def upgrade_field(field: str) -> str:
    """The current dotted name of a field."""
    return RENAMED_FIELDS.get(field, field)


def upgrade_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Upgrade changes by dotted name. A value may be a section."""
    return {upgrade_field(field): _upgrade_value(value, field) for field, value in changes.items()}


def _upgrade_value(value: Any, path: str) -> Any:
    if isinstance(value, Mapping):
        return _upgrade_section(value, f"{path}.")
    return (
        RENAMED_VALUES[path].get(value, value) if path in RENAMED_VALUES and isinstance(value, str) else value
    )


def _upgrade_section(section: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    upgraded: dict[str, Any] = {}
    for key, value in section.items():
        current = upgrade_field(f"{prefix}{key}").removeprefix(prefix)
        name = (
            key if current in section else current
        )  # if both names are given, validation rejects the older one
        upgraded[name] = _upgrade_value(value, f"{prefix}{key}")
    return upgraded
