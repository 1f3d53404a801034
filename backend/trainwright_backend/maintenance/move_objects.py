"""Moving a platform's objects between its local folder and its bucket."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from trainwright_backend.core.local_store import LocalStore
from trainwright_backend.core.object_store import ObjectStore
from trainwright_backend.core.settings import Settings
from trainwright_backend.maintenance.transfer import Transfer, copy_missing


class Place(StrEnum):
    DISK = "disk"
    S3 = "s3"


class NoBucketError(Exception):
    """The settings name no bucket."""


@dataclass(frozen=True)
class Move:
    """What was moved."""

    transfer: Transfer
    unfinished_uploads: int
    """They are not moved: their users send the files again."""


def move_objects(settings: Settings, to: Place, *, remove: bool, tell: Callable[[int], None]) -> Move:
    """Copy all objects to the bucket, or back to the folder, and verify each.

    Args:
        remove: delete them at their old place after all have been copied.

    Raises:
        NoBucketError: ``TRAINWRIGHT_OBJECT_STORE_URL`` is not set.
    """
    if settings.object_store_url is None:
        raise NoBucketError("TRAINWRIGHT_OBJECT_STORE_URL is not set: name the bucket, as in s3://bucket")
    from trainwright_backend.core.s3_store import open_s3_store  # its client takes a while to import

    disk: ObjectStore = LocalStore(settings.resolved_object_store_dir, settings.secret_key)
    bucket: ObjectStore = open_s3_store(settings)
    source, target = (disk, bucket) if to is Place.S3 else (bucket, disk)
    keys = source.list_prefix("")
    transfer = copy_missing(source, target, keys, tell)
    if remove:
        for key in keys:
            source.delete(key)
    return Move(transfer, len(source.list_partials()))
