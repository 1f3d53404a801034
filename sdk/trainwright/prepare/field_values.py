"""The document in the value of a field: its text, the text of its chat messages, or the reason why there is none."""

from __future__ import annotations

from typing import Any, NoReturn

from trainwright.prepare.documents import DOCUMENT_BYTES, Reason

TEXT = "text"
MESSAGES = "messages"


class NoDocumentError(ValueError):
    """The value is not a document; the message is the reason."""


def document_text(value: object, field: str) -> str:
    """The document in ``value`` of ``field``.

    A list of messages becomes, for each, a line ``<|role|>`` and its content.

    Raises:
        NoDocumentError: it is of another type, empty, too long or no valid Unicode.
    """
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        value = "".join(_message(item) for item in value)
    if not isinstance(value, str):
        raise NoDocumentError(f"has {_word(value)} in field '{field}' instead of text")
    if not value or value.isspace():
        raise NoDocumentError(Reason.EMPTY)
    if len(value) * 4 > DOCUMENT_BYTES or not value.isascii():
        _check_unicode(value)
    return value


def type_word(value: object) -> str:
    """`text`, `messages`, or the name of another type."""
    if isinstance(value, str):
        return TEXT
    if isinstance(value, list) and value and all(map(_is_message, value)):
        return MESSAGES
    return _word(value).removeprefix("a ").removeprefix("an ")


def _check_unicode(text: str) -> None:
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:  # JSON can contain a lone surrogate, which has no UTF-8
        raise NoDocumentError(Reason.BAD_UTF8) from None
    if size > DOCUMENT_BYTES:
        raise NoDocumentError(Reason.TOO_LONG)


def _message(message: object) -> str:
    if not _is_message(message):
        _refuse_message()
    assert isinstance(message, dict)
    return f"<|{message['role']}|>\n{_content(message['content'])}\n"


def _is_message(message: object) -> bool:
    if not isinstance(message, dict):
        return False
    role = message.get("role")
    return isinstance(role, str) and bool(role.strip()) and isinstance(message.get("content"), str | list)


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(_part(part) for part in content)


def _part(part: object) -> str:
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    _refuse_message()


def _refuse_message() -> NoReturn:
    raise NoDocumentError(Reason.BAD_MESSAGE)


def _word(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a yes or no"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else "another value"
