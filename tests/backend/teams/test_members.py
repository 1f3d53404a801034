"""Roles, removal and leaving: rights change immediately, and a team always has an owner."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi import Request
from fastapi.testclient import TestClient

from tests.backend.conftest import Site
from trainwright_backend.auth.policies import Access, IsInTeam

Upload = Callable[..., dict[str, Any]]


def member_id(site: Site, email: str) -> str:
    people = site.admin.get(f"{site.path}/members").json()
    [found] = [str(person["id"]) for person in people if person["email"] == email]
    return found


def roles(client: TestClient, site: Site) -> dict[str, str]:
    return {person["email"]: person["role"] for person in client.get(f"{site.path}/members").json()}


def set_role(client: TestClient, site: Site, member: str, role: str) -> tuple[int, str]:
    """Status, and the refusal's code."""
    response = client.patch(f"{site.path}/members/{member}", json={"role": role})
    return response.status_code, response.json().get("code", "")


@pytest.mark.both_databases
def test_renaming_a_team_does_not_change_its_address(site: Site) -> None:
    response = site.admin.patch(site.path, json={"name": "  Language Lab "})
    assert response.status_code == 200
    assert (response.json()["name"], response.json()["slug"]) == ("Language Lab", "acme")
    assert site.admin.get("/api/v1/me").json()["teams"][0]["name"] == "Language Lab"
    for name in ("", "  ", "x" * 81):
        refused = site.admin.patch(site.path, json={"name": name})
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "name")
    slug = site.admin.patch(site.path, json={"name": "Lab", "slug": "lab"})
    assert slug.status_code == 422 and slug.json()["errors"][0]["field"] == "slug", "it never changes"


@pytest.mark.both_databases
def test_a_new_role_counts_from_the_next_request_on(site: Site) -> None:
    person = site.member("viewer")
    member = member_id(site, "viewer@acme.example")
    recipe = {"name": "small", "spec": {}}
    assert person.post(f"{site.path}/recipes", json=recipe).status_code == 403
    response = site.admin.patch(f"{site.path}/members/{member}", json={"role": "editor"})
    shown = {
        "id": member,
        "name": "Viewer",
        "email": "viewer@acme.example",
        "role": "editor",
        "service": False,
    }
    assert response.json() == shown
    assert person.post(f"{site.path}/recipes", json=recipe).status_code == 201
    assert set_role(site.admin, site, member, "viewer") == (200, "")
    assert person.post(f"{site.path}/recipes", json=recipe).status_code == 403
    assert set_role(site.admin, site, member, "boss") == (422, "invalid")


def test_keys_of_a_removed_person_stop_working_for_the_team_and_their_runs_continue(
    site: Site, upload: Upload
) -> None:
    person = site.member("editor")
    site.admin.post("/api/v1/teams", json={"slug": "globex", "name": "Globex"})
    invitation = {"email": "editor@acme.example", "role": "viewer"}
    link = site.admin.post("/api/v1/teams/globex/invitations", json=invitation).json()["link"]
    assert person.post("/api/v1/auth/link", json={"token": link.rsplit("/", 1)[-1]}).status_code == 200
    person.cookies.clear()
    spec = {"name": "pilot", "data": {"dataset": upload()["id"]}, "resources": {"device": "cpu"}}
    run = person.post(f"{site.path}/runs", json=spec).json()["id"]
    member = member_id(site, "editor@acme.example")
    assert site.admin.delete(f"{site.path}/members/{member}").status_code == 204
    refused = person.get(f"{site.path}/runs/{run}")
    assert refused.status_code == 404 and "There is no team 'acme'" in refused.json()["detail"]
    assert person.get("/api/v1/teams/globex").status_code == 200, "the key works for the person's other team"
    assert [team["slug"] for team in person.get("/api/v1/me").json()["teams"]] == ["globex"]
    shown = site.admin.get(f"{site.path}/runs/{run}").json()
    assert (shown["state"], shown["created_by"]) == ("queued", "Editor")
    assert site.admin.post(f"{site.path}/runs/{run}/cancel").status_code == 202, "others can manage it"
    assert site.admin.delete(f"{site.path}/members/{member}").status_code == 404
    again = site.admin.post(f"{site.path}/invitations", json=invitation)
    assert again.status_code == 201, "they can rejoin by an invitation"


def test_a_person_leaves(site: Site) -> None:
    person = site.member("viewer")
    assert person.delete(f"{site.path}/members/me").status_code == 204
    assert person.get(site.path).status_code == 404
    assert roles(site.admin, site) == {"ada@acme.example": "owner"}


