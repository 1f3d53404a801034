"""Search in text columns, in any case."""

from collections.abc import Iterable

from sqlalchemy import ColumnElement, func, or_
from sqlalchemy.orm import InstrumentedAttribute


def contains_any(columns: Iterable[InstrumentedAttribute[str]], texts: Iterable[str]) -> ColumnElement[bool]:
    """Whether any of the columns contains any of the texts."""
    wanted = [text.lower() for text in texts]
    return or_(*(func.lower(column).contains(text, autoescape=True) for column in columns for text in wanted))
