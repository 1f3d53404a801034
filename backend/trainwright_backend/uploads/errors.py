"""Errors of requests that upload bytes: what happened, and how the client can continue."""

from trainwright_backend.core.errors import AppError
from trainwright_backend.uploads.tables import Upload


def upload_busy() -> AppError:
    return AppError(
        "upload_taken",
        423,
        "Another request is still writing to this upload. Try again in a moment.",
        headers={"Retry-After": "2"},
    )


def wrong_offset(row: Upload, requested: int) -> AppError:
    return AppError(
        "wrong_offset",
        409,
        f"{row.offset:,} bytes of {row.file_name!r} are stored, so the next ones start there and not at {requested:,}. "
        f"Continue at Upload-Offset {row.offset}.",
        headers={"Upload-Offset": str(row.offset)},
        extensions={"offset": row.offset},
    )


def too_many_bytes(row: Upload) -> AppError:
    return AppError(
        "too_many_bytes",
        413,
        f"{row.file_name!r} was announced with {row.bytes:,} bytes, and this request exceeds them. Its bytes were discarded: "
        "delete the upload and upload the file again.",
        extensions={"bytes": row.bytes, "offset": row.offset},
    )


def checksum_mismatch(file_name: str) -> AppError:
    return AppError(
        "checksum_differs",
        460,
        f"The received bytes of {file_name!r} do not match Upload-Checksum. They were "
        "discarded: send them again.",
    )


def interrupted(is_replaced: bool, idle_seconds: float) -> AppError:
    if is_replaced:
        return AppError(
            "upload_taken_over", 409, "A newer request has taken over this upload. Ask for its offset."
        )
    return AppError(
        "upload_idle",
        408,
        f"No data arrived for {idle_seconds:.0f} s. Earlier bytes are kept: ask for the offset and continue there.",
        headers={"Connection": "close"},
    )


def disk_full() -> AppError:
    return AppError(
        "disk_full",
        507,
        "The server's disk is full. Stored bytes are kept: try again when the operator has freed some space.",
    )