@pytest.mark.both_databases
def test_the_last_owner_cannot_leave_or_change_role(site: Site) -> None:
    site.member("editor")
    me = member_id(site, "ada@acme.example")
    remedy = "a team needs an owner, and this is the last one. Make another member an owner first."
    refused = {
        "Ada cannot become editor": site.admin.patch(f"{site.path}/members/{me}", json={"role": "editor"}),
        "Ada cannot be removed": site.admin.delete(f"{site.path}/members/{me}"),
        "You cannot leave": site.admin.delete(f"{site.path}/members/me"),
    }
    for what, response in refused.items():
        assert (response.status_code, response.json()["code"]) == (409, "last_owner")
        assert response.json()["detail"] == f"{what}: {remedy}"
    assert set_role(site.admin, site, me, "owner") == (200, ""), "no change"
    other = member_id(site, "editor@acme.example")
    assert set_role(site.admin, site, other, "owner") == (200, "")
    assert site.admin.delete(f"{site.path}/members/me").status_code == 204


@pytest.mark.slow(target="databases")
@pytest.mark.both_databases
@pytest.mark.parametrize("end", ["demote", "remove", "leave"])
def test_two_owners_who_leave_concurrently_leave_one_owner(
    site: Site, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Both requests have passed their policy, as owners, before either changes anything."""
    owners = {"ada@acme.example": site.admin, "owner@acme.example": site.member("owner")}
    ids = {email: member_id(site, email) for email in owners}
    both_decided, decide = threading.Barrier(2, timeout=30), IsInTeam.decide

    def decide_together(policy: IsInTeam, request: Request, team: str) -> Access:
        access = decide(policy, request, team)
        both_decided.wait()
        return access

    def act(email: str) -> tuple[int, str]:
        [other] = [ids[one] for one in owners if one != email]
        client, path = owners[email], f"{site.path}/members"
        if end == "demote":
            response = client.patch(f"{path}/{other}", json={"role": "viewer"})
        else:
            response = client.delete(f"{path}/{'me' if end == 'leave' else other}")
        return response.status_code, "" if response.is_success else response.json()["code"]

    with monkeypatch.context() as patched, ThreadPoolExecutor(2) as pool:
        patched.setattr(IsInTeam, "decide", decide_together)
        done = sorted(pool.map(act, owners))
    refused = (409, "last_owner") if end == "leave" else (403, "role_too_low")
    assert done == sorted([(200 if end == "demote" else 204, ""), refused])
    left = [client for client in owners.values() if client.get(site.path).status_code == 200]
    assert list(roles(left[0], site).values()).count("owner") == 1


@pytest.mark.parametrize("end", ["demote", "remove", "leave"])
def test_links_of_a_former_owner_are_revoked(site: Site, end: str) -> None:
    owner = site.member("owner")
    for client, email in ((owner, "bob@example.org"), (site.admin, "ann@example.org")):
        made = client.post(f"{site.path}/invitations", json={"email": email, "role": "owner"})
        assert made.status_code == 201
    [theirs] = [
        made["id"]
        for made in site.admin.get(f"{site.path}/invitations").json()
        if made["email"] == "bob@example.org"
    ]
    member = f"{site.path}/members/{member_id(site, 'owner@acme.example')}"
    if end == "demote":
        assert site.admin.patch(member, json={"role": "editor"}).status_code == 200
    elif end == "remove":
        assert site.admin.delete(member).status_code == 204
    else:
        assert owner.delete(f"{site.path}/members/me").status_code == 204
    pending = site.admin.get(f"{site.path}/invitations").json()
    assert [invitation["email"] for invitation in pending] == ["ann@example.org"]
    assert site.admin.delete(f"{site.path}/invitations/{theirs}").status_code == 404


def test_an_owner_who_is_removed_during_the_request_cannot_invite(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise their own link would let them back in."""
    owner, decide = site.member("owner"), IsInTeam.decide
    member = f"{site.path}/members/{member_id(site, 'owner@acme.example')}"

    def removed_after_the_decision(policy: IsInTeam, request: Request, team: str) -> Access:
        access = decide(policy, request, team)
        if request.method == "POST":
            assert site.admin.delete(member).status_code == 204
        return access

    new = {"email": "bob@example.org", "role": "owner"}
    with monkeypatch.context() as patched:
        patched.setattr(IsInTeam, "decide", removed_after_the_decision)
        refused = owner.post(f"{site.path}/invitations", json=new)
    assert (refused.status_code, refused.json()["code"]) == (403, "role_too_low")
    assert site.admin.get(f"{site.path}/invitations").json() == []


def test_members_of_other_teams_are_unknown(site: Site) -> None:
    stranger = site.other_team("globex")
    theirs = stranger.get("/api/v1/me").json()["id"]
    for member in (theirs, "user_none", "me"):
        response = site.admin.patch(f"{site.path}/members/{member}", json={"role": "viewer"})
        assert response.status_code == 404 and "There is no person" in response.json()["detail"]
    assert site.admin.delete(f"{site.path}/members/{theirs}").status_code == 404
    assert stranger.get("/api/v1/teams/globex").status_code == 200
