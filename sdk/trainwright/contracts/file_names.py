"""The rule for names of files that nodes create and the platform stores: logs, checkpoint files, parts of object keys."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


def is_plain_name(name: str) -> bool:
    """Whether ``name`` is a plain file name: ASCII letters, digits and . _ - only, no separators, no leading dot."""
    return _PLAIN.fullmatch(name) is not None
