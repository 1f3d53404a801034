"""Uploads: multipart bodies of any size, hashed and stored as they arrive.

The body is parsed as a stream (python-multipart's own parser; a framework's form support would spool whole files
first). Parsing, hashing and disk run in a thread, one piece of the body at a time, so memory is one buffer whatever
the upload's size and the event loop stays free. No database session is open while bytes flow. What is refused, or
breaks off, leaves nothing behind: objects get their final names only when the whole body was good.
"""

import re
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from trainwright.contracts.base import Problem
from trainwright_backend.core.errors import AppError, Invalid
from trainwright_backend.core.storage import Incoming, LocalStore, in_large_pieces
from trainwright_backend.datasets.service import UploadedFile

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

EXTENSIONS = (".jsonl", ".txt")
MOST_FILES = 1_000
LONGEST_FILE_NAME = 255
LONGEST_FIELD_BYTES = 1_024
LONGEST_HEADER_BYTES = 8_192
"""Of one part; a longer one is no form."""

_DATASET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,79}")


@dataclass(frozen=True)
class Upload:
    """A complete upload: its fields, and files that lie in the store."""

    fields: dict[str, str]
    files: list[UploadedFile]


async def receive(request: Request, store: LocalStore, folder: str, fields: frozenset[str]) -> Upload:
    """Read the multipart body of ``request`` and store its files below ``folder``.

    Args:
        folder: key of a folder that nobody else writes to.
        fields: names of the text fields that the form may have.

    Raises:
        AppError: 415, it is no multipart form.
        Invalid: what is wrong with it; nothing was stored.
    """
    kind, options = parse_options_header(request.headers.get("content-type"))
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        raise AppError("not_multipart", 415, "Send the files as a form: Content-Type multipart/form-data.")
    with ExitStack() as stack:
        form = _Form(store, folder, fields, stack)
        parser = MultipartParser(boundary, form.callbacks(), max_size=float("inf"))
        try:
            async for piece in in_large_pieces(request.stream()):
                await run_in_threadpool(parser.write, piece)
            await run_in_threadpool(parser.finalize)
        except FormParserError as error:
            raise _broken(str(error)) from error
        return await run_in_threadpool(form.finish)


def check_dataset_name(fields: dict[str, str]) -> str:
    """The field ``name`` of an upload that makes a dataset."""
    name = fields.get("name", "").strip()
    if not name:
        raise Invalid.at("name", "This field is required: it is what people call the dataset.")
    if not _DATASET_NAME.fullmatch(name):
        rule = "Use up to 80 letters, digits, spaces, '.', '_' and '-', beginning with a letter or digit."
        raise Invalid.at("name", rule, name[:120])
    return name


@dataclass
class _Part:
    """The part that is being read: a file on its way into the store, or a field."""

    name: str
    file_name: str | None
    incoming: Incoming | None = None
    value: bytearray = field(default_factory=bytearray)


