"""The headers of tus 1.0.0 (https://tus.io/protocols/resumable-upload), read strictly and written as specified.

An invalid header is refused with its name and a remedy; nothing is guessed. Supported extensions: creation,
creation-with-upload, termination, checksum and expiration. Deferred sizes (`Upload-Defer-Length`) are not supported, because
storage is reserved before the first byte.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime
from typing import Annotated, Any

from fastapi import Depends, Request, Response

from trainwright.contracts.base import Problem
from trainwright_backend.core.errors import AppError, Invalid
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.uploads.file_names import check_file_name

VERSION = "1.0.0"
EXTENSIONS = "creation,creation-with-upload,termination,checksum,expiration"
BYTES_TYPE = "application/offset+octet-stream"
CHECKSUMS = {"sha1": hashlib.sha1, "sha256": hashlib.sha256}

_NUMBER = re.compile(r"[0-9]{1,18}")
_KEY = re.compile(r"[!-+\--~]{1,80}")


@dataclass(frozen=True)
class Checksum:
    """The checksum that a request announces for its bytes."""

    algorithm: str
    digest: bytes


class TusRoute(GuardedRoute):
    """A route whose responses, errors included, state the protocol version."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        inner = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                response = await inner(request)
            except AppError as error:
                error.headers.setdefault("Tus-Resumable", VERSION)
                raise
            response.headers.setdefault("Tus-Resumable", VERSION)
            return response

        return handle


async def _check_version(request: Request) -> None:
    if one_header(request, "Tus-Resumable") != VERSION:
        raise AppError(
            "tus_version",
            412,
            f"Uploads use tus {VERSION}: send the header `Tus-Resumable: {VERSION}`.",
            headers={"Tus-Version": VERSION},
        )


TusVersion = Annotated[None, Depends(_check_version)]
"""Comes after the policy in a route's signature, so that it reveals nothing to strangers."""


def capabilities(max_bytes: int) -> dict[str, str]:
    """Headers of the response to OPTIONS."""
    return {
        "Tus-Version": VERSION,
        "Tus-Extension": EXTENSIONS,
        "Tus-Max-Size": str(max_bytes),
        "Tus-Checksum-Algorithm": ",".join(CHECKSUMS),
    }


def upload_length(request: Request, max_bytes: int) -> int:
    """The size of a new upload."""
    if one_header(request, "Upload-Defer-Length") is not None:
        raise bad_header(
            "Upload-Defer-Length",
            "The size must be known at the start, because storage is reserved for it: send Upload-Length.",
        )
    size = _number(request, "Upload-Length")
    if size > max_bytes:
        raise AppError(
            "upload_too_large",
            413,
            f"A file can have up to {max_bytes:,} bytes; this one has {size:,}. Split it.",
            extensions={"limit": max_bytes, "asked": size},
        )
    if size == 0:
        raise Invalid.at("Upload-Length", "The file is empty. Leave it out.", 0)
    return size


def upload_file_name(request: Request) -> str:
    """The file's name, with its folders if the client sends them as `relativePath`."""
    metadata = _metadata(request)
    path = metadata.get("relativePath")
    name = metadata.get("filename")
    if name is None:
        raise bad_header(
            "Upload-Metadata", "It must contain the file's name: `filename <base64 of the name>`."
        )
    return check_file_name(path if path and path != "null" else name)  # some clients send this word


def offset(request: Request) -> int:
    """The byte at which the body starts."""
    return _number(request, "Upload-Offset")


def content_length(request: Request) -> int | None:
    """The body's length in bytes, if it is announced."""
    text = request.headers.get("content-length")
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def checksum(request: Request) -> Checksum | None:
    """The checksum of the body, if the client sends one."""
    text = one_header(request, "Upload-Checksum")
    if text is None:
        return None
    algorithm, _, encoded = text.partition(" ")
    if algorithm not in CHECKSUMS:
        known = " or ".join(CHECKSUMS)
        raise bad_header(
            "Upload-Checksum", f"The algorithm {algorithm[:40]!r} is not supported: use {known}."
        )
    digest = _decoded("Upload-Checksum", encoded)
    if len(digest) != CHECKSUMS[algorithm]().digest_size:
        raise bad_header("Upload-Checksum", f"This is not a {algorithm} digest: it has {len(digest)} bytes.")
    return Checksum(algorithm, digest)


def require_bytes_type(request: Request) -> None:
    """Require the Content-Type of uploaded bytes."""
    if not sends_bytes(request):
        raise AppError("not_bytes", 415, f"Send the bytes with `Content-Type: {BYTES_TYPE}`.")


def sends_bytes(request: Request) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == BYTES_TYPE


def metadata_header(file_name: str) -> str:
    """``file_name`` as a client would announce it."""
    return f"filename {base64.b64encode(file_name.encode()).decode()}"


def http_date(time: datetime) -> str:
    """A time in the format of RFC 7231."""
    return format_datetime(time, usegmt=True)


def one_header(request: Request, name: str) -> str | None:
    """A header that may occur once."""
    found = request.headers.getlist(name)
    if len(found) > 1:
        raise bad_header(name, "It occurs twice. Send it once.")
    return found[0].strip() if found else None


def bad_header(name: str, rule: str) -> AppError:
    return AppError("bad_header", 400, f"{name}: {rule}", errors=[Problem(field=name, message=rule)])


def _number(request: Request, name: str) -> int:
    text = one_header(request, name)
    if text is None:
        raise bad_header(name, "This header is required.")
    if not _NUMBER.fullmatch(text):
        raise bad_header(name, f"{text[:40]!r} is not a number of bytes: send up to 18 decimal digits.")
    return int(text)


def _metadata(request: Request) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in (one_header(request, "Upload-Metadata") or "").split(","):
        key, _, encoded = pair.strip().partition(" ")
        if not key and not encoded:
            continue
        if not _KEY.fullmatch(key):
            raise bad_header("Upload-Metadata", "Keys consist of ASCII characters without spaces and commas.")
        if key in found:
            raise bad_header("Upload-Metadata", f"The key {key!r} occurs twice.")
        found[key] = _text(key, encoded.strip())
    return found


def _text(key: str, encoded: str) -> str:
    raw = _decoded("Upload-Metadata", encoded)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        if key in ("filename", "relativePath"):
            raise bad_header("Upload-Metadata", f"The value of {key!r} is not valid UTF-8.") from None
        return ""  # the standard allows any bytes, and nothing reads this value


def _decoded(header: str, encoded: str) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise bad_header(header, "The value is not valid base64.") from None
