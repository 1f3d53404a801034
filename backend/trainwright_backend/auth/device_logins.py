"""Device login (RFC 8628): a program gets an API key once a signed-in person approves it.

The program has a device code of 192 random bits, which alone gets the key, once. The person has a user code of 34 bits, short enough to
compare and type; it gets nothing, is of use to people who are signed in only, and their guesses are counted. Both are
stored as keyed hashes, and expire after ten minutes.
"""

import secrets
from datetime import timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, delete, func, select, update

from trainwright.contracts.api.device import DeviceLogin as DeviceLoginOut
from trainwright.contracts.api.device import DeviceRequest, NewDeviceLogin
from trainwright.contracts.api.people import CreatedKey, KeyScope, NewKey
from trainwright_backend.auth.attempts import count
from trainwright_backend.auth.keys import create_key
from trainwright_backend.auth.tables import Account, DeviceLogin
from trainwright_backend.core.db import Database, Read, Write, now
from trainwright_backend.core.errors import AppError, Busy, NotFound
from trainwright_backend.core.public_address import reachable_address
from trainwright_backend.core.security import keyed_hash, new_token
from trainwright_backend.core.settings import Settings

LIFETIME = timedelta(minutes=10)
INTERVAL_SECONDS = 5
"""Seconds between two polls. A program that polls faster must wait this much longer."""
LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
"""Letters of user codes: no vowels, so codes spell nothing, and no digits, which resemble letters."""
CODE_LETTERS = 8
MAX_GUESSES = 20
MAX_WAITING = 1_000
MAX_WAITING_PER_ADDRESS = 20

PENDING = ("authorization_pending", "Nobody has approved this program yet. Ask again after the interval.")
TOO_FAST = (
    "slow_down",
    f"You ask too often. Wait {INTERVAL_SECONDS} s longer between two requests from now on.",
)
REFUSED = ("access_denied", "The request was refused on the page. Nothing was created.")
EXPIRED = ("expired_token", "This code was used, or has expired after ten minutes. Start again.")


def begin(
    session: Write, settings: Settings, new: NewDeviceLogin, address: str, requested: str
) -> DeviceLoginOut:
    """Store a program's request, and create its codes.

    Args:
        address: of the program.
        requested: the address by which the request reached the server.

    Raises:
        AppError: 429, too many requests of this address wait for approval.
        Busy: too many requests wait.
    """
    session.execute(delete(DeviceLogin).where(DeviceLogin.expires <= now()))
    _require_room(session, address)
    device_code, user_code = new_token(), _new_user_code()
    session.add(
        DeviceLogin(
            device_hash=_hash(settings, "device_code", device_code),
            user_hash=_hash(settings, "user_code", _normal(user_code)),
            client=new.client,
            address=address[:64],
            scope=new.scope,
            lifetime_days=new.lifetime_days,
            expires=now() + LIFETIME,
            interval_seconds=INTERVAL_SECONDS,
        )
    )
    page = f"{reachable_address(settings, requested)}/sign-in/device"
    return DeviceLoginOut(
        device_code=device_code,
        user_code=user_code,
        verification_uri=page,
        verification_uri_complete=f"{page}?user_code={user_code}",
        expires_in=int(LIFETIME.total_seconds()),
        interval=INTERVAL_SECONDS,
    )


def count_guess(database: Database, settings: Settings, user_id: UUID) -> UUID:
    """Count a person's attempt to name a user code, before it is looked up.

    Raises:
        TooManyError: ``too_many_codes``.
    """
    refusal = ("too_many_codes", "You typed too many wrong codes.", "and start again in the program")
    return count(database, settings, "user_code", str(user_id), MAX_GUESSES, refusal)


