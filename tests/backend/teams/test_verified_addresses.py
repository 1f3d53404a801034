"""Creating an account with another person's address first does not give access to what that person is invited to."""

import ssl
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr, ValidationError

from tests.backend.conftest import PASSWORD, SECRET, Site
from tests.backend.teams.mail_server import Mailbox, running_mailbox
from trainwright_backend.core.mail import send_mail
from trainwright_backend.core.settings import Settings
from trainwright_backend.teams import mailed_links, one_time_links

BOB = "bob@acme.example"
OTHER_PASSWORD = "seven quiet otters nap"


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with running_mailbox() as running:
        yield running


@pytest.fixture
def settings(settings: Settings, mailbox: Mailbox) -> Settings:
    """An installation that sends mail."""
    return settings.model_copy(update={"smtp_url": SecretStr(mailbox.url)})


def invitation(owner: TestClient, team: str, email: str = BOB) -> str:
    """The token of an invitation."""
    response = owner.post(f"/api/v1/teams/{team}/invitations", json={"email": email, "role": "editor"})
    assert response.status_code == 201, response.text
    return str(response.json()["link"]).rsplit("/", 1)[-1]


def use(client: TestClient, token: str, **fields: str) -> tuple[int, str]:
    response = client.post("/api/v1/auth/link", json={"token": token, **fields})
    return response.status_code, response.json().get("code", "")


def account_of_bob(site: Site) -> TestClient:
    """A browser that created Bob's account from an invitation by an owner who is not a site admin."""
    browser = site.anonymous()
    token = invitation(site.other_team("globex"), "globex")
    assert use(browser, token, name="Bob", password=PASSWORD) == (200, "")
    assert browser.get("/api/v1/me").json()["email_verified"] is False
    return browser


def is_verified(client: TestClient) -> bool:
    response = client.get("/api/v1/me")
    assert response.status_code == 200, response.text
    return bool(response.json()["email_verified"])


def test_an_account_that_someone_else_created_cannot_join_another_team(site: Site, mailbox: Mailbox) -> None:
    thief = account_of_bob(site)
    key = site.with_key(thief)
    token = invitation(site.admin, "acme")
    assert use(thief, token) == (403, "address_not_verified")

    [mailed] = mailbox.links_to(BOB)
    bob = site.anonymous()
    assert bob.get(f"/api/v1/auth/link/{mailed}").json()["needs_password"]
    assert use(bob, mailed) == (422, "invalid"), "he would share the account with its creator"
    assert use(bob, mailed, password=OTHER_PASSWORD) == (200, "")
    assert thief.get("/api/v1/me").status_code == key.get("/api/v1/me").status_code == 401
    assert is_verified(bob) and use(bob, token) == (200, "")
    assert [team["slug"] for team in bob.get("/api/v1/me").json()["teams"]] == ["acme", "globex"]


def test_a_user_who_created_the_account_confirms_the_address_and_keeps_everything(
    site: Site, mailbox: Mailbox
) -> None:
    bob = account_of_bob(site)
    key = site.with_key(bob)
    [mailed] = mailbox.links_to(BOB)
    assert not bob.get(f"/api/v1/auth/link/{mailed}").json()["needs_password"]
    assert use(bob, mailed) == (200, "")
    assert is_verified(bob) and is_verified(key)
    assert use(bob, invitation(site.admin, "acme")) == (200, "")


def test_the_operators_link_also_confirms_an_address(site: Site) -> None:
    bob = account_of_bob(site)
    with site.app.state.database.write() as session:
        link = one_time_links.sign_in_link(session, site.app.state.settings, BOB)
    stranger = site.anonymous()
    assert use(stranger, link.url.rsplit("/", 1)[-1]) == (422, "invalid"), "and the link stays valid"
    assert use(bob, link.url.rsplit("/", 1)[-1]) == (200, "") and is_verified(bob)


def test_an_address_invited_by_a_site_admin_counts_as_confirmed(site: Site, mailbox: Mailbox) -> None:
    assert is_verified(site.admin) and is_verified(site.member("editor", email=BOB))
    assert mailbox.received == []


