"""Local files to upload: found in folders, named, and read in blocks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trainwright.contracts.file_names import broken_upload_rule
from trainwright.contracts.file_types import HEAD_BYTES, FileTypeError, check_first_bytes

BLOCK_BYTES = 1 << 20
MAX_FILES = 1_000
"""Most files of one version."""
PROBLEMS_NAMED = 10


@dataclass(frozen=True)
class LocalFile:
    """A file with the size and time it had when it was found."""

    path: Path
    name: str
    """Path within the given folder, separated by `/`."""

    size_bytes: int
    changed: int
    """Modification time, in ns."""

    def has_changed(self) -> bool:
        """Whether it was deleted or modified since it was found."""
        try:
            now = self.path.stat()
        except FileNotFoundError:
            return True
        return (now.st_size, now.st_mtime_ns) != (self.size_bytes, self.changed)

    def read(self, offset: int, count: int) -> Iterator[bytes]:
        """``count`` bytes from ``offset`` on; fewer if the file has shrunk."""
        with self.path.open("rb") as content:
            content.seek(offset)
            while count > 0 and (block := content.read(min(BLOCK_BYTES, count))):
                count -= len(block)
                yield block

    def digest(self) -> str:
        """SHA-256, in hex."""
        return _digest(self)


@dataclass(frozen=True)
class Found:
    """The files to upload."""

    files: list[LocalFile]
    skipped: list[str]
    """Hidden and empty files in the folders, which are not uploaded."""


def find_files(paths: Sequence[Path]) -> Found:
    """The files of ``paths`` in order. Folders stand for all files in them, sorted by name.

    Hidden and empty files in folders are skipped.

    Raises:
        OSError: a path does not exist.
        ValueError: there are no files, too many files, an empty file that was given itself, two files of one name, or a
            name that servers refuse.
    """
    files: list[LocalFile] = []
    skipped: list[str] = []
    for path in paths:
        if path.is_dir():
            _add_folder(path, files, skipped)
        else:
            files.append(_local(path, path.name))
    _check(files)
    return Found(files, skipped)


def check_documents(files: Sequence[LocalFile]) -> None:
    """Check that files can be opened and are of types that datasets are made from, by their first bytes.

    Raises:
        ValueError: some are not; it names them.
    """
    found = [problem for problem in map(_problem, files) if problem is not None]
    if found:
        more = f"\nand {len(found) - PROBLEMS_NAMED:,} more" if len(found) > PROBLEMS_NAMED else ""
        raise ValueError("\n".join(found[:PROBLEMS_NAMED]) + more)


def _problem(file: LocalFile) -> str | None:
    try:
        check_first_bytes(file.name, b"".join(file.read(0, HEAD_BYTES)))
    except OSError as error:
        return f"{file.path} cannot be opened: {error.strerror or error}."
    except FileTypeError as error:
        return str(error)
    return None


def _add_folder(folder: Path, files: list[LocalFile], skipped: list[str]) -> None:
    top = folder.resolve().name
    for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).parts):
        if not path.is_file():
            continue
        within = path.relative_to(folder)
        name = f"{top}/{within.as_posix()}"
        if any(part.startswith(".") for part in within.parts) or not path.stat().st_size:
            skipped.append(name)
        else:
            files.append(_local(path, name))


def _local(path: Path, name: str) -> LocalFile:
    found = path.stat()
    return LocalFile(path, name, found.st_size, found.st_mtime_ns)


def _check(files: Sequence[LocalFile]) -> None:
    if not files:
        raise ValueError("There are no files to upload: give files, or folders with files.")
    if len(files) > MAX_FILES:
        raise ValueError(
            f"These are {len(files):,} files, and a version has at most {MAX_FILES:,}. Merge some of them."
        )
    empty = next((file.path for file in files if not file.size_bytes), None)
    if empty is not None:
        raise ValueError(f"{empty} is empty. Leave it out.")
    for file in files:
        rule = broken_upload_rule(file.name)
        if rule is not None:
            raise ValueError(f"{file.name[:120]!r}: {rule} Rename the file.")
    names = [file.name for file in files]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(
            f"Two files are named {twice!r}. Rename one of them, or upload the folder that contains them."
        )


@cache
def _digest(file: LocalFile) -> str:
    with file.path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
