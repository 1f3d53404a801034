"""Signing in and out, and one-time links for owners, invitations and sign-in."""

from fastapi import BackgroundTasks, Request, Response

from trainwright.contracts.api.people import KeyScope, LinkInfo, MailedLink, Me, OneTimeLink, SignIn
from trainwright_backend.api.dependencies import CurrentDatabase, CurrentSettings, ReadSession, WriteSession
from trainwright_backend.auth import audit, passwords, service
from trainwright_backend.auth.policies import (
    clear_session_cookie,
    is_known_browser,
    optional_person,
    require_scope,
    session_token,
    sign_browser_in,
)
from trainwright_backend.auth.tables import Account
from trainwright_backend.core.errors import Unauthorized, problem_response, request_id_of
from trainwright_backend.core.ids import parse_id
from trainwright_backend.core.policy import GuardedRoute, SignInRoute, public
from trainwright_backend.core.resource_router import ResourceRouter
from trainwright_backend.teams import mailed_links, one_time_links

session_router = ResourceRouter(prefix="/auth", route_class=GuardedRoute)
sign_in_router = ResourceRouter(prefix="/auth", route_class=SignInRoute)

_THE_TOKEN = public("the token in the link is the right")


@sign_in_router.post(
    "/sign-in",
    tags=["accounts"],
    response_model=Me,
    dependencies=[public("the password is the proof of identity")],
)
def sign_in(
    given: SignIn,
    request: Request,
    response: Response,
    database: CurrentDatabase,
    settings: CurrentSettings,
    later: BackgroundTasks,
) -> Me | Response:
    """Sign in with email and password; sets the session cookie."""
    known = is_known_browser(request, settings, given.email)
    try:
        account = passwords.check_password(
            database, settings, given.email, given.password, known_browser=known
        )
    except Unauthorized as wrong:
        later.add_task(audit.record_failed_sign_in, database, request, given.email)
        return problem_response(wrong, request_id_of(request))
    with database.write() as session:
        token = service.open_session(session, settings, account)
        person = service.me(session, account.id)
        audit.remember_caller(request, account, audit.BROWSER)
        audit.record(session, request)
    sign_browser_in(response, settings, token, account.email)
    return person


@session_router.post(
    "/sign-out",
    status_code=204,
    tags=["accounts"],
    dependencies=[public("ends only the session that is sent")],
)
def sign_out(request: Request, response: Response, session: WriteSession, settings: CurrentSettings) -> None:
    """End this browser's session."""
    token = session_token(request, settings)
    if token is not None:
        service.close_session(session, settings, token)
    clear_session_cookie(response, settings)


@session_router.get("/link/{token}", tags=["teams"], dependencies=[_THE_TOKEN])
def get_link(token: str, request: Request, session: ReadSession, settings: CurrentSettings) -> LinkInfo:
    """What a one-time link is for. Looking does not use it up."""
    caller = optional_person(request)
    return one_time_links.link_info(session, settings, token, None if caller is None else caller.user_id)


@sign_in_router.post("/link", tags=["teams"], dependencies=[_THE_TOKEN])
def use_link(
    used: OneTimeLink,
    request: Request,
    response: Response,
    database: CurrentDatabase,
    settings: CurrentSettings,
    later: BackgroundTasks,
) -> Me:
    """Use a one-time link; sets the session cookie. A new account gets a mail to confirm its address, if mail is configured."""
    caller = optional_person(request)
    if caller is not None:
        require_scope(caller, KeyScope.MANAGE)
    signed_in = one_time_links.use_link(database, settings, used, None if caller is None else caller.user_id)
    with database.write() as session:
        account = session.get_one(Account, parse_id("user", signed_in.me.id))
        audit.remember_caller(request, account, audit.BROWSER)
        audit.record(session, request, purpose=signed_in.purpose)
    sign_browser_in(response, settings, signed_in.session_token, signed_in.me.email)
    if settings.smtp_url is not None and not signed_in.me.email_verified:
        later.add_task(mailed_links.mail_link, database, settings, signed_in.me.email)
    return signed_in.me


@sign_in_router.post(
    "/mailed-link",
    status_code=202,
    tags=["accounts"],
    dependencies=[public("only the address's owner gets the link, and the response reveals nothing")],
)
def mail_link(
    asked: MailedLink, database: CurrentDatabase, settings: CurrentSettings, later: BackgroundTasks
) -> None:
    """Mail a sign-in link to an address that has an account. The link also confirms the address, and can set a new password."""
    mailed_links.check_request(database, settings, asked.email)
    later.add_task(mailed_links.mail_link, database, settings, asked.email)


router = ResourceRouter()
router.include_router(session_router)
router.include_router(sign_in_router)
