"""Names of the objects whose ids appear in a text, for people who read it."""

import re
from collections.abc import Iterable, Mapping
from uuid import UUID

from sqlalchemy import Select, String, cast, literal, or_, select

from trainwright_backend.auth.tables import Account, ApiKey, Membership
from trainwright_backend.checkpoints.tables import Checkpoint
from trainwright_backend.core.db import Read
from trainwright_backend.core.errors import NotFound
from trainwright_backend.core.ids import Prefix, parse_id, public_id
from trainwright_backend.datasets.tables import Dataset, UploadedTokenizer
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.tables import Recipe, Run, SavedView

_ID = re.compile(r"\b([a-z]+)_[a-z2-7]{26}\b")
_IDS_AT_ONCE = 500


def names_in_team(session: Read, team_id: UUID, texts: Iterable[str]) -> dict[str, str]:
    """Current names of the team's objects, by the ids in ``texts``; a checkpoint's is its step. Objects of other teams and deleted
    ones are left out."""
    is_member = Account.id.in_(select(Membership.user_id).where(Membership.team_id == team_id))
    step = literal("step ") + cast(Checkpoint.step, String)
    of_team = Checkpoint.run_id.in_(select(Run.id).where(Run.team_id == team_id))
    return _names(
        session,
        texts,
        {
            "run": select(Run.id, Run.name).where(Run.team_id == team_id),
            "ds": select(Dataset.id, Dataset.name).where(Dataset.team_id == team_id),
            "tok": select(UploadedTokenizer.id, UploadedTokenizer.name).where(
                UploadedTokenizer.team_id == team_id
            ),
            "recipe": select(Recipe.id, Recipe.name).where(Recipe.team_id == team_id),
            "view": select(SavedView.id, SavedView.name).where(SavedView.team_id == team_id),
            "user": select(Account.id, Account.name).where(or_(is_member, Account.service_of == team_id)),
            "ckpt": select(Checkpoint.id, step).where(of_team),
        },
    )


def names_of_site(session: Read, texts: Iterable[str]) -> dict[str, str]:
    """Current names of accounts and nodes, by the ids in ``texts``."""
    accounts, nodes = select(Account.id, Account.name), select(Node.id, Node.name)
    return _names(session, texts, {"user": accounts, "node": nodes})


def names_of_keys(session: Read, keys: Iterable[tuple[str, str | None]]) -> dict[tuple[str, str | None], str]:
    """Current names of API keys, by their prefixes and the ids of their accounts."""
    wanted = set(keys)
    rows = session.execute(
        select(ApiKey.prefix, ApiKey.user_id, ApiKey.name).where(
            ApiKey.prefix.in_({prefix for prefix, _ in wanted})
        )
    )
    found = [((row.prefix, public_id("user", row.user_id)), row.name) for row in rows]
    return {key: name for key, name in found if key in wanted}


def ids_in(texts: Iterable[str]) -> set[str]:
    """The public ids in texts, of objects of any kind."""
    return {match[0] for text in texts for match in _ID.finditer(text)}


def _names(session: Read, texts: Iterable[str], tables: Mapping[Prefix, Select[UUID, str]]) -> dict[str, str]:
    shown = {match[0]: match[1] for text in texts for match in _ID.finditer(text)}
    names: dict[str, str] = {}
    for prefix, rows in tables.items():
        ids = [value for text, kind in shown.items() if kind == prefix for value in _parsed(prefix, text)]
        for begin in range(0, len(ids), _IDS_AT_ONCE):
            some = rows.where(rows.selected_columns[0].in_(ids[begin : begin + _IDS_AT_ONCE]))
            names |= {public_id(prefix, value): name for value, name in session.execute(some)}
    return names


def _parsed(prefix: Prefix, text: str) -> list[UUID]:
    """Its id; none if it only looks like one."""
    try:
        return [parse_id(prefix, text)]
    except NotFound:
        return []
