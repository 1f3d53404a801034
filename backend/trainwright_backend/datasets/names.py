"""Datasets and tokenizers that a request gives by id or name."""

from uuid import UUID

from sqlalchemy import select

from trainwright_backend.core.db import Read
from trainwright_backend.core.errors import Invalid, NotFound
from trainwright_backend.core.ids import Prefix, parse_id, public_id
from trainwright_backend.datasets.tables import Dataset, UploadedTokenizer

NO_DATASET = "Your team has no dataset with this id or name. The datasets page and `trainwright datasets list` show both."
MAX_NAMED = 5
"""Ids that a refusal of an ambiguous name lists."""


def dataset_id(session: Read, team_id: UUID, given: str, field: str) -> str:
    """The id of a dataset that is given by id or name; ``given`` if the team has none of this name.

    Raises:
        Invalid: several datasets have the name.
    """
    return _id_of(session, team_id, Dataset, given, field)


def tokenizer_id(session: Read, team_id: UUID, given: str, field: str) -> str:
    """As `dataset_id`, of an uploaded tokenizer."""
    return _id_of(session, team_id, UploadedTokenizer, given, field)


def parsed_id(prefix: Prefix, text: str) -> UUID | None:
    """The id; None if the text is no id of this kind."""
    try:
        return parse_id(prefix, text)
    except NotFound:
        return None


def _id_of(
    session: Read, team_id: UUID, table: type[Dataset] | type[UploadedTokenizer], given: str, field: str
) -> str:
    prefix: Prefix
    prefix, noun = ("ds", "datasets") if table is Dataset else ("tok", "tokenizers")
    if parsed_id(prefix, given) is not None:
        return given
    rows = select(table.id).where(table.team_id == team_id, table.name == given).order_by(table.id)
    ids = [public_id(prefix, found) for found in session.scalars(rows.limit(MAX_NAMED))]
    if len(ids) > 1:
        raise Invalid.at(
            field, f"Several {noun} have this name. Give the id of one: {', '.join(ids)}.", given
        )
    return ids[0] if ids else given
