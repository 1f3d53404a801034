"""Objects in a bucket of any S3-compatible store.

Clients and nodes download from the store itself, by presigned links to which the API redirects. Uploads pass through the
API, which hashes them. Objects that must be files here, such as a chunk to tokenize, are kept in a bounded cache on local
disk. Conditional writes are not used: not every store has them. The folder below which this platform's objects are is
the URL's path, so that a bucket can have others.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import UUID

import obstore
from obstore.store import S3Store as Bucket
from pydantic import SecretStr

from trainwright_backend.core.file_cache import FileCache
from trainwright_backend.core.object_store import (
    BUFFER_BYTES,
    READ,
    UPLOADS,
    ObjectDamagedError,
    ObjectStore,
    StoredObject,
    file_content,
    segments_of,
)
from trainwright_backend.core.s3_errors import reaching_store
from trainwright_backend.core.s3_upload import SegmentedUpload
from trainwright_backend.core.s3_writer import DIGEST_KEY, S3Writer
from trainwright_backend.core.settings import Settings

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import S3Config

CONNECT_TIMEOUT = timedelta(seconds=5)
SILENCE_TIMEOUT = timedelta(seconds=30)
TRANSFER_TIMEOUT = timedelta(hours=12)
"""Limit of an entire request with its body: a large download takes long."""

RETRIES = 4
RETRY_TIMEOUT = timedelta(seconds=30)


class S3Store(ObjectStore):
    """Objects in a bucket.

    Args:
        bucket: of the platform.
        public_bucket: the same, at the address that users and nodes reach.
        local: folder on this machine for the cache and for files at work.
        cache_bytes: limit of the cache.
        secret_key: signs links.
    """

    records_digests = True

    def __init__(
        self, bucket: Bucket, public_bucket: Bucket, local: Path, cache_bytes: int, secret_key: SecretStr
    ) -> None:
        super().__init__(local, secret_key)
        self._bucket, self._public_bucket = bucket, public_bucket
        self._cache = FileCache(local, cache_bytes)

    def local_file(self, key: str) -> Path:
        with reaching_store():
            found = obstore.head(self._bucket, _checked(key))
        name = hashlib.sha256(f"{key}\n{found['e_tag']}\n{found['size']}".encode()).hexdigest()
        return self._cache.find(name) or self._cache.add(name, lambda target: self._download(key, target))

    def direct_link(self, key: str, expires_seconds: float) -> str:
        return obstore.sign(
            self._public_bucket, "GET", _checked(key), timedelta(seconds=int(expires_seconds))
        )

    def stat(self, key: str) -> int | None:
        try:
            with reaching_store():
                return obstore.head(self._bucket, _checked(key))["size"]
        except FileNotFoundError:
            return None

    def content_of(self, key: str) -> StoredObject:
        with reaching_store():
            found = obstore.get(self._bucket, _checked(key), options={"head": True})
        if (digest := found.attributes.get(DIGEST_KEY)) is not None:
            return StoredObject(found.meta["size"], digest)
        return file_content(self.local_file(key))

    @contextmanager
    def open_write(self, key: str, expected: StoredObject | None = None) -> Iterator[S3Writer]:
        incoming = S3Writer(self._bucket, _checked(key), expected)
        try:
            yield incoming
        finally:
            incoming.discard()

    def open_read(self, key: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        options: GetOptions = {}
        if start or end is not None:
            with reaching_store():
                size = obstore.head(self._bucket, _checked(key))["size"]
            last = size if end is None else min(end, size)
            if start >= last:
                return  # the store would refuse an empty range
            options = {"range": (start, last)}
        with reaching_store():
            result = obstore.get(self._bucket, _checked(key), options=options)
            for block in result.stream(min_chunk_size=BUFFER_BYTES):
                READ.inc(len(block))
                yield bytes(block)

    def delete_prefix(self, prefix: str) -> None:
        _checked(prefix)
        self._delete([prefix, *self._list(f"{prefix}/")])

    def list_prefix(self, prefix: str) -> list[str]:
        keys = self._list(f"{_checked(prefix)}/" if prefix else "")
        return sorted(key for key in keys if not key.startswith("."))

    def open_upload(self, upload_id: UUID) -> SegmentedUpload:
        return SegmentedUpload(self._bucket, f"{UPLOADS}/{upload_id.hex}", self.open_write)

    def list_partials(self) -> list[UUID]:
        with reaching_store():
            found = obstore.list_with_delimiter(self._bucket, f"{UPLOADS}/")["common_prefixes"]
        return [UUID(hex=prefix.rstrip("/").rpartition("/")[2]) for prefix in found]

    def drop_partial(self, upload_id: UUID) -> None:
        self._delete(self._list(f"{UPLOADS}/{upload_id.hex}/"))

    def _download(self, key: str, target: Path) -> None:
        """Write an object to a file, and verify it."""
        with reaching_store():
            result = obstore.get(self._bucket, key)
            sha, size = hashlib.sha256(), 0
            with target.open("xb") as file:
                for block in result.stream(min_chunk_size=BUFFER_BYTES):
                    file.write(block)
                    sha.update(block)
                    size += len(block)
                    READ.inc(len(block))
        expected = result.attributes.get(DIGEST_KEY, sha.hexdigest())
        if size != result.meta["size"] or sha.hexdigest() != expected:
            raise ObjectDamagedError(key, expected, sha.hexdigest())

    def _list(self, prefix: str) -> list[str]:
        with reaching_store():
            return [entry["path"] for page in obstore.list(self._bucket, prefix) for entry in page]

    def _delete(self, keys: list[str]) -> None:
        for key in keys:  # one by one: not every store has a request for several
            with reaching_store():
                try:
                    obstore.delete(self._bucket, key)
                except FileNotFoundError:
                    continue


def open_s3_store(settings: Settings) -> S3Store:
    """The store of these settings."""
    location = urlsplit(settings.object_store_url or "")
    return S3Store(
        open_bucket(settings, settings.s3_endpoint, location.netloc, location.path),
        open_bucket(
            settings, settings.s3_public_endpoint or settings.s3_endpoint, location.netloc, location.path
        ),
        settings.data_dir.absolute() / "object-cache",
        settings.object_cache_gib * 2**30,
        settings.secret_key,
    )


def open_bucket(settings: Settings, endpoint: str | None, name: str, folder: str) -> Bucket:
    """A client for this folder of the bucket, with the credentials of the settings."""
    config: S3Config = {}
    if endpoint is not None:
        config["endpoint"] = endpoint
    if settings.s3_access_key is not None and settings.s3_secret_key is not None:
        config["access_key_id"] = settings.s3_access_key.get_secret_value()
        config["secret_access_key"] = settings.s3_secret_key.get_secret_value()
    return Bucket(
        name,
        prefix=folder.strip("/") or None,
        region=settings.s3_region,
        # Self-hosted stores rarely have a host name for each bucket.
        virtual_hosted_style_request=endpoint is None,
        checksum_algorithm="SHA256",
        client_options={
            "allow_http": endpoint is not None and endpoint.startswith("http://"),
            "connect_timeout": CONNECT_TIMEOUT,
            "read_timeout": SILENCE_TIMEOUT,
            "timeout": TRANSFER_TIMEOUT,
        },
        retry_config={"max_retries": RETRIES, "retry_timeout": RETRY_TIMEOUT},
        config=config,
    )


def _checked(key: str) -> str:
    segments_of(key)
    return key
