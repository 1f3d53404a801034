"""The rules for names of files: those that nodes create, and those that people upload."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
MAX_UPLOAD_NAME_CHARACTERS = 255


def is_plain_name(name: str) -> bool:
    """Whether ``name`` is a plain file name: ASCII letters, digits and . _ - only, no separators, no leading dot.

    Logs, checkpoint files and parts of object keys have plain names.
    """
    return _PLAIN.fullmatch(name) is not None


def broken_upload_rule(name: str) -> str | None:
    """The rule that the name of an uploaded file breaks, as a sentence; None if it breaks none.

    Args:
        name: the file's name, as its owner calls it, folders included: `a.jsonl` or `train/a.jsonl`. It is never a path on
            the server.
    """
    if not name:
        return "A file needs a name."
    if len(name) > MAX_UPLOAD_NAME_CHARACTERS:
        return f"Names can have up to {MAX_UPLOAD_NAME_CHARACTERS} characters, folders included."
    if not name.isprintable():
        return "Names consist of printable characters."
    if "\\" in name:
        return "Folders are separated by '/': backslashes are not allowed."
    if any(part.strip() in ("", ".", "..") for part in name.split("/")):
        return "Names stay within the upload: no part between '/' may be empty, '.' or '..'."
    return None
