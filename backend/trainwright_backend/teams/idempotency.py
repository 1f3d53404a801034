"""Requests with an Idempotency-Key: a repetition finds what the first one created."""

import hashlib
import json
from typing import Any
from uuid import UUID

from trainwright_backend.core.db import Write, now
from trainwright_backend.core.errors import AppError, Invalid
from trainwright_backend.teams.tables import IdempotencyKey

MAX_KEY_LENGTH = 200


def reserve_key(session: Write, team_id: UUID, key: str | None, request: Any) -> IdempotencyKey | None:
    """Reserve ``key`` for a request, or return it as an earlier one has used it. A concurrent request waits.

    Args:
        key: None takes nothing and finds nothing.
        request: JSON; everything that determines what it creates.

    Raises:
        AppError: 422 ``idempotency_key_reused``: the key was used with another body.
    """
    if key is None:
        return None
    if not 1 <= len(key) <= MAX_KEY_LENGTH:
        raise Invalid.at("Idempotency-Key", f"The key has 1 to {MAX_KEY_LENGTH} characters.", len(key))
    digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
    row = {"team_id": team_id, "key": key, "body_digest": digest, "created": now()}
    taken = session.execute(
        session.insert(IdempotencyKey).values(**row).on_conflict_do_nothing().returning(IdempotencyKey.key)
    ).first()
    if taken is not None:
        return None
    earlier = session.get_one(IdempotencyKey, (team_id, key))
    if earlier.body_digest != digest:
        detail = "This Idempotency-Key was used with another body before. Use a new key for a new request."
        raise AppError("idempotency_key_reused", 422, detail)
    return earlier


def deleted_error(noun: str) -> AppError:
    """410: what the key created was deleted."""
    detail = f"The {noun} of this Idempotency-Key was deleted. Use a new key for a new {noun}."
    return AppError(f"{noun}_deleted", 410, detail)
