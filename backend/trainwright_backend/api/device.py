"""Device login: a program asks for an API key, a signed-in person approves it, the program fetches the key."""

from fastapi import Request

from trainwright.contracts.api.device import (
    DeviceDecision,
    DeviceLogin,
    DevicePoll,
    DeviceRequest,
    NewDeviceLogin,
)
from trainwright.contracts.api.people import CreatedKey
from trainwright_backend.api.dependencies import (
    CurrentDatabase,
    CurrentSettings,
    RequestedAddress,
    WriteSession,
)
from trainwright_backend.auth import attempts, audit, device_logins
from trainwright_backend.auth.policies import SignedIn
from trainwright_backend.core.errors import AppError
from trainwright_backend.core.policy import GuardedRoute, public
from trainwright_backend.core.resource_router import ResourceRouter

router = ResourceRouter(tags=["accounts"], route_class=GuardedRoute)


@router.post(
    "/auth/device", status_code=201, dependencies=[public("its codes are of no use until a person approves")]
)
def start_device_login(
    new: NewDeviceLogin,
    request: Request,
    database: CurrentDatabase,
    settings: CurrentSettings,
    requested: RequestedAddress,
) -> DeviceLogin:
    """Ask for an API key for a program without a browser. A person approves it on the page `/sign-in/device` within ten minutes."""
    address = request.client.host if request.client else ""
    with database.write() as session:
        return device_logins.begin(session, settings, new, address, requested)


@router.post("/auth/device/key", dependencies=[public("the device code is the proof")])
def redeem_device_code(
    poll: DevicePoll, request: Request, database: CurrentDatabase, settings: CurrentSettings
) -> CreatedKey:
    """The key of an approved program, once. Until then 400 with the code `authorization_pending`, or `slow_down` if it is asked for
    too often; `access_denied` and `expired_token` are final."""
    with database.write() as session:
        found = device_logins.redeem(session, settings, poll.device_code)
        if not isinstance(found, AppError):
            account, key = found
            audit.remember_caller(request, account, key.prefix)
            audit.record(session, request)
            return key
    raise found


@router.get("/me/device/{user_code}")
def get_device_request(
    user_code: str, person: SignedIn, database: CurrentDatabase, settings: CurrentSettings
) -> DeviceRequest:
    """What the program that shows this code asks for."""
    attempt = device_logins.count_guess(database, settings, person.user_id)
    with database.read() as session:
        found = device_logins.show_request(session, settings, user_code)
    with database.write() as session:
        attempts.forget(session, attempt)
    return found


@router.post("/me/device", status_code=204)
def decide_device_login(
    decision: DeviceDecision,
    person: SignedIn,
    session: WriteSession,
    database: CurrentDatabase,
    settings: CurrentSettings,
) -> None:
    """Approve or refuse the program that shows this code. Approved, it gets an API key of yours, with the scope and lifetime that it
    asked for."""
    attempt = device_logins.count_guess(database, settings, person.user_id)
    device_logins.decide(session, settings, person.user_id, decision.user_code, approve=decision.approve)
    attempts.forget(session, attempt)
