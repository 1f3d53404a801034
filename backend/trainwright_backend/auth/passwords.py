"""Passwords: argon2id, deliberately slow, and protected against guessing.

A hash takes 19 MiB and two passes (OWASP's minimum). Routes that hash are `SignInRoute`s, so at most two hashes run at
once, and a flood of sign-ins costs 40 MiB and two threads. An unknown address is hashed against a decoy, so timing does
not reveal which addresses exist. A new password must withstand many guesses (`zxcvbn`). Attempts are counted per
address, known or not, in a sliding window. Browsers in which the account has signed in before are counted separately,
so a stranger's guesses do not lock the owner out of them.
"""

import re
from collections.abc import Iterable
from functools import cache
from uuid import UUID

from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher
from sqlalchemy import update
from zxcvbn import zxcvbn

from trainwright.contracts.api.people import PasswordChange
from trainwright_backend.auth.attempts import TooManyError, count, forget
from trainwright_backend.auth.service import (
    NO_PASSWORD,
    account_by_email,
    end_other_sessions,
    normal_email,
)
from trainwright_backend.auth.tables import Account
from trainwright_backend.core.counters import SIGN_INS_REFUSED
from trainwright_backend.core.db import Database
from trainwright_backend.core.errors import Conflict, Invalid, Unauthorized
from trainwright_backend.core.security import keyed_hash, new_token
from trainwright_backend.core.settings import Settings

MEMORY_KIB = 19 * 1024
PASSES = 2

MAX_ATTEMPTS = 20
MAX_MAILS = 3

MIN_GUESSES = 10**8
"""Guesses that a new password must take. `MAX_ATTEMPTS` allow a million a year; the hash makes each of them slow to anyone who
has the database."""

ESTIMATED_CHARACTERS = 72
"""Only so much of a password is checked, because the time of the estimate grows faster than the length."""

KNOWN_WORDS = ("trainwright", "correcthorsebatterystaple")

WRONG_CURRENT_PASSWORD = (
    "This is not your current password. Type it again. If you have forgotten it, or have none, ask the operator for a sign-in "
    "link, with which you can set a new one."
)

_WORD = re.compile(r"\w{3,}")
_hasher = PasswordHash((Argon2Hasher(time_cost=PASSES, memory_cost=MEMORY_KIB, parallelism=1),))


def hash_password(password: str, about: Iterable[str | None] = ()) -> str:
    """Hash a new password. This is slow: call it without an open session.

    Args:
        password: to hash.
        about: what others know of its owner, such as name and address.

    Raises:
        Invalid: it is easy to guess.
    """
    known = [*KNOWN_WORDS, *(word for text in about if text for word in [text, *_WORD.findall(text)])]
    estimate = zxcvbn(password[:ESTIMATED_CHARACTERS], user_inputs=known)
    if estimate["guesses"] < MIN_GUESSES:
        message = "This password is easy to guess. Choose another, such as several unrelated words."
        raise Invalid.at("password", message)
    return _hasher.hash(password)


def check_password(
    database: Database, settings: Settings, email: str, password: str, *, known_browser: bool = False
) -> Account:
    """The account with this address and password, for a sign-in. This is slow, and opens its own sessions.

    Args:
        known_browser: this account has signed in with the caller's browser before (`known_browser_token`).

    Raises:
        TooManyError: ``too_many_attempts``.
        Unauthorized: the password is wrong, or no account has this address.
    """
    try:
        account = _account_with_password(database, settings, email, password, known_browser)
        if account is None:
            raise Unauthorized("Email or password is wrong.", code="wrong_password")
    except (Unauthorized, TooManyError) as refused:
        SIGN_INS_REFUSED.labels(refused.code).inc()
        raise
    return account


def change_password(
    database: Database,
    settings: Settings,
    email: str,
    change: PasswordChange,
    *,
    kept_session: str | None = None,
    known_browser: bool = False,
) -> None:
    """Change the password of the account with this address, and sign its other browsers out. This is slow.

    API keys stay valid: they do not depend on the password.

    Args:
        kept_session: the cookie's token of the session that stays.
        known_browser: as for `check_password`. A wrong current password counts like a wrong one at sign-in.

    Raises:
        TooManyError: ``too_many_attempts``.
        Invalid: the current password is wrong, or the new one is easy to guess or the same.
        Conflict: another request has changed the password in the meantime.
    """
    account = _account_with_password(database, settings, email, change.current_password, known_browser)
    if account is None:
        raise Invalid.at("current_password", WRONG_CURRENT_PASSWORD)
    if change.password == change.current_password:
        raise Invalid.at("password", "This is your current password. Choose another one.")
    new_hash = hash_password(change.password, (account.name, account.email))
    with database.write() as session:
        unchanged = (Account.id == account.id, Account.password_hash == account.password_hash)
        if not session.change(update(Account).where(*unchanged).values(password_hash=new_hash)):
            detail = "Your password was changed by another request at the same time. Sign in again with the new one."
            raise Conflict("password_changed", detail)
        end_other_sessions(session, settings, account.id, kept_session)


def confirm_password(
    database: Database, settings: Settings, email: str, password: str, *, known_browser: bool
) -> None:
    """Require the current password of a signed-in person. This is slow.

    Raises:
        TooManyError: ``too_many_attempts``.
        Invalid: at ``current_password``.
    """
    if _account_with_password(database, settings, email, password, known_browser) is None:
        raise Invalid.at("current_password", WRONG_CURRENT_PASSWORD)


def _account_with_password(
    database: Database, settings: Settings, email: str, password: str, known_browser: bool
) -> Account | None:
    """The account; None if the address or the password is wrong, which counts as an attempt."""
    attempt = count_attempt(database, settings, email, known_browser=known_browser)
    with database.read() as session:
        account = account_by_email(session, email)
    has_password = account is not None and account.password_hash != NO_PASSWORD
    right = _hasher.verify(password, account.password_hash if account and has_password else _decoy())
    if account is None or not has_password or not right:
        return None
    with database.write() as session:
        forget(session, attempt)
    return account


def known_browser_token(settings: Settings, email: str) -> str:
    """What a browser keeps after a sign-in, as a proof for the next one."""
    return keyed_hash(settings.secret_key, "known_browser", normal_email(email))


def count_attempt(database: Database, settings: Settings, email: str, *, known_browser: bool = False) -> UUID:
    """Count an attempt before it is evaluated, so that concurrent attempts are counted too.

    Raises:
        TooManyError: ``too_many_attempts``.
    """
    purpose = "guess_in_known_browser" if known_browser else "guess"
    advice = "or use a browser in which you have signed in before, or ask the operator for a sign-in link"
    refusal = ("too_many_attempts", "Too many sign-in attempts for this address.", advice)
    return count(database, settings, purpose, normal_email(email), MAX_ATTEMPTS, refusal)


def count_mail(database: Database, settings: Settings, email: str) -> None:
    """Count a mail to an address, whether or not it has an account.

    Raises:
        TooManyError: ``too_many_mails``.
    """
    refusal = (
        "too_many_mails",
        "Too many emails to this address.",
        "and look for the last one in your spam folder",
    )
    count(database, settings, "mail", normal_email(email), MAX_MAILS, refusal)


@cache
def _decoy() -> str:
    return _hasher.hash(new_token())
