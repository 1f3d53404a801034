"""Uploads, and previews of them before they become a dataset."""

from __future__ import annotations

from pydantic import AwareDatetime, Field

from trainwright.contracts.base import Envelope
from trainwright.contracts.curation import Compression, CurationRequest, CurationSpec, FileFormat


class Upload(Envelope):
    """A file that is being uploaded, or is complete and not used yet."""

    id: str
    file_name: str
    """Name including folders: `train/a.jsonl`."""

    bytes: int
    """Announced size."""

    offset: int
    """Bytes that are stored durably."""

    complete: bool
    digest: str | None = None
    """SHA-256 of a complete file, in hex."""

    created: AwareDatetime
    created_by: str | None = None
    """Name of the uploading user; empty if the account was deleted."""

    mine: bool = True
    """Whether the requesting user uploads it."""

    expires: AwareDatetime
    """When it is deleted unless more bytes arrive or a dataset uses it."""


class PreviewRequest(CurationRequest):
    uploads: list[str] = Field(min_length=1, max_length=1_000)
    """Ids of complete uploads."""

    curation: CurationSpec = CurationSpec()
    """How the first rows are read as documents."""


class Column(Envelope):
    """A key of `.jsonl` objects, or a column of a table."""

    name: str
    type: str
    """`text`, `messages` (a chat), or the format's own type name for values that cannot be documents."""

    usable: bool


class PreviewFile(Envelope):
    upload: str
    name: str
    format: FileFormat | None
    compression: Compression = Compression.NONE
    columns: list[Column] = []
    """The first 1,000."""

    field: str | None = None
    """The key or column that will be read, if the format has any."""

    documents: list[str] = []
    """The first documents, each truncated after 2,000 characters."""

    rejected: list[RejectedDocument] = []
    """Rejected rows among the first rows."""

    problem: str | None = None
    """Why the file cannot be read, and what to do about it."""


class Preview(Envelope):
    """Contents of files, from their first rows."""

    files: list[PreviewFile]
    curation: CurationSpec
    """The requested curation, with the field filled in if it is the same for all files."""


class RejectedDocument(Envelope):
    """A document that could not be read."""

    file: str
    line: int
    reason: str
