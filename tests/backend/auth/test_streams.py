"""A stream lasts longer than the request's policy check, so it checks again and ends soon after a right is revoked."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import delete, select

from tests.backend.conftest import PASSWORD, Site
from trainwright_backend.auth.tables import Account, Membership
from trainwright_backend.core import sse

pytestmark = pytest.mark.both_databases


def revoke_the_key(site: Site, reader: TestClient) -> None:
    for key in reader.get("/api/v1/me/keys").json():
        reader.delete(f"/api/v1/me/keys/{key['id']}")


def remove_the_member(site: Site, reader: TestClient) -> None:
    with site.app.state.database.write() as session:
        wanted = select(Account.id).where(Account.email == "viewer@acme.example")
        session.execute(delete(Membership).where(Membership.user_id == session.scalars(wanted).one()))


def sign_out(site: Site, reader: TestClient) -> None:
    assert reader.post("/api/v1/auth/sign-out").status_code == 204


@pytest.mark.slow(target="databases")
@pytest.mark.parametrize("end", [revoke_the_key, remove_the_member, sign_out])
@pytest.mark.parametrize("kind", ["events", "metrics"])
def test_a_stream_ends_with_the_right_to_read_it(
    site: Site,
    upload: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    end: Callable[[Site, TestClient], None],
) -> None:
    monkeypatch.setattr(sse, "RIGHTS_SECONDS", 0.0)
    spec = {"name": "run", "data": {"dataset": upload(ready=False)["id"]}, "resources": {"device": "cpu"}}
    run = site.admin.post(f"{site.path}/runs", json=spec).json()["id"]
    reader = site.member("viewer")
    if end is sign_out:
        reader = site.anonymous()
        person = {"email": "viewer@acme.example", "password": PASSWORD}
        assert reader.post("/api/v1/auth/sign-in", json=person).status_code == 200
    permitted = sse.stream_events

    def end_then_stream(*arguments: Any) -> sse.EventStream:
        end(site, reader)  # after the request was let in
        return permitted(*arguments)

    for resource in ("events", "metrics"):
        monkeypatch.setattr(f"trainwright_backend.api.{resource}.stream_events", end_then_stream)
    response = reader.get(f"{site.path}/runs/{run}/{kind}/stream")  # returns only because the stream ends
    assert (response.status_code, response.text) == (200, ": open\n\n")