def test_a_request_for_a_link_reveals_nothing_and_is_limited(site: Site, mailbox: Mailbox) -> None:
    def ask(email: str) -> tuple[int, bytes]:
        response = site.anonymous().post("/api/v1/auth/mailed-link", json={"email": email})
        return response.status_code, response.content

    known, unknown = "Ada@acme.example", "nobody@acme.example"
    assert [ask(known) for _ in range(3)] == [ask(unknown) for _ in range(3)] == [(202, b"null")] * 3
    assert ask(known)[0] == ask(unknown)[0] == 429
    assert [mail["To"] for mail in mailbox.received] == ["ada@acme.example"] * 3
    browser = site.anonymous()
    token = mailbox.links_to("ada@acme.example")[-1]
    assert use(browser, token) == (200, "") and is_verified(browser)


def test_a_mail_server_that_is_down_or_busy_does_not_fail_the_request(
    site: Site, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("down")

    body = {"email": "ada@acme.example"}
    with monkeypatch.context() as busy:
        busy.setattr(mailed_links.MAILS_AT_ONCE, "acquire", lambda blocking: False)
        assert site.anonymous().post("/api/v1/auth/mailed-link", json=body).status_code == 202
    with monkeypatch.context() as down:
        down.setattr("smtplib.SMTP.send_message", fail)
        assert site.anonymous().post("/api/v1/auth/mailed-link", json=body).status_code == 202
    assert mailbox.received == []
    assert site.anonymous().get("/api/v1/health").json()["sends_mail"] is True
    assert site.anonymous().post("/api/v1/auth/mailed-link", json=body).status_code == 202
    assert len(mailbox.links_to("ada@acme.example")) == 1, "and then it works again"


def test_without_a_mail_server_the_refusal_names_the_operator(site: Site) -> None:
    state = site.app.state
    state.settings = state.settings.model_copy(update={"smtp_url": None})
    assert site.anonymous().get("/api/v1/health").json()["sends_mail"] is False
    response = site.anonymous().post("/api/v1/auth/mailed-link", json={"email": BOB})
    assert (response.status_code, response.json()["code"]) == (409, "no_mail")
    assert "trainwright-server link sign-in" in response.json()["detail"]
    bob = account_of_bob(site)
    assert use(bob, invitation(site.admin, "acme")) == (403, "address_not_verified")


def test_nothing_is_sent_unencrypted_to_a_server_that_offers_tls(
    settings: Settings, mailbox: Mailbox
) -> None:
    url = mailbox.url.replace("://", "://ada:secret@")
    settings = settings.model_copy(update={"smtp_url": SecretStr(url)})
    mailbox.offers_tls = True
    assert not send_mail(settings, BOB, "subject", "text"), "the server refuses the TLS that it offered"
    assert "STARTTLS" in mailbox.verbs
    assert not {"AUTH", "MAIL", "DATA"} & set(mailbox.verbs)
    assert mailbox.received == []


@pytest.mark.parametrize(("peer", "is_sent"), [("127.0.0.1", True), ("192.0.2.7", False)])
def test_a_password_is_sent_without_tls_only_to_this_machine(
    settings: Settings, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch, peer: str, is_sent: bool
) -> None:
    url = mailbox.url.replace("://", "://ada:secret@")
    settings = settings.model_copy(update={"smtp_url": SecretStr(url)})
    mailbox.offers_password = True
    monkeypatch.setattr("socket.socket.getpeername", lambda _: (peer, 25))
    assert send_mail(settings, BOB, "subject", "text") is is_sent
    assert ("AUTH" in mailbox.verbs) is is_sent and len(mailbox.received) == is_sent


def test_certificates_of_mail_servers_are_verified(
    settings: Settings, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts: list[ssl.SSLContext | None] = []

    def connect(*_: object, context: ssl.SSLContext | None = None, **__: object) -> None:
        contexts.append(context)
        raise OSError("not now")

    monkeypatch.setattr("smtplib.SMTP_SSL.__init__", connect)
    monkeypatch.setattr("smtplib.SMTP.starttls", connect)
    mailbox.offers_tls = True
    for url in ("smtps://mail.example:465", mailbox.url):
        settings = settings.model_copy(update={"smtp_url": SecretStr(url)})
        assert not send_mail(settings, BOB, "subject", "text")
    assert [context is not None and context.verify_mode for context in contexts] == [ssl.CERT_REQUIRED] * 2


@pytest.mark.parametrize("url", ["mail.example.org", "http://mail.example.org", "smtp://:25"])
def test_an_invalid_mail_server_address_is_refused_at_startup(url: str) -> None:
    with pytest.raises(ValidationError, match="write smtp://host:587"):
        Settings(secret_key=SECRET, smtp_url=SecretStr(url))
