"""Copying objects between stores, each verified. What was copied before is not copied again."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trainwright_backend.core.object_store import ObjectDamagedError, ObjectStore, StoredObject


@dataclass(frozen=True)
class Transfer:
    """What was copied, and what the target had already."""

    copied: int
    copied_bytes: int
    present: int


def copy_object(source: ObjectStore, key: str, target: ObjectStore, target_key: str) -> StoredObject:
    """Copy one object and compare its digest with that of the source.

    Raises:
        FileNotFoundError: the source does not have it.
        ObjectDamagedError: the bytes that were read are not those that were stored.
    """
    content = source.content_of(key)
    with target.open_write(target_key, content) as copy:
        for block in source.open_read(key):
            copy.write(block)
        if copy.digest != content.digest:
            raise ObjectDamagedError(key, content.digest, copy.digest)
        return copy.finish()


def copy_missing(
    source: ObjectStore, target: ObjectStore, keys: Iterable[str], tell: Callable[[int], None]
) -> Transfer:
    """Copy the objects that the target does not have in the same size.

    An object appears whole or not at all and its bytes never change, so the size tells.

    Args:
        tell: called with the number of objects that are done, after each.
    """
    copied = copied_bytes = present = 0
    for number, key in enumerate(keys, 1):
        size = source.stat(key)
        if size is not None and target.stat(key) == size:
            present += 1
        else:
            copied_bytes += copy_object(source, key, target, key).bytes
            copied += 1
        tell(number)
    return Transfer(copied, copied_bytes, present)
