"""The one rule for names of files that nodes make and the platform keeps: logs, checkpoint files, parts of object keys."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


def is_plain_name(name: str) -> bool:
    """Whether ``name`` names a file right in its folder: no separators, no leading dot, nothing exotic."""
    return _PLAIN.fullmatch(name) is not None
