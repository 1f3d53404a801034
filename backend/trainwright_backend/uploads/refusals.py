"""What a request that brings bytes may be refused with: what happened, and how the client goes on."""

from trainwright_backend.core.errors import AppError
from trainwright_backend.uploads.tables import Upload


def taken() -> AppError:
    return AppError(
        "upload_taken",
        423,
        "Another request is still writing to this upload. Try again in a moment.",
        headers={"Retry-After": "2"},
    )


def wrong_offset(row: Upload, asked: int) -> AppError:
    return AppError(
        "wrong_offset",
        409,
        f"{row.offset:,} bytes of {row.file_name!r} are stored, so the next ones begin there and not at {asked:,}. "
        f"Go on at Upload-Offset {row.offset}.",
        headers={"Upload-Offset": str(row.offset)},
        extensions={"offset": row.offset},
    )


def too_many(row: Upload) -> AppError:
    return AppError(
        "too_many_bytes",
        413,
        f"{row.file_name!r} was announced with {row.bytes:,} bytes and these would be more. Nothing of them was kept: "
        "delete the upload and announce the file again.",
        extensions={"bytes": row.bytes, "offset": row.offset},
    )


def checksum_differs(file_name: str) -> AppError:
    return AppError(
        "checksum_differs",
        460,
        f"The bytes that arrived of {file_name!r} do not have the checksum of Upload-Checksum. Nothing of them was "
        "kept: send them again.",
    )


def interrupted(is_replaced: bool, idle_seconds: float) -> AppError:
    if is_replaced:
        return AppError(
            "upload_taken_over", 409, "A newer request goes on with this upload. Ask for its offset."
        )
    return AppError(
        "upload_idle",
        408,
        f"No byte came for {idle_seconds:.0f} s. What came before is kept: ask for the offset and go on there.",
        headers={"Connection": "close"},
    )


def disk_full() -> AppError:
    return AppError(
        "disk_full",
        507,
        "The server's disk is full. What was stored is kept: try again when its operator has made room.",
    )
