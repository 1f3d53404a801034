"""Write the synchronous client: the asynchronous one without ``async`` and ``await``.

``--check`` changes nothing and fails if a file differs. The asynchronous sources are the ones to change: `async_client.py`, the
folder `async_calls`, and `transport/async_*.py`. Each becomes the file of its name without ``async_``.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SDK = Path(__file__).parents[1] / "sdk" / "trainwright"
COUNTERPARTS = ("async_blocking.py",)
"""Written by hand in both variants."""

RULES = (
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\basync_(?=[a-z])", ""),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\ba(close|read|iter_lines|iter_bytes)\(", r"\1("),
)
"""What is replaced, in order."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the synchronous client of the SDK.")
    parser.add_argument("--check", action="store_true", help="only fail if a file differs")
    check = parser.parse_args().check
    differ = [target for target, text in generated() if not target.exists() or target.read_text() != text]
    if check and differ:
        names = ", ".join(str(target.relative_to(SDK)) for target in differ)
        sys.exit(f"{names}: differs from its asynchronous source. Change that, and run `make sync-client`.")
    for target, text in generated():
        if target in differ:
            target.write_text(text)


def generated() -> Iterator[tuple[Path, str]]:
    """Each generated file with its text."""
    for source in sources():
        target = SDK / synchronous(source.relative_to(SDK).as_posix())
        note = f"# Generated from {source.relative_to(SDK)} by infra/sync_client.py. Change that file.\n"
        text = source.read_text()
        yield target, formatted(note + synchronous(text) if text else "", target)


def sources() -> list[Path]:
    """The asynchronous files."""
    found = [*SDK.glob("async_*.py"), *SDK.glob("async_*/*.py"), *SDK.glob("transport/async_*.py")]
    return sorted(path for path in found if path.name not in COUNTERPARTS)


def synchronous(text: str) -> str:
    """Text of the synchronous client."""
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text)
    return text


def formatted(text: str, target: Path) -> str:
    """The text with sorted imports and lines as ruff writes them."""
    ruff = [sys.executable, "-m", "ruff"]
    name = f"--stdin-filename={target}"
    for command in (["check", "--select=I", "--fix", "--quiet", name, "-"], ["format", "--quiet", name, "-"]):
        done = subprocess.run([*ruff, *command], input=text, capture_output=True, text=True, check=True)
        text = done.stdout
    return text


if __name__ == "__main__":
    main()
