"""The audit log records every change by a person, cannot be edited, and reveals tampering."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import iter_route_contexts
from sqlalchemy import select, text
from sqlalchemy.exc import DatabaseError

from tests.backend.conftest import PASSWORD, Site
from trainwright_backend.api.dependencies import deletion_session, record_change, write_session
from trainwright_backend.auth import audit
from trainwright_backend.auth.tables import AuditHead
from trainwright_backend.core.policy import AgentRoute

ADA = "ada@acme.example"

NOT_RECORDED = {
    "POST /api/v1/auth/mailed-link",
    "POST /api/v1/auth/oidc/start",
    "POST /api/v1/auth/device",
    "PUT /api/v1/blobs/{signed}",
    "POST /api/v1/teams/{team}/uploads",
    "POST /api/v1/teams/{team}/uploads/preview",
    "PATCH /api/v1/teams/{team}/uploads/{upload}",
    "POST /api/v1/teams/{team}/uploads/{upload}",
    "DELETE /api/v1/teams/{team}/uploads/{upload}",
    "POST /api/v1/teams/{team}/datasets/count",
    "POST /api/v1/teams/{team}/runs/validate",
    "POST /api/v1/teams/{team}/runs/plan",
    "POST /api/v1/teams/{team}/runs/what-if",
    "POST /api/v1/teams/{team}/runs/estimate",
}
"""Routes that change nothing lasting, or only files that no dataset uses."""

RECORDED_BY_THEMSELVES = {
    "POST /api/v1/auth/sign-in",
    "POST /api/v1/auth/link",
    "POST /api/v1/auth/oidc/finish",
    "POST /api/v1/auth/device/key",
    "POST /api/v1/me/delete",
}


def entries(site: Site, words: str = "") -> list[dict[str, Any]]:
    response = site.admin.get(f"{site.path}/audit", params={"q": words})
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["items"]
    return found


def broken(site: Site) -> list[int]:
    state = site.app.state
    with state.database.read() as session:
        return [item.sequence for item in audit.verify(session, state.settings.secret_key)]


def without_protection(site: Site, statement: str) -> None:
    """Change the table with the rights of someone who can change the entire database."""
    drops = ["DROP TRIGGER audit_entry_no_update", "DROP TRIGGER audit_entry_no_delete"]
    if not site.app.state.database.is_sqlite:
        drops = ["DROP TRIGGER audit_entry_append_only ON audit_entry"]
    with site.app.state.database.write() as session:
        for part in (*drops, statement):
            session.execute(text(part))


@pytest.mark.both_databases
def test_an_entry_says_who_did_what_to_what_and_from_where(site: Site) -> None:
    site.member("editor")
    member = site.admin.get(f"{site.path}/members").json()[1]["id"]
    assert site.admin.patch(f"{site.path}/members/{member}", json={"role": "viewer"}).status_code == 200
    assert site.admin.patch(f"{site.path}/members/{member}", json={"role": "king"}).status_code == 422
    [first] = entries(site, "change_role")
    assert (first["name"], first["address"], first["path"]) == (
        "Ada",
        "testclient",
        f"{site.path}/members/{member}",
    )
    assert json.loads(first["details"]) == {"role": "viewer"} and first["via"].startswith("tw_")
    assert entries(site, "change_role editor") == []
    prefix = first["via"].removeprefix("tw_")
    assert entries(site, f"Ada {prefix}") == entries(site, "ADA") and entries(site, "Ada browser") == []
    exported = site.admin.get(f"{site.path}/audit/export").text.splitlines()
    current = {"names": {}, "key_name": None, "sentence": []}
    without_names = [entry | current for entry in entries(site)[::-1]]
    assert [json.loads(line) | current for line in exported] == without_names
    numbers = [item["sequence"] for item in entries(site)]
    assert numbers == list(range(len(numbers), 0, -1)) and broken(site) == []


@pytest.mark.both_databases
def test_a_deletion_names_what_is_gone(site: Site) -> None:
    site.member("editor")
    person = site.admin.get(f"{site.path}/members").json()[1]
    created: dict[str, tuple[dict[str, Any], str]] = {
        "service-accounts": ({"name": "Über Nacht", "role": "editor"}, "Über Nacht"),
        "recipes": ({"name": "small", "spec": {}}, "small"),
        "invitations": ({"email": "grace@acme.example"}, "grace@acme.example"),
        "views": ({"name": "mine", "view": {}}, "mine"),
        "webhooks": ({"url": "https://hooks.example:8443/secret?x"}, "https://hooks.example:8443"),
    }
    keys = "/api/v1/me/keys"
    deleted = {f"{site.path}/members/{person['id']}": person["name"]}
    for path, (body, name) in {
        keys: ({"name": "laptop", "scope": "read"}, "laptop"),
        **{f"{site.path}/{collection}": made for collection, made in created.items()},
    }.items():
        response = site.admin.post(path, json=body)
        assert response.status_code in (200, 201), response.text
        deleted[f"{path}/{response.json()['id']}"] = name
    for path in deleted:
        assert site.admin.delete(path).status_code == 204
    found = [*entries(site), *site.admin.get("/api/v1/audit").json()["items"]]
    details = {entry["path"]: entry["details"] for entry in found if entry["path"] in deleted}
    assert details == {path: json.dumps({"name": name}) for path, name in deleted.items()}
    assert [entry["action"] for entry in entries(site, "small")] == ["delete_recipe", "save_recipe"]
    accounts = ["delete_service_account", "create_service_account"]
    assert [entry["action"] for entry in entries(site, "über nacht")] == accounts


def test_a_key_that_deletes_itself_is_named(site: Site) -> None:
    assert site.with_key(site.admin).delete("/api/v1/me/keys/current").status_code == 204
    [first, *_] = site.admin.get("/api/v1/audit").json()["items"]
    assert (first["action"], json.loads(first["details"])) == ("delete_used_key", {"name": "test"})


def test_passwords_and_tokens_are_not_in_the_log(site: Site) -> None:
    browser = site.anonymous()
    me = {"email": ADA, "password": PASSWORD}
    assert browser.post("/api/v1/auth/sign-in", json=me).status_code == 200
    change = {"current_password": PASSWORD, "password": "another long enough password"}
    assert browser.post("/api/v1/me/password", json=change).status_code == 204
    found = site.admin.get("/api/v1/audit").json()["items"]
    actions = [item["action"] for item in found]
    assert actions[:2] == ["change_password", "sign_in"]
    assert found[0]["via"] == "browser"
    shown = json.dumps(found)
    assert PASSWORD not in shown and "another long" not in shown and ADA in shown


@pytest.mark.both_databases
def test_a_failed_sign_in_of_an_account_is_in_the_log_of_the_installation(site: Site) -> None:
    for email, password in ((ADA, "not the password"), ("nobody@acme.example", PASSWORD), (ADA, PASSWORD)):
        site.anonymous().post("/api/v1/auth/sign-in", json={"email": email, "password": password})
    signed_in, failed = site.admin.get("/api/v1/audit", params={"q": "sign_in"}).json()["items"]
    assert [signed_in["action"], failed["action"]] == ["sign_in", "failed_sign_in"]
    assert (failed["name"], failed["user"], failed["address"]) == (
        "not signed in",
        signed_in["user"],
        "testclient",
    )
    assert json.loads(failed["details"]) == {"email": ADA, "password": "..."}
    assert entries(site) == [] and broken(site) == []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://example.org:8443/T0/s3cret?token=abc#x", "https://example.org:8443/..."),
        ("https://example.org?token=abc", "https://example.org/..."),
        ("https://example.org/", "https://example.org/"),
    ],
)
def test_of_the_address_of_a_webhook_only_its_host_is_in_the_log(site: Site, url: str, shown: str) -> None:
    assert site.admin.post(f"{site.path}/webhooks", json={"url": url}).status_code == 201
    [entry] = entries(site, "create_webhook")
    assert json.loads(entry["details"])["url"] == shown


@pytest.mark.both_databases
def test_entries_are_found_by_actor_action_and_time(site: Site) -> None:
    owner = site.member("owner")
    user = owner.get("/api/v1/me").json()["id"]
    owner.patch(site.path, json={"name": "Lab"})
    site.admin.patch(site.path, json={"name": "Laboratory"})

    def found(**query: str) -> list[str]:
        response = site.admin.get(f"{site.path}/audit", params=query)
        assert response.status_code == 200, response.text
        return [json.loads(item["details"])["name"] for item in response.json()["items"]]

    rename = {"action": "rename_team"}
    assert found(**rename) == ["Laboratory", "Lab"]
    assert found(**rename, actor="ada") == ["Laboratory"]
    assert found(actor=user) == ["Lab"]
    assert found(action="rename") == found(actor=site.team) == []
    newest = entries(site)[0]["time"]
    assert found(since=newest) == ["Laboratory"]
    assert found(since="9999-12-31T23:59:59-12:00") == []
    assert found(**rename, since="0001-01-01T00:00:00+12:00") == ["Laboratory", "Lab"]
    for wrong, status in (
        ({"since": "2026-01-01T00:00:00"}, 422),
        ({"since": "1767225600"}, 422),
        ({"actor": "user_x"}, 404),
        ({"actor": "A\0"}, 404),
    ):
        assert site.admin.get(f"{site.path}/audit", params=wrong).status_code == status
    [naive] = site.admin.get(f"{site.path}/audit", params={"since": "2026-01-01T00:00:00"}).json()["errors"]
    assert naive["message"] == "Write a time with its time zone, such as 2026-11-26T09:30:00Z."


def test_lines_of_the_export_cannot_be_forged(site: Site) -> None:
    forged = 'x"}\n{"sequence": 99}'
    assert site.admin.post(f"{site.path}/views", json={"name": forged, "view": {}}).status_code in (201, 422)
    assert site.admin.patch(site.path, json={"name": "Lab \u2028 two"}).status_code in (200, 422)
    lines = site.admin.get(f"{site.path}/audit/export").text.split("\n")
    assert [json.loads(line)["sequence"] for line in lines if line] == list(range(1, len(lines)))


@pytest.mark.both_databases
@pytest.mark.parametrize("statement", ["UPDATE audit_entry SET user_name = 'Eve'", "DELETE FROM audit_entry"])
def test_entries_cannot_be_changed(site: Site, statement: str) -> None:
    site.admin.patch(site.path, json={"name": "Lab"})
    with pytest.raises(DatabaseError, match="append-only"), site.app.state.database.write() as session:
        session.execute(text(statement))


@pytest.mark.both_databases
@pytest.mark.parametrize(
    ("statement", "at"),
    [
        ("UPDATE audit_entry SET details = '{}' WHERE sequence = 2 AND action = 'rename_team'", 2),
        ("DELETE FROM audit_entry WHERE sequence = 3 AND action = 'rename_team'", 3),
        ("DELETE FROM audit_entry WHERE sequence = 4 AND action = 'rename_team'", 4),
    ],
)
def test_a_changed_or_deleted_entry_is_detected(site: Site, statement: str, at: int) -> None:
    for number in range(4):
        site.admin.patch(site.path, json={"name": f"Lab {number}"})
    assert broken(site) == []
    without_protection(site, statement)
    assert broken(site) == [at]


@pytest.mark.both_databases
def test_concurrent_changes_form_one_intact_chain(site: Site) -> None:
    def rename(number: int) -> int:
        return site.admin.patch(site.path, json={"name": f"Lab {number}"}).status_code

    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(rename, range(12))) == {200}
    assert [item["sequence"] for item in entries(site)] == list(range(12, 0, -1))
    assert broken(site) == []


def test_a_refused_change_leaves_no_entry(site: Site) -> None:
    viewer = site.member("viewer")
    before = entries(site)
    assert viewer.patch(site.path, json={"name": "Lab"}).status_code == 403
    assert site.admin.delete(f"{site.path}/members/me").status_code == 409
    assert entries(site) == before


def test_an_action_that_every_run_refused_leaves_no_entry(site: Site) -> None:
    before = entries(site)
    response = site.admin.post(f"{site.path}/runs/bulk", json={"action": "cancel", "runs": ["run_nope"]})
    assert response.json()[0]["done"] is False
    assert entries(site) == before


def test_an_entry_has_the_names_of_the_teams_objects(site: Site) -> None:
    site.member("viewer")
    bob = site.admin.get(f"{site.path}/members").json()[1]
    stranger = site.other_team("other").get("/api/v1/me").json()["id"]
    mine = site.admin.post(f"{site.path}/views", json={"name": stranger, "view": {}}).json()["id"]
    assert site.admin.patch(f"{site.path}/members/{bob['id']}", json={"role": "editor"}).status_code == 200
    assert site.admin.delete(f"{site.path}/views/{mine}").status_code == 204
    found = [(entry["action"], entry["names"]) for entry in entries(site)[:3]]
    expected = [("delete_view", {}), ("change_role", {bob["id"]: bob["name"]}), ("save_view", {})]
    assert found == expected, "neither what is deleted, nor an account outside the team"
    exported = site.admin.get(f"{site.path}/audit/export").text.splitlines()
    assert all("names" not in json.loads(line) for line in exported)


def test_an_entry_has_the_id_of_what_was_created(site: Site) -> None:
    hook = site.admin.post(f"{site.path}/webhooks", json={"url": "https://example.org/"}).json()
    [entry] = entries(site, "create_webhook")
    assert json.loads(entry["details"]) == {"created": hook["id"], "url": "https://example.org/"}


def test_an_entry_has_the_name_of_the_key_until_it_is_deleted(site: Site) -> None:
    program = site.with_key(site.admin)
    assert program.patch(site.path, json={"name": "The lab"}).status_code == 200
    [entry] = entries(site, "rename_team")
    assert (entry["via"].startswith("tw_"), entry["key_name"]) == (True, "test")
    assert program.delete("/api/v1/me/keys/current").status_code == 204
    [entry] = entries(site, "rename_team")
    assert (entry["via"].startswith("tw_"), entry["key_name"]) == (True, None)


def test_pages_continue_at_the_cursor(site: Site) -> None:
    for number in range(3):
        site.admin.patch(site.path, json={"name": f"Lab {number}"})
    page = site.admin.get(f"{site.path}/audit", params={"limit": 2}).json()
    rest = site.admin.get(f"{site.path}/audit", params={"cursor": page["next_cursor"]}).json()
    assert [item["sequence"] for item in page["items"] + rest["items"]] == [3, 2, 1]
    assert site.admin.get(f"{site.path}/audit", params={"cursor": "x"}).status_code == 422


def test_an_export_holds_no_snapshot_while_its_client_is_slow(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        site.admin.patch(site.path, json={"name": f"Lab {number}"})
    monkeypatch.setattr(audit, "EXPORTED_AT_ONCE", 2)
    database = site.app.state.database
    [newest, *_] = entries(site)
    with database.read() as session:
        chain = session.scalars(select(AuditHead.chain).where(AuditHead.sequence == newest["sequence"])).one()
    sequences = []
    for line in audit.export_lines(database, chain):
        assert database.engine.pool.checkedout() == 0
        sequences.append(json.loads(line)["sequence"])
    assert sequences == [1, 2, 3, 4, 5]


def test_every_route_by_which_a_person_changes_something_is_recorded(site: Site) -> None:
    unrecorded = {
        f"{method} {route.path}"
        for route in iter_route_contexts(site.app.routes)
        for method in route.methods or ()
        if method not in ("GET", "HEAD", "OPTIONS") and not isinstance(route.original_route, AgentRoute)
        if not any(_takes(route.dependant, call) for call in (write_session, deletion_session, record_change))
    }
    assert unrecorded == NOT_RECORDED | RECORDED_BY_THEMSELVES


def _takes(dependant: Dependant, call: Callable[..., Any]) -> bool:
    return dependant.call is call or any(_takes(inner, call) for inner in dependant.dependencies)
