"""The object store that the settings name."""

from trainwright_backend.core.local_store import LocalStore
from trainwright_backend.core.object_store import ObjectStore
from trainwright_backend.core.settings import Settings


def open_store(settings: Settings) -> ObjectStore:
    """Open it; nothing is read or written yet but its folder on this machine."""
    if settings.object_store_url:
        from trainwright_backend.core.s3_store import open_s3_store  # its client takes a while to import

        return open_s3_store(settings)
    return LocalStore(settings.resolved_object_store_dir, settings.secret_key)
