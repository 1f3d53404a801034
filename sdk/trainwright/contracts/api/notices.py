"""Notices to a person about what happens to their runs, limits and nodes: in the app, and by email if they choose it."""

from __future__ import annotations

from enum import StrEnum

from pydantic import AwareDatetime, Field, model_validator

from trainwright.contracts.base import Envelope, Strict

MAX_NOTICES = 200
"""Notices that are kept of one person. Older ones are deleted."""


class NoticeKind(StrEnum):
    """What a notice is about. The values are those of `WebhookEvent`."""

    RUN_ENDED = "run.ended"
    """Your run succeeded or was cancelled."""
    RUN_FAILED = "run.failed"
    """Your run failed."""
    RUN_PAUSED_BY_LIMIT = "run.paused_by_limit"
    """Your run was paused because hours, storage or its maximum run time were reached."""
    LIMIT_REACHED = "limit.reached"
    """80 or 100 % of a limit of your team, or of your own limit in a team, is used."""
    NODE_QUARANTINED = "node.quarantined"
    """A node on which your team had a run in the last day, or for site admins any node, gets no runs until it passes a
    self-test."""


OWN_RUNS = frozenset({NoticeKind.RUN_ENDED, NoticeKind.RUN_FAILED, NoticeKind.RUN_PAUSED_BY_LIMIT})
"""Notices about a person's own runs, which everybody gets in the app unless they choose otherwise."""


class Notice(Envelope):
    """Something that happened."""

    id: str
    kind: NoticeKind
    time: AwareDatetime
    team: str | None
    """Slug of the team; null for a notice to site admins."""

    sentence: str
    path: str
    """Where to read more, a path of the web pages."""

    read: AwareDatetime | None
    """When you read it. Null: not yet."""


class NoticePage(Envelope):
    """One page of notices, newest first."""

    items: list[Notice]
    next_cursor: str | None
    unread: int
    """All unread notices, also those on other pages."""


class ReadNotices(Strict):
    """Notices to mark as read."""

    ids: tuple[str, ...] | None = Field(default=None, min_length=1, max_length=MAX_NOTICES)
    """Null: all of them."""


class NoticeChoice(Strict):
    """How a person wants to get notices of one kind."""

    kind: NoticeKind
    app: bool
    """Whether they appear in the list of notices."""

    mail: bool
    """Whether they are sent to the account's email address."""


class NoticeChoices(Strict):
    """A person's choices. Kinds that are left out keep theirs."""

    choices: tuple[NoticeChoice, ...] = Field(min_length=1, max_length=len(NoticeKind))

    @model_validator(mode="after")
    def _names_each_kind_once(self) -> NoticeChoices:
        kinds = [choice.kind for choice in self.choices]
        if len(set(kinds)) < len(kinds):
            raise ValueError("A kind of notice is named twice. Name each once.")
        return self


class NoticeSettings(Envelope):
    """A person's choices, and whether emails can reach them."""

    choices: list[NoticeChoice]
    """One for each kind."""

    address: str
    """The address to which emails are sent."""

    mail_problem: str
    """Why you cannot choose emails, and what to do about it; empty if you can."""
