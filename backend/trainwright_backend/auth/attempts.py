"""Counting attempts to guess a secret, and other requests that may come only so often, in a sliding window."""

from datetime import timedelta
from uuid import UUID

from sqlalchemy import delete, func, select

from trainwright_backend.auth.tables import SignInAttempt
from trainwright_backend.core.db import Database, Write, now
from trainwright_backend.core.errors import AppError
from trainwright_backend.core.security import keyed_hash
from trainwright_backend.core.settings import Settings

WINDOW = timedelta(minutes=10)


class TooManyError(AppError):
    """429, with Retry-After."""


def count(
    database: Database,
    settings: Settings,
    purpose: str,
    subject: str,
    most: int,
    refusal: tuple[str, str, str],
) -> UUID:
    """Count an attempt before it is evaluated, so that concurrent attempts are counted too.

    Args:
        purpose: the kind of attempts that count together.
        subject: whose attempts count together.
        most: attempts in the window.
        refusal: code, what there were too many of, and advice.

    Raises:
        TooManyError: there were ``most`` in the window.
    """
    hashed = keyed_hash(settings.secret_key, purpose, subject)
    with database.write() as session:
        _lock(session, hashed)
        start = now() - WINDOW
        session.execute(delete(SignInAttempt).where(SignInAttempt.time < start))
        times = session.scalars(
            select(SignInAttempt.time).where(SignInAttempt.subject == hashed).order_by(SignInAttempt.time)
        ).all()
        if len(times) >= most:
            seconds = max(1, round((times[-most] + WINDOW - now()).total_seconds()))
            code, what, advice = refusal
            minutes = -(-seconds // 60)
            detail = f"{what} Try again in {minutes} minute{'s' if minutes > 1 else ''}, {advice}."
            raise TooManyError(code, 429, detail, headers={"Retry-After": str(seconds)})
        attempt = SignInAttempt(subject=hashed)
        session.add(attempt)
        session.flush()
        return attempt.id


def forget(session: Write, attempt: UUID) -> None:
    """An attempt that succeeded does not count."""
    session.execute(delete(SignInAttempt).where(SignInAttempt.id == attempt))


def _lock(session: Write, subject: str) -> None:
    """Serialize the attempts of a subject. On SQLite every `Write` has the write lock already."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(int(subject[:15], 16))))