def show_request(session: Read, settings: Settings, user_code: str) -> DeviceRequest:
    """What the program with this code asks for.

    Raises:
        NotFound: no program waits with this code.
    """
    row = session.scalar(select(DeviceLogin).where(*_waits_with(settings, user_code)))
    if row is None:
        raise _unknown_code()
    return DeviceRequest(
        user_code=_with_hyphen(_normal(user_code)),
        client=row.client,
        address=row.address,
        scope=KeyScope(row.scope),
        lifetime_days=row.lifetime_days,
        created=row.created,
        expires=row.expires,
    )


def decide(session: Write, settings: Settings, user_id: UUID, user_code: str, *, approve: bool) -> None:
    """Approve or refuse the program with this code, which is of no use afterwards.

    Raises:
        NotFound: no program waits with this code.
    """
    decision = {"user_id": user_id} if approve else {"refused": True}
    if not session.change(update(DeviceLogin).where(*_waits_with(settings, user_code)).values(decision)):
        raise _unknown_code()


def redeem(session: Write, settings: Settings, device_code: str) -> tuple[Account, CreatedKey] | AppError:
    """The key of an approved program and its owner, once; otherwise why there is none, to be raised after the commit."""
    hashed = _hash(settings, "device_code", device_code)
    row = session.scalar(select(DeviceLogin).where(DeviceLogin.device_hash == hashed).with_for_update())
    if row is None or row.expires <= now():
        return _refusal(EXPIRED)
    if not row.refused and row.user_id is None:
        return _refusal(PENDING if _is_patient(row) else TOO_FAST)
    session.delete(row)
    if row.user_id is None:
        return _refusal(REFUSED)
    new = NewKey(name=row.client, scope=KeyScope(row.scope), lifetime_days=row.lifetime_days)
    return session.get_one(Account, row.user_id), create_key(session, settings, row.user_id, new)


def _is_patient(row: DeviceLogin) -> bool:
    """Whether the program waited since its last poll. This poll is its last one now."""
    polled, row.polled = row.polled, now()
    if polled is None or row.polled - polled >= timedelta(seconds=row.interval_seconds):
        return True
    row.interval_seconds += INTERVAL_SECONDS
    return False


def _waits_with(settings: Settings, user_code: str) -> tuple[ColumnElement[bool], ...]:
    return (
        DeviceLogin.user_hash == _hash(settings, "user_code", _normal(user_code)),
        DeviceLogin.user_id.is_(None),
        DeviceLogin.refused.is_(False),
        DeviceLogin.expires > now(),
    )


def _unknown_code() -> NotFound:
    detail = "No program waits with this code. Compare it with the one that the program shows; after ten minutes, start again there."
    return NotFound(detail, code="unknown_code")


def _require_room(session: Write, address: str) -> None:
    everyone, own = session.execute(
        select(func.count(), func.count().filter(DeviceLogin.address == address[:64])).select_from(
            DeviceLogin
        )
    ).one()
    if own >= MAX_WAITING_PER_ADDRESS:
        seconds = int(LIFETIME.total_seconds())
        detail = f"{own} programs at your address wait for approval. Approve or refuse one, or try again in ten minutes."
        raise AppError("too_many_requests", 429, detail, headers={"Retry-After": str(seconds)})
    if everyone >= MAX_WAITING:
        detail = "Too many programs wait for approval. Try again in a minute, or create a key on the Settings page."
        raise Busy("server_busy", detail, retry_after_seconds=60)


def _new_user_code() -> str:
    return _with_hyphen("".join(secrets.choice(LETTERS) for _ in range(CODE_LETTERS)))


def _with_hyphen(letters: str) -> str:
    return f"{letters[: CODE_LETTERS // 2]}-{letters[CODE_LETTERS // 2 :]}"


def _normal(user_code: str) -> str:
    """The code as people may type it: in small letters, and without the hyphen."""
    return "".join(letter for letter in user_code.upper() if letter in LETTERS)


def _hash(settings: Settings, purpose: str, code: str) -> str:
    return keyed_hash(settings.secret_key, purpose, code)


def _refusal(code_and_detail: tuple[str, str]) -> AppError:
    code, detail = code_and_detail
    return AppError(code, 400, detail, extensions={"error": code})
