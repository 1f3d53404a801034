"""Text that every machine with this repository has: Python's standard library, and the pages of docs.

Documents come in an order that a seed gives, so that any stretch of them is like any other.
"""

from __future__ import annotations

import random
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

_DOCS = Path(__file__).resolve().parents[2] / "docs"


def documents(most_bytes: int) -> list[str]:
    """At most so many bytes of UTF-8; one document a source file or page, none twice."""
    library = Path(sysconfig.get_path("stdlib"))
    sources = [path for path in library.rglob("*.py") if "site-packages" not in path.parts]
    paths = sorted([*sources, *_DOCS.rglob("*.md")])
    random.Random(1).shuffle(paths)
    found: dict[str, None] = {}
    for path in paths:
        text = _read(path)
        most_bytes -= len(text.encode())
        if most_bytes < 0:
            break
        if text.strip():
            found[text] = None
    return list(found)


def in_parts(texts: Sequence[str], part_bytes: int) -> Iterator[list[str]]:
    """Stretches of about so many bytes; what is left at the end and is less is dropped."""
    part: list[str] = []
    size = 0
    for text in texts:
        part.append(text)
        size += len(text.encode())
        if size >= part_bytes:
            yield part
            part, size = [], 0


def size_of(texts: Sequence[str]) -> int:
    """Bytes of UTF-8."""
    return sum(len(text.encode()) for text in texts)


def _read(path: Path) -> str:
    """Nothing where the bytes are no UTF-8: a few sources declare another encoding."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""
