"""Who creates something."""

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True)
class Author:
    """The person or service account that creates a dataset, a tokenizer or a run."""

    user_id: UUID
    name: str