class _Form:
    """Receives the parser's callbacks, in the order of the body."""

    def __init__(self, store: LocalStore, folder: str, fields: frozenset[str], stack: ExitStack) -> None:
        self._store = store
        self._folder = folder
        self._allowed = fields
        self._stack = stack
        self._header = (bytearray(), bytearray())
        self._headers: dict[bytes, bytes] = {}
        self._part: _Part | None = None
        self._ended = False
        self._fields: dict[str, str] = {}
        self._files: list[tuple[str, str, Incoming]] = []

    def callbacks(self) -> "MultipartCallbacks":
        return {
            "on_part_begin": self._part_begin,
            "on_header_field": lambda data, start, end: self._header_bytes(0, data[start:end]),
            "on_header_value": lambda data, start, end: self._header_bytes(1, data[start:end]),
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_finished,
            "on_part_data": lambda data, start, end: self._part_data(data[start:end]),
            "on_part_end": self._part_end,
            "on_end": self._end,
        }

    def finish(self) -> Upload:
        """Make the files visible; only now, when nothing can be wrong with the body any more."""
        if not self._ended:
            raise _broken("it breaks off")
        if not self._files:
            raise Invalid.at("files", f"There is no file in the form. Send one or more of {_kinds()}.")
        return Upload(
            self._fields,
            [self._finished(name, key, incoming) for name, key, incoming in self._files],
        )

    def _finished(self, name: str, key: str, incoming: Incoming) -> UploadedFile:
        stored = incoming.finish()
        return UploadedFile(name=name, bytes=stored.bytes, digest=stored.digest, object_key=key)

    def _part_begin(self) -> None:
        self._headers = {}

    def _header_bytes(self, which: int, data: bytes) -> None:
        self._header[which].extend(data)
        if len(self._header[which]) > LONGEST_HEADER_BYTES:
            raise _broken("a part's header is too long")

    def _header_end(self) -> None:
        name, value = self._header
        self._headers[bytes(name).lower()] = bytes(value)
        name.clear()
        value.clear()

    def _headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        name = options.get(b"name", b"").decode(errors="replace")
        file_name = options.get(b"filename")
        if file_name is None:
            self._part = self._field_part(name)
        else:
            self._part = self._file_part(name, file_name.decode(errors="replace"))

    def _field_part(self, name: str) -> _Part:
        if name == "files":
            raise _nameless()
        if name not in self._allowed:
            known = ", ".join([*sorted(self._allowed), "files"])
            raise Invalid.at(name[:80], f"There is no such field. The form has: {known}.")
        if name in self._fields:
            raise Invalid.at(name, "This field is given twice.")
        return _Part(name, None)

    def _file_part(self, name: str, file_name: str) -> _Part:
        plain = check_file_name(file_name)
        if any(plain == seen for seen, _, _ in self._files):
            raise Invalid.at("files", "Two files have this name. Rename one.", plain)
        if len(self._files) >= MOST_FILES:
            raise Invalid.at("files", f"These are more than {MOST_FILES} files. Join some of them.", plain)
        extension = next(ending for ending in EXTENSIONS if plain.lower().endswith(ending))
        key = f"{self._folder}/{len(self._files):05d}{extension}"
        incoming = self._stack.enter_context(self._store.open_write(key))
        self._files.append((plain, key, incoming))
        return _Part(name, plain, incoming)

    def _part_data(self, data: bytes) -> None:
        assert self._part is not None
        if self._part.incoming is not None:
            self._part.incoming.write(data)
            return
        self._part.value += data
        if len(self._part.value) > LONGEST_FIELD_BYTES:
            raise Invalid.at(self._part.name, f"This is longer than {LONGEST_FIELD_BYTES} bytes.")

    def _part_end(self) -> None:
        part, self._part = self._part, None
        assert part is not None
        if part.incoming is None:
            self._fields[part.name] = part.value.decode(errors="replace")
        elif not part.incoming.bytes:
            raise Invalid.at("files", "This file is empty. Leave it out, or send it again.", part.file_name)
        else:
            part.incoming.close()

    def _end(self) -> None:
        self._ended = True


def check_file_name(file_name: str) -> str:
    """The name that a file is known by: what was given, without any folders.

    Raises:
        Invalid: it cannot be the name of a file of text.
    """
    plain = re.split(r"[/\\]", file_name)[-1].strip()
    if not plain:
        raise _nameless()
    if len(plain) > LONGEST_FILE_NAME or not plain.isprintable():
        rule = f"File names have up to {LONGEST_FILE_NAME} printable characters. Rename the file."
        raise Invalid.at("files", rule, plain[:120])
    if not plain.lower().endswith(EXTENSIONS):
        rule = (
            f"'{plain[:80]}' is no file of text that can be read here. Send {_kinds()}: one JSON object "
            "with a string under 'text' a line, or plain text."
        )
        raise Invalid([Problem(field="files", message=rule, value=plain[:120])])
    return plain


def _nameless() -> Invalid:
    return Invalid.at("files", f"A file without a name was sent. Send one or more of {_kinds()}.")


def _kinds() -> str:
    return " or ".join(EXTENSIONS)


def _broken(reason: str) -> Invalid:
    return Invalid.at("", f"The form cannot be read: {reason}. Nothing was stored; send it again.")
