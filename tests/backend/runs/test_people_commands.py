"""Commands about people: members, invitations, accounts, keys, sessions and the audit logs."""

import json
from pathlib import Path

import pytest

from tests.backend.conftest import PASSWORD
from tests.backend.runs.conftest import Served, key_of
from tests.backend.scripted_agent import Scene


@pytest.mark.slow(target="databases")
def test_an_owner_manages_invitations_by_command(scene: Scene, served: Served) -> None:
    key = key_of(scene.site.admin)
    typo = served.command(key, "invitations create bob")
    assert typo.exit_code == 1
    assert typo.output.strip() == "email: Write an email address, such as ana@example.org."
    made = served.command(key, "invitations create Bob@example.org --role editor")
    token = made.stdout.strip().rpartition("/link/")[2]
    assert scene.site.admin.get(f"/api/v1/auth/link/{token}").json()["email"] == "bob@example.org"
    listed = served.command(key, "invitations list").output
    (invitation,) = (line.split()[0] for line in listed.splitlines() if "bob@example.org  editor" in line)
    assert token not in listed
    assert served.command(key, f"invitations revoke {invitation}").exit_code == 0
    assert "bob@example.org" not in served.command(key, "invitations list").output
    again = served.command(key, f"invitations revoke {invitation}")
    assert again.exit_code == 1 and "no invitation" in " ".join(again.output.split())


@pytest.mark.slow(target="databases")
def test_owners_and_site_admins_read_the_audit_logs_by_command(
    scene: Scene, served: Served, tmp_path: Path
) -> None:
    key = key_of(scene.site.admin)
    scene.site.admin.patch(scene.site.path, json={"name": "Lab"})
    scene.site.other_team("globex")
    listed = served.command(key, "audit list --actor ada --action rename_team --since 2026-01-01").output
    assert "Renamed team acme to Lab" in listed and len(listed.splitlines()) == 2
    assert "Lab" not in served.command(key, "audit list --since 9000-01-01T10:00").output
    site = served.command(key, "audit site --action create_team --limit 1 --json")
    [entry] = json.loads(site.output)["items"]
    assert (entry["name"], entry["path"]) == ("Ada", "/api/v1/teams") and "globex" in entry["details"]
    file = tmp_path / "site.jsonl"
    assert served.command(key, f"audit export-site {file}").exit_code == 0
    assert entry["hash"] in [json.loads(line)["hash"] for line in file.read_text().splitlines()]
    wrong = served.command(key, "audit site --since yesterday")
    assert wrong.exit_code == 2 and "--since" in wrong.output


def test_a_person_lists_their_browsers_and_signs_one_out_by_command(scene: Scene, served: Served) -> None:
    phone = scene.site.anonymous()
    me = {"email": scene.site.admin.get("/api/v1/me").json()["email"], "password": PASSWORD}
    assert phone.post("/api/v1/auth/sign-in", json=me).status_code == 200
    key = key_of(scene.site.admin)
    [session] = [item["id"] for item in phone.get("/api/v1/me/sessions").json() if item["current"]]
    assert session in served.command(key, "sessions list").output
    assert served.command(key, f"sessions end {session}").exit_code == 0
    assert phone.get("/api/v1/me").status_code == 401
    assert session not in served.command(key, "sessions list").output
    assert served.command(key, f"sessions end {session}").exit_code == 1


@pytest.mark.slow(target="databases")
def test_a_person_manages_their_keys_by_command(scene: Scene, served: Served) -> None:
    key = key_of(scene.site.admin)
    made = served.command(key, "keys create nightly --scope read --days 30")
    reader = made.stdout.strip()
    listed = served.command(key, "keys list").output
    [line] = [line for line in listed.splitlines() if " nightly " in line]
    assert line.split()[1:4] == ["nightly", reader[:11], "read"] and reader not in listed
    assert served.command(reader, "usage").exit_code == 0
    refused = served.command(reader, "keys create wider")
    assert refused.exit_code == 1 and "requires an API key with the scope manage; yours has read" in " ".join(
        refused.output.split()
    )
    assert served.command(key, f"keys revoke {line.split()[0]}").exit_code == 0
    assert served.command(reader, "usage").exit_code == 1


@pytest.mark.slow(target="databases")
def test_people_are_managed_by_command_with_their_addresses(scene: Scene, served: Served) -> None:
    person = scene.site.member("viewer")
    owner, key = key_of(scene.site.admin), key_of(person)
    assert "viewer@acme.example  viewer" in served.command(owner, "members list").output
    done = served.command(owner, "members set-role Viewer@acme.example editor")
    assert done.exit_code == 0 and "Viewer is now editor of acme." in done.output
    assert served.command(key, "teams list").output.split()[-1] == "editor"
    last = served.command(owner, "members leave")
    assert last.exit_code == 1 and "Make another member an owner first" in " ".join(last.output.split())
    assert served.command(owner, "service-accounts create nightly").exit_code == 0
    unknown = served.command(owner, "members remove bob@example.org")
    assert unknown.exit_code == 1
    assert "Its members are ada@acme.example, viewer@acme.example." in unknown.stderr
    assert served.command(key, "members leave").exit_code == 0
    assert person.get("/api/v1/me").json()["teams"] == []
    assert "viewer@acme.example" not in served.command(owner, "members list").output
    assert served.command(owner, "teams rename Laboratory").exit_code == 0
    assert "Laboratory" in served.command(owner, "teams list").output


@pytest.mark.slow(target="databases")
def test_a_person_changes_their_name_and_password_by_command(scene: Scene, served: Served) -> None:
    key, browser = key_of(scene.site.admin), scene.site.anonymous()
    shown = served.command(key, "account show").output
    assert "Ada <ada@acme.example>, site admin" in shown and "acme: owner" in shown
    assert served.command(key, "account rename Augusta").exit_code == 0
    assert scene.site.admin.get("/api/v1/me").json()["name"] == "Augusta"
    new = "what only Augusta knows"
    wrong = served.command(key, "account password", f"not the password\n{new}\n{new}\n")
    assert wrong.exit_code == 1 and "This is not your current password" in wrong.output
    done = served.command(key, "account password", f"{PASSWORD}\n{new}\n{new}\n")
    assert done.exit_code == 0 and new not in done.output, done.output
    me = {"email": "ada@acme.example", "password": new}
    assert browser.post("/api/v1/auth/sign-in", json=me).status_code == 200


def test_keys_expire_after_90_days_unless_asked_otherwise(scene: Scene, served: Served) -> None:
    key = key_of(scene.site.admin)
    served.command(key, "service-accounts create nightly --role editor")
    for command in ("keys create", "service-accounts create-key nightly"):
        served.received.clear()
        for options in ("", " --days 7", " --never-expires"):
            assert served.command(key, f"{command} a{options}").exit_code == 0
        made = [
            item.body.get("lifetime_days")
            for item in served.received
            if item.target.endswith("/keys") and item.body
        ]
        assert made == [90, 7, None]
        both = served.command(key, f"{command} a --days 7 --never-expires")
        assert both.exit_code == 2 and "Choose one of them" in both.stderr
