"""Lists that were arrays in version 0.1 and now have the shape of all lists: `{items, next_cursor}`.

Clients of version 0.1 read arrays and give neither `limit` nor `cursor`, so without either the response still is an array.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends, Query
from fastapi.responses import JSONResponse

from trainwright.contracts.api.envelopes import Page
from trainwright.contracts.base import Envelope
from trainwright_backend.core.errors import Invalid
from trainwright_backend.core.thread_context import without_thread

MAX_ITEMS = 1_000

Item = TypeVar("Item", bound=Envelope)


@dataclass(frozen=True)
class PageQuery:
    """The page that a request asks for."""

    limit: Annotated[
        int | None,
        Query(
            ge=1,
            le=MAX_ITEMS,
            description="Items of a page. Always send it: without it the response is an array.",
        ),
    ] = None
    cursor: Annotated[str | None, Query(max_length=200)] = None

    @property
    def is_legacy(self) -> bool:
        return self.limit is None and self.cursor is None


Paged = Annotated[PageQuery, Depends(without_thread(PageQuery))]


def page_of(found: Sequence[Item], asked: PageQuery, key: Callable[[Item], str]) -> Page[Item] | JSONResponse:
    """The requested page of a whole list, whose items ``key`` identifies.

    Raises:
        Invalid: the item that the cursor names is not in the list.
    """
    if asked.cursor is not None:
        keys = [key(item) for item in found]
        if asked.cursor not in keys:
            raise refused_cursor(asked.cursor)
        found = found[keys.index(asked.cursor) + 1 :]
    return first_page(found, asked, key)


def first_page(
    rest: Sequence[Item], asked: PageQuery, key: Callable[[Item], str]
) -> Page[Item] | JSONResponse:
    """The requested page of the part of a list after the cursor."""
    if asked.is_legacy:
        return JSONResponse([item.model_dump(mode="json", by_alias=True) for item in rest])
    items = list(rest[: asked.limit or MAX_ITEMS])
    return Page(items=items, next_cursor=key(items[-1]) if len(rest) > len(items) else None)


def refused_cursor(cursor: str) -> Invalid:
    rule = "This cursor is not valid here, or its item was deleted: start again without it."
    return Invalid.at("cursor", rule, cursor)
