"""Passwords: argon2id, kept slow and kept from being guessed.

19 MiB and two passes a hash (OWASP's minimum), at most two at once, so that a flood of sign-ins costs 40 MiB and not
the machine. An unknown address is hashed against a decoy: who is known cannot be told by the clock. Guesses are
counted by address, known or not, in a window that slides; a wave of them delays the owner, and never locks them out
for good.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from uuid import UUID

from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher
from sqlalchemy import delete, func, select

from trainwright_backend.auth.service import account_by_email, normal_email
from trainwright_backend.auth.tables import Account, SignInGuess
from trainwright_backend.core.db import Database, Write, now
from trainwright_backend.core.errors import AppError, Busy, Invalid, Unauthorized
from trainwright_backend.core.security import keyed_hash, new_token
from trainwright_backend.core.settings import Settings

MEMORY_KIB = 19 * 1024
PASSES = 2
HASHES_AT_ONCE = 2
LONGEST_WAIT_SECONDS = 5.0

GUESSES = 20
WINDOW = timedelta(minutes=10)

COMMON = frozenset(Path(__file__).with_name("common_passwords.txt").read_text().split())
"""Of ten letters and more, as they head the lists of leaked passwords."""

_hashes = threading.BoundedSemaphore(HASHES_AT_ONCE)
_hasher = PasswordHash((Argon2Hasher(time_cost=PASSES, memory_cost=MEMORY_KIB, parallelism=1),))


def hash_password(password: str) -> str:
    """The stored form of a new password. Slow: call it without a session.

    Raises:
        Invalid: it is one of those that are tried first.
    """
    if password.lower() in COMMON or len(set(password)) < 3:
        raise Invalid.at("password", "This is one of the first passwords that are tried. Choose another.")
    with _turn():
        return _hasher.hash(password)


def check_password(database: Database, settings: Settings, email: str, password: str) -> Account:
    """Whose address and password these are. Slow, and takes sessions of its own.

    Raises:
        AppError: 429 ``too_many_guesses`` with Retry-After.
        Unauthorized: they do not belong together, or nobody has this address.
    """
    guess = _count_guess(database, _subject(settings, email))
    with database.read() as session:
        account = account_by_email(session, email)
    with _turn():
        right = _hasher.verify(password, _decoy() if account is None else account.password_hash)
    if account is None or not right:
        raise Unauthorized("E-mail or password is wrong.", code="wrong_password")
    with database.write() as session:
        session.execute(delete(SignInGuess).where(SignInGuess.id == guess))
    return account


def _count_guess(database: Database, subject: str) -> UUID:
    """Note a guess before it is evaluated, so that many at once are counted too."""
    with database.write() as session:
        _lock(session, subject)
        begin = now() - WINDOW
        session.execute(delete(SignInGuess).where(SignInGuess.time < begin))
        times = session.scalars(
            select(SignInGuess.time).where(SignInGuess.subject == subject).order_by(SignInGuess.time)
        ).all()
        if len(times) >= GUESSES:
            seconds = max(1, round((times[-GUESSES] + WINDOW - now()).total_seconds()))
            raise AppError(
                "too_many_guesses",
                429,
                f"Too many passwords were tried for this address. Try again in {-(-seconds // 60)} minutes.",
                headers={"Retry-After": str(seconds)},
            )
        guess = SignInGuess(subject=subject)
        session.add(guess)
        session.flush()
        return guess.id


def _subject(settings: Settings, email: str) -> str:
    return keyed_hash(settings.secret_key, "guess", normal_email(email))


def _lock(session: Write, subject: str) -> None:
    """Count one guess for a subject at a time; on SQLite every `Write` holds the lock already."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(int(subject[:15], 16))))


@contextmanager
def _turn() -> Iterator[None]:
    if not _hashes.acquire(timeout=LONGEST_WAIT_SECONDS):
        raise Busy("sign_in_busy", "Too many people sign in right now. Try again in a moment.")
    try:
        yield
    finally:
        _hashes.release()


@cache
def _decoy() -> str:
    return _hasher.hash(new_token())
