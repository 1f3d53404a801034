"""People are told once about the ends of their runs, limits and nodes: in the app, and by mail if they chose it."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr
from sqlalchemy import delete, func, select, update

from tests.backend.runs.conftest import Served, served
from tests.backend.scripted_agent import Scene, patient, scene
from tests.backend.teams.smtp_server import DROP, TRY_LATER, SmtpServer, running_smtp_server
from trainwright.client import Client
from trainwright.contracts.api.notices import MAX_NOTICES, NoticeChoice, NoticeKind
from trainwright.contracts.end_codes import EndCode
from trainwright_backend.auth.tables import Account, Team
from trainwright_backend.core.db import now
from trainwright_backend.core.ids import parse_id
from trainwright_backend.core.settings import Settings
from trainwright_backend.nodes.quarantine import quarantine
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.limit_pause import pause_for
from trainwright_backend.runs.transitions import lock_run
from trainwright_backend.teams import notice_mails
from trainwright_backend.teams.notice_mails import CLAIM, NEWS, PAUSES, delete_old, mail_due
from trainwright_backend.teams.notices import MAX_MAILS_AN_HOUR, notify_members
from trainwright_backend.teams.tables import Notice

__all__ = ["scene", "served"]

ADA = "ada@acme.example"
NOTICES = "/api/v1/me/notices"


@pytest.fixture
def smtp() -> Iterator[SmtpServer]:
    with running_smtp_server() as server:
        yield server


@pytest.fixture
def settings(settings: Settings, smtp: SmtpServer) -> Settings:
    found = patient(settings).model_copy(update={"smtp_url": SecretStr(smtp.url)})
    return found.model_copy(update={"public_url": "http://train.example"})


@pytest.fixture(autouse=True)
def _begin_without_notices(scene: Scene) -> None:
    """The scene was set up with a run that was cancelled."""
    with scene.database.write() as session:
        session.execute(delete(Notice))


def notices(client: TestClient, **query: object) -> dict[str, Any]:
    response = client.get(NOTICES, params={name: str(value) for name, value in query.items()})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def choose(client: TestClient, kind: NoticeKind, *, app: bool = True, mail: bool = True) -> None:
    choice = {"kind": kind, "app": app, "mail": mail}
    response = client.put(f"{NOTICES}/settings", json={"choices": [choice]})
    assert response.status_code == 200, response.text
    assert choice in response.json()["choices"]


def mail_all(scene: Scene) -> int:
    return len(list(mail_due(scene.database, scene.site.app.state.settings)))


def fail_a_run(scene: Scene) -> str:
    work = scene.running()
    assert work.ended("out_of_memory", "it needs\n80 GiB") == "failed"
    return work.run_id


def row(scene: Scene) -> Notice:
    with scene.database.read() as session:
        return session.scalars(select(Notice).order_by(Notice.id.desc()).limit(1)).one()


def let_pass(scene: Scene, time: timedelta) -> None:
    """As if the waiting mails had been queued or tried earlier."""
    with scene.database.write() as session:
        for notice in session.scalars(select(Notice).where(Notice.next_mail.is_not(None))):
            assert notice.next_mail is not None
            notice.next_mail, notice.time = notice.next_mail - time, notice.time - time


@pytest.mark.both_databases
def test_who_submitted_a_run_is_told_of_its_end_its_failure_and_its_pause_at_a_limit(
    scene: Scene, smtp: SmtpServer
) -> None:
    other = scene.site.member("editor")
    failed = fail_a_run(scene)
    cancelled = scene.submit()
    scene.cancel(cancelled)
    paused = scene.running()
    with scene.database.write() as session:
        run = lock_run(session, parse_id("run", paused.run_id))
        assert run is not None
        pause_for(session, run, EndCode.QUOTA_HOURS, "your team used 2 of 2 GPU-hours")
    assert paused.order("running") == "save"
    assert paused.ended("saved", step=3) == "paused"
    found = notices(scene.site.admin)
    assert [(one["kind"], one["path"]) for one in found["items"]] == [
        ("run.paused_by_limit", f"/acme/runs/{paused.run_id}"),
        ("run.ended", f"/acme/runs/{cancelled}"),
        ("run.failed", f"/acme/runs/{failed}"),
    ]
    assert found["unread"] == 3 and found["items"][2]["sentence"].startswith("pilot failed: ")
    assert "GPU-hours" in found["items"][0]["sentence"]
    assert notices(other)["items"] == [], "it is not their run"
    assert mail_all(scene) == 0 and smtp.mails == [], "nobody chose mail"


def test_the_notice_of_a_done_run_says_its_loss(scene: Scene) -> None:
    assert scene.start().finish(10) == "succeeded"
    assert [one["sentence"] for one in notices(scene.site.admin)["items"]] == ["pilot is done: loss 0.100."]


def test_the_notice_of_a_cancelled_run_says_by_whom(scene: Scene) -> None:
    work = scene.running()
    scene.cancel(work.run_id)
    assert work.ended("stopped") == "cancelled"
    scene.cancel(scene.submit())
    assert [one["sentence"] for one in notices(scene.site.admin)["items"]] == [
        "pilot was cancelled by Ada."
    ] * 2


def test_a_pause_by_a_person_is_no_news(scene: Scene) -> None:
    run_id = scene.submit()
    assert scene.site.admin.post(f"{scene.runs}/{run_id}/pause").status_code == 202
    assert notices(scene.site.admin)["items"] == []


def test_a_mail_is_plain_text_with_a_link_and_is_sent_once(scene: Scene, smtp: SmtpServer) -> None:
    choose(scene.site.admin, NoticeKind.RUN_FAILED)
    run_id = fail_a_run(scene)
    assert mail_all(scene) == 1
    [mail] = smtp.mails
    assert (mail["To"], mail["From"], mail.get_content_type()) == (
        ADA,
        "trainwright@train.example",
        "text/plain",
    )
    assert mail["Subject"].startswith("Trainwright: pilot failed: ") and mail["Message-ID"] is not None
    assert f"http://train.example/acme/runs/{run_id}" in mail.get_content().splitlines()
    let_pass(scene, CLAIM)
    assert mail_all(scene) == 0 and len(smtp.mails) == 1
    assert row(scene).mailed is not None


def test_a_kind_can_be_mailed_without_being_listed(scene: Scene, smtp: SmtpServer) -> None:
    choose(scene.site.admin, NoticeKind.RUN_FAILED, app=False)
    fail_a_run(scene)
    assert mail_all(scene) == 1 and len(smtp.mails) == 1
    assert notices(scene.site.admin) == {"items": [], "next_cursor": None, "unread": 0}
    choose(scene.site.admin, NoticeKind.RUN_FAILED, app=False, mail=False)
    fail_a_run(scene)
    assert mail_all(scene) == 0 and len(smtp.mails) == 1


def test_a_refused_mail_is_tried_again_with_back_off_and_then_given_up(
    scene: Scene, smtp: SmtpServer
) -> None:
    choose(scene.site.admin, NoticeKind.RUN_FAILED)
    fail_a_run(scene)
    smtp.next = [TRY_LATER] * (len(PAUSES) + 1)
    for pause in PAUSES:
        before = now()
        assert mail_all(scene) == 1
        next_mail = row(scene).next_mail
        assert next_mail is not None and next_mail >= before + pause and "try again" in row(scene).mail_error
        assert mail_all(scene) == 0, "it is not due yet"
        with scene.database.write() as session:
            session.execute(update(Notice).values(next_mail=now()))
    assert mail_all(scene) == 1
    assert row(scene).next_mail is None and smtp.mails == [] and smtp.next == []


def test_a_refused_mail_arrives_once_the_server_accepts_it(scene: Scene, smtp: SmtpServer) -> None:
    choose(scene.site.admin, NoticeKind.RUN_FAILED)
    fail_a_run(scene)
    smtp.next = [TRY_LATER]
    assert mail_all(scene) == 1 and smtp.mails == []
    let_pass(scene, PAUSES[0])
    assert mail_all(scene) == 1 and len(smtp.mails) == 1
    assert mail_all(scene) == 0


def test_an_unreachable_server_costs_no_mail(
    scene: Scene, smtp: SmtpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(scene.site.admin, NoticeKind.RUN_FAILED)
    fail_a_run(scene)
    away = scene.site.app.state.settings.model_copy(update={"smtp_url": SecretStr("smtp://127.0.0.1:1")})
    assert len(list(mail_due(scene.database, away))) == 1 and row(scene).next_mail is not None
    let_pass(scene, PAUSES[0])
    assert mail_all(scene) == 1 and len(smtp.mails) == 1


def test_a_mail_that_may_have_arrived_is_not_sent_again(scene: Scene, smtp: SmtpServer) -> None:
    choose(scene.site.admin, NoticeKind.RUN_FAILED)
    fail_a_run(scene)
    smtp.next = [DROP]
    assert mail_all(scene) == 1 and len(smtp.mails) == 1
    assert row(scene).mailed is None and "may have arrived" in row(scene).mail_error
    let_pass(scene, CLAIM)
    assert mail_all(scene) == 0 and len(smtp.mails) == 1
    assert len(notices(scene.site.admin)["items"]) == 1, "it is still listed"


def test_a_server_that_dies_before_handing_a_mail_over_sends_it_after_its_restart(
    scene: Scene, smtp: SmtpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(scene.site.admin, NoticeKind.RUN_FAILED)
    fail_a_run(scene)

    class Killed(BaseException):
        pass

    def dies(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(notice_mails, "deliver", dies)
        mail_all(scene)
    assert mail_all(scene) == 0, "its claim still holds"
    let_pass(scene, CLAIM)
    assert mail_all(scene) == 1 and len(smtp.mails) == 1


@pytest.mark.slow(target="databases")
@pytest.mark.both_databases
def test_two_processes_mail_a_notice_once(scene: Scene, smtp: SmtpServer) -> None:
    choose(scene.site.admin, NoticeKind.RUN_FAILED)
    for _ in range(4):
        fail_a_run(scene)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: mail_all(scene), range(2)))
    ids = [mail["Message-ID"] for mail in smtp.mails]
    assert len(ids) == len(set(ids)) == 4


def test_mail_goes_only_to_verified_addresses(scene: Scene, smtp: SmtpServer) -> None:
    def verify(is_verified: bool) -> None:
        with scene.database.write() as session:
            session.execute(update(Account).where(Account.email == ADA).values(email_verified=is_verified))

    verify(False)
    choice = {"kind": "run.failed", "app": True, "mail": True}
    response = scene.site.admin.put(f"{NOTICES}/settings", json={"choices": [choice]})
    assert (response.status_code, response.json()["code"]) == (409, "address_not_verified")
    assert ADA in response.json()["detail"] and "sign-in link" in response.json()["detail"]
    verify(True)
    choose(scene.site.admin, NoticeKind.RUN_FAILED)
    fail_a_run(scene)
    verify(False)  # for example because the address was changed
    mail_all(scene)
    assert smtp.mails == [] and row(scene).next_mail is None


def test_an_installation_without_mail_says_so(scene: Scene) -> None:
    scene.site.app.state.settings = scene.site.app.state.settings.model_copy(update={"smtp_url": None})
    shown = scene.site.admin.get(f"{NOTICES}/settings").json()
    assert "TRAINWRIGHT_SMTP_URL" in shown["mail_problem"]
    choice = {"kind": "run.failed", "app": True, "mail": True}
    response = scene.site.admin.put(f"{NOTICES}/settings", json={"choices": [choice]})
    assert (response.status_code, response.json()["code"]) == (409, "no_mail")


def test_an_unknown_recipient_is_given_up_at_once(scene: Scene, smtp: SmtpServer) -> None:
    choose(scene.site.admin, NoticeKind.RUN_FAILED)
    fail_a_run(scene)
    smtp.unknown = {ADA}
    assert mail_all(scene) == 1
    assert row(scene).next_mail is None and "no such person" in row(scene).mail_error


def test_who_left_the_team_sees_and_gets_nothing_of_it(scene: Scene, smtp: SmtpServer) -> None:
    owner = scene.site.member("owner")  # so that the first owner can leave
    choose(scene.site.admin, NoticeKind.RUN_FAILED)
    fail_a_run(scene)
    assert notices(scene.site.admin)["unread"] == 1
    assert scene.site.admin.delete(f"{scene.site.path}/members/me").status_code == 204
    assert notices(scene.site.admin) == {"items": [], "next_cursor": None, "unread": 0}
    mail_all(scene)
    assert smtp.mails == []
    assert owner.get(NOTICES).json()["items"] == []


def test_members_who_chose_it_are_told_of_limits_at_80_and_100_percent(
    scene: Scene, smtp: SmtpServer
) -> None:
    viewer, editor = scene.site.member("viewer"), scene.site.member("editor")
    choose(viewer, NoticeKind.LIMIT_REACHED, mail=False)
    limits = {"cpu_hours_per_month": 0}
    assert scene.site.admin.put(f"{scene.site.path}/limits", json=limits).status_code == 200
    for _ in range(2):
        scene.control.sweep()
    sentences = [one["sentence"] for one in notices(viewer)["items"]]
    assert ["80 %" in sentences[1], "100 %" in sentences[0], len(sentences)] == [True, True, 2]
    assert notices(editor)["items"] == []


def test_a_member_s_limit_concerns_that_member(scene: Scene) -> None:
    owner, editor = scene.site.member("owner"), scene.site.member("editor")
    for person in (owner, editor):
        choose(person, NoticeKind.LIMIT_REACHED, mail=False)
    user = editor.get("/api/v1/me").json()["id"]
    response = owner.put(f"{scene.site.path}/limits/members/{user}", json={"cpu_hours_per_month": 0})
    assert response.status_code == 200, response.text
    scene.control.sweep()
    assert len(notices(editor)["items"]) == 2 and notices(owner)["items"] == []


def test_site_admins_and_teams_on_a_quarantined_node_are_told_once(scene: Scene) -> None:
    viewer, stranger = scene.site.member("viewer"), scene.site.other_team("globex")
    for person in (scene.site.admin, viewer, stranger):
        choose(person, NoticeKind.NODE_QUARANTINED, mail=False)
    scene.running().ended("out_of_memory")
    with scene.database.write() as session:
        quarantine(session, session.scalars(select(Node)).one(), "the run zebra of another team hung")
    [to_admin] = [one for one in notices(scene.site.admin)["items"] if one["kind"] == "node.quarantined"]
    [to_viewer] = notices(viewer)["items"]
    assert "zebra" in to_admin["sentence"] and to_admin["path"].endswith("/nodes")
    assert "node-a" in to_viewer["sentence"] and "zebra" not in to_viewer["sentence"]
    assert notices(stranger)["items"] == []


def test_notices_are_marked_as_read_by_their_owner_only(scene: Scene) -> None:
    other = scene.site.member("editor")
    for _ in range(3):
        fail_a_run(scene)
    first = notices(scene.site.admin, limit=2)
    rest = notices(scene.site.admin, limit=2, cursor=first["next_cursor"])
    ids = [one["id"] for one in (*first["items"], *rest["items"])]
    assert len(set(ids)) == 3 and rest["next_cursor"] is None
    assert other.post(f"{NOTICES}/read", json={"ids": ids}).status_code == 204
    assert notices(scene.site.admin)["unread"] == 3
    assert scene.site.admin.post(f"{NOTICES}/read", json={"ids": ids[:1]}).status_code == 204
    assert [one["id"] for one in notices(scene.site.admin, unread="true")["items"]] == ids[1:]
    assert scene.site.admin.post(f"{NOTICES}/read", json={}).status_code == 204
    assert notices(scene.site.admin)["unread"] == 0
    assert all(one["read"] for one in notices(scene.site.admin)["items"])


def add_many(scene: Scene, count: int) -> None:
    with scene.database.write() as session:
        team_id = session.scalars(select(Team.id).where(Team.slug == scene.site.team)).one()
        user_id = session.scalars(select(Account.id).where(Account.email == ADA)).one()
        for number in range(count):
            sentence = f"run {number} failed"
            notify_members(session, NoticeKind.RUN_FAILED, team_id, sentence, "runs", only=user_id)


def test_the_newest_notices_of_a_person_are_kept(scene: Scene) -> None:
    add_many(scene, MAX_NOTICES + 5)
    delete_old(scene.database)
    with scene.database.read() as session:
        assert session.scalar(select(func.count()).select_from(Notice)) == MAX_NOTICES
    newest = notices(scene.site.admin, limit=1)["items"][0]
    assert newest["sentence"] == f"run {MAX_NOTICES + 4} failed"


def test_a_flood_is_not_mailed(scene: Scene, smtp: SmtpServer) -> None:
    choose(scene.site.admin, NoticeKind.RUN_FAILED)
    add_many(scene, MAX_MAILS_AN_HOUR + 10)
    assert mail_all(scene) == MAX_MAILS_AN_HOUR == len(smtp.mails)
    assert notices(scene.site.admin)["unread"] == MAX_MAILS_AN_HOUR + 10


def test_old_news_is_not_mailed(scene: Scene, smtp: SmtpServer) -> None:
    choose(scene.site.admin, NoticeKind.RUN_FAILED)
    fail_a_run(scene)
    let_pass(scene, NEWS)
    delete_old(scene.database)
    assert mail_all(scene) == 0 and smtp.mails == []


def test_client_and_commands_show_mark_and_choose(scene: Scene, served: Served) -> None:
    key = scene.site.admin.headers["Authorization"].removeprefix("Bearer ")
    fail_a_run(scene)
    with Client(served.url, key=key) as client:
        [notice] = client.notices().items
        chosen = client.choose_notices(NoticeChoice(kind=NoticeKind.LIMIT_REACHED, app=True, mail=True))
        assert client.notice_settings() == chosen and chosen.address == ADA
    assert notice.id in served.command(key, "notices list --unread").output
    shown = served.command(key, "notices choose limit.reached --no-mail")
    assert shown.exit_code == 0 and "limit.reached" in shown.output
    settings = scene.site.admin.get(f"{NOTICES}/settings").json()["choices"]
    assert {"kind": "limit.reached", "app": True, "mail": False} in settings
    assert served.command(key, f"notices read {notice.id}").exit_code == 0
    assert served.command(key, "notices list --unread").output == "No notices.\n"
    assert json.loads(served.command(key, "notices list --json").output)["unread"] == 0
    assert "run.ended" in served.command(key, "notices settings").output
