"""Files on their way, and a look into them before they are a dataset."""

from __future__ import annotations

from pydantic import AwareDatetime, Field

from trainwright.contracts.base import Envelope, Strict
from trainwright.contracts.recipe import Compression, FileFormat, Recipe


class Upload(Envelope):
    """A file on its way in, or complete and not used yet."""

    id: str
    file_name: str
    """Name within the upload, folders included: `train/a.jsonl`."""

    bytes: int
    """Announced size."""

    offset: int
    """Bytes that are safely stored."""

    complete: bool
    digest: str | None = None
    """SHA-256 of a complete file, in hex."""

    created: AwareDatetime
    created_by: str | None = None
    """Name of who sends it; nobody once the account is gone."""

    mine: bool = True
    """Whether that is who asks."""

    expires: AwareDatetime
    """When it is dropped unless bytes arrive or a dataset takes it."""


class PreviewRequest(Strict):
    uploads: list[str] = Field(min_length=1, max_length=1_000)
    """Ids of complete uploads."""

    recipe: Recipe = Recipe()
    """How the first rows are shown as documents."""


class Column(Envelope):
    """A key of `.jsonl` objects, or a column of a table."""

    name: str
    type: str
    """`text`, `messages` (a chat), or the format's own word for what cannot be a document."""

    usable: bool


class PreviewFile(Envelope):
    upload: str
    name: str
    format: FileFormat | None
    compression: Compression = Compression.NONE
    columns: list[Column] = []
    """The first 1,000."""

    field: str | None = None
    """The key or column that will be read, when there are any."""

    documents: list[str] = []
    """The first documents, each cut after 2,000 characters."""

    rejected: list[RejectedDocument] = []
    """Of the first rows."""

    problem: str | None = None
    """Why the file cannot be read at all, and what to do."""


class Preview(Envelope):
    """What files hold, by their first rows."""

    files: list[PreviewFile]
    recipe: Recipe
    """As asked, with what can be chosen for all files filled in."""


class RejectedDocument(Envelope):
    """A document that could not be read."""

    file: str
    line: int
    reason: str
