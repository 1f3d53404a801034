"""Text that every machine with this repository has: Python's standard library and the pages of ``docs``.

Documents are shuffled with a fixed seed, so that all parts are alike.
"""

from __future__ import annotations

import random
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

_DOCS = Path(__file__).resolve().parents[3] / "docs"


def documents(most_bytes: int) -> list[str]:
    """Distinct documents, one per source file or page, of at most this many bytes of UTF-8 in total."""
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
    """Split the texts into parts of at least this many bytes; a smaller rest is dropped."""
    part: list[str] = []
    size = 0
    for text in texts:
        part.append(text)
        size += len(text.encode())
        if size >= part_bytes:
            yield part
            part, size = [], 0


def size_of(texts: Sequence[str]) -> int:
    """Size in bytes of UTF-8."""
    return sum(len(text.encode()) for text in texts)


def _read(path: Path) -> str:
    """The text, or an empty one if it is not UTF-8: a few sources declare another encoding."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""
