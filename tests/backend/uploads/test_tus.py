"""tus 1.0.0 as specified, and the errors of invalid requests."""

import base64
import hashlib
from collections.abc import Callable, Iterator
from datetime import datetime
from email.utils import parsedate_to_datetime

import pytest
from sqlalchemy import select

from tests.backend.conftest import Site, also_in_bucket, both_stores
from tests.backend.uploads.conftest import BYTES, TUS, Tus, metadata
from trainwright_backend.core.db import now
from trainwright_backend.uploads.tables import StoredFile

CONTENT = b"To be, or not to be: that is the question.\n"
Exact = Callable[[], bool]


def stored(site: Site) -> list[tuple[str, bytes]]:
    """Digest and bytes of all stored files."""
    with site.app.state.database.read() as session:
        files = session.scalars(select(StoredFile).order_by(StoredFile.id)).all()
        return [(file.digest, site.app.state.store.read(file.object_key)) for file in files]


def test_anyone_can_request_the_server_s_capabilities(site: Site) -> None:
    response = site.anonymous().options(f"{site.path}/uploads")
    assert response.status_code == 204 and not response.content
    assert {name: response.headers[name] for name in response.headers if name.startswith("tus-")} == {
        "tus-resumable": "1.0.0",
        "tus-version": "1.0.0",
        "tus-extension": "creation,creation-with-upload,termination,checksum,expiration",
        "tus-max-size": str(2**40),
        "tus-checksum-algorithm": "sha1,sha256",
    }


@both_stores
def test_a_file_uploaded_in_chunks_is_stored_with_its_digest(site: Site, tus: Tus, exact: Exact) -> None:
    url = tus.begin(len(CONTENT), "plays/hamlet.txt")
    assert url.startswith(f"{site.path}/uploads/up_")
    for start in range(0, len(CONTENT), 10):
        response = tus.add(url, start, CONTENT[start : start + 10])
        assert response.status_code == 204 and response.headers["Tus-Resumable"] == "1.0.0"
        assert response.headers["Upload-Offset"] == str(min(start + 10, len(CONTENT)))
        assert exact()
    (shown,) = tus.client.get(tus.path).json()
    assert shown["file_name"] == "plays/hamlet.txt" and shown["complete"]
    assert shown["bytes"] == shown["offset"] == len(CONTENT)
    assert shown["digest"] == hashlib.sha256(CONTENT).hexdigest()
    assert stored(site) == [(shown["digest"], CONTENT)]
    assert site.app.state.store.list_partials() == []


def test_the_list_shows_the_owner_of_each_upload(site: Site, tus: Tus) -> None:
    tus.begin(100, "ours.txt")
    teammate = Tus(site.member("editor"), tus.path)
    teammate.begin(100, "theirs.txt")

    def seen(by: Tus) -> list[tuple[str, str, bool]]:
        return [
            (item["file_name"], item["created_by"], item["mine"]) for item in by.client.get(by.path).json()
        ]

    assert seen(tus) == [("theirs.txt", "Editor", False), ("ours.txt", "Ada", True)]
    assert seen(teammate) == [("theirs.txt", "Editor", True), ("ours.txt", "Ada", False)]


def test_the_response_to_head_has_what_a_client_needs_to_continue(tus: Tus) -> None:
    url = tus.begin(100, "größe.txt")
    tus.add(url, 0, b"x" * 40)
    response = tus.client.head(url, headers=TUS)
    assert (response.headers["Upload-Offset"], response.headers["Upload-Length"]) == ("40", "100")
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["Upload-Metadata"] == metadata(filename="größe.txt")
    expires = parsedate_to_datetime(response.headers["Upload-Expires"])
    assert response.headers["Upload-Expires"].endswith("GMT")
    assert 23.9 < hours_until(expires) < 24.1


def hours_until(time: datetime) -> float:
    return (time - now()).total_seconds() / 3600


@pytest.mark.both_databases
def test_the_first_bytes_can_come_with_the_creation(site: Site, tus: Tus, exact: Exact) -> None:
    headers = BYTES | {"Upload-Length": str(len(CONTENT)), "Upload-Metadata": metadata(filename="a.txt")}
    created = tus.client.post(tus.path, headers=headers, content=CONTENT[:5])
    assert (created.status_code, created.headers["Upload-Offset"]) == (201, "5")
    assert tus.add(created.headers["Location"], 5, CONTENT[5:]).status_code == 204
    whole = tus.client.post(tus.path, headers=headers, content=CONTENT)
    assert (whole.status_code, whole.headers["Upload-Offset"]) == (201, str(len(CONTENT)))
    assert stored(site) == [(hashlib.sha256(CONTENT).hexdigest(), CONTENT)], "the same bytes are stored once"
    assert exact()


def test_a_wrong_offset_is_refused_with_the_right_one(tus: Tus) -> None:
    url = tus.begin(100)
    tus.add(url, 0, b"x" * 40)
    for wrong in (0, 39, 41, 100, 10**17):
        response = tus.add(url, wrong, b"y")
        assert (response.status_code, response.json()["code"]) == (409, "wrong_offset")
        assert response.headers["Upload-Offset"] == "40" and response.json()["offset"] == 40
        assert "Continue at Upload-Offset 40" in response.json()["detail"]
    assert tus.offset(url) == 40


@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
def test_bytes_with_a_wrong_checksum_are_discarded(
    site: Site, tus: Tus, algorithm: str, exact: Exact
) -> None:
    right = base64.b64encode(hashlib.new(algorithm, CONTENT).digest()).decode()
    url = tus.begin(2 * len(CONTENT))
    assert tus.add(url, 0, CONTENT, **{"Upload-Checksum": f"{algorithm} {right}"}).status_code == 204
    damaged = CONTENT[:-1] + b"!"
    response = tus.add(url, len(CONTENT), damaged, **{"Upload-Checksum": f"{algorithm} {right}"})
    assert (response.status_code, response.json()["code"]) == (460, "checksum_differs")
    assert response.json()["title"] == "Checksum Mismatch"
    assert tus.offset(url) == len(CONTENT)
    response = tus.add(url, len(CONTENT), CONTENT, **{"Upload-Checksum": f"{algorithm} {right}"})
    assert response.status_code == 204
    assert stored(site) == [(hashlib.sha256(2 * CONTENT).hexdigest(), 2 * CONTENT)] and exact()


def test_bytes_beyond_the_announced_size_are_refused(tus: Tus, exact: Exact) -> None:
    url = tus.begin(10)
    tus.add(url, 0, b"123")

    def endless() -> Iterator[bytes]:
        yield b"45678"
        yield b"90 and more"

    for body in (b"4567890x", endless()):
        response = tus.add(url, 3, body)
        assert (response.status_code, response.json()["code"]) == (413, "too_many_bytes")
    assert tus.offset(url) == 3 and exact()


def test_an_empty_last_request_is_accepted(tus: Tus) -> None:
    """Standard clients send this when they lost the response to their last bytes."""
    url = tus.begin(3)
    assert tus.add(url, 0, b"").headers["Upload-Offset"] == "0"
    assert tus.add(url, 0, b"123").status_code == 204
    assert tus.add(url, 3, b"").headers["Upload-Offset"] == "3"
    assert tus.add(url, 3, b"4").status_code == 413
    assert tus.add(url, 0, b"123").status_code == 409


@also_in_bucket
def test_an_upload_can_be_deleted(site: Site, tus: Tus, exact: Exact) -> None:
    url = tus.begin(100)
    tus.add(url, 0, b"x" * 40)
    assert tus.drop(url).status_code == 204
    assert tus.drop(url).status_code == 404
    assert tus.client.head(url, headers=TUS).status_code == 404
    assert tus.add(url, 40, b"y").status_code == 404
    assert tus.client.get(tus.path).json() == [] and site.app.state.store.list_partials() == []
    whole = f"{tus.path}/{tus.send(CONTENT)}"
    assert tus.drop(whole).status_code == 204
    assert stored(site) == [] and exact()


@pytest.mark.parametrize("method", ["PATCH", "HEAD", "DELETE"])
def test_post_can_replace_methods_that_a_client_cannot_send(tus: Tus, method: str) -> None:
    url = tus.begin(10)
    headers = BYTES | {"X-HTTP-Method-Override": method, "Upload-Offset": "0"}
    response = tus.client.post(url, headers=headers, content=b"123" if method == "PATCH" else b"")
    assert response.status_code == {"PATCH": 204, "HEAD": 200, "DELETE": 204}[method], response.text
    if method == "DELETE":
        assert tus.client.head(url, headers=TUS).status_code == 404
    else:
        assert response.headers["Upload-Offset"] == str(tus.offset(url))


def test_get_never_replaces_another_method(tus: Tus) -> None:
    url = tus.begin(10)
    response = tus.client.get(url, headers=TUS | {"X-HTTP-Method-Override": "DELETE"})
    assert response.status_code == 405
    assert tus.offset(url) == 0


def test_another_protocol_version_is_refused_with_the_supported_one(tus: Tus) -> None:
    url = tus.begin(10)
    for headers in ({}, {"Tus-Resumable": "0.2.2"}, {"Tus-Resumable": "1.0"}):
        for method, address in (("POST", tus.path), ("HEAD", url), ("PATCH", url), ("DELETE", url)):
            response = tus.client.request(method, address, headers=headers)
            assert response.status_code == 412, (method, response.text)
            assert response.headers["Tus-Version"] == response.headers["Tus-Resumable"] == "1.0.0"
    assert tus.offset(url) == 0


def test_uploaded_bytes_need_their_content_type(tus: Tus) -> None:
    url = tus.begin(3)
    for kind in ("text/plain", "application/octet-stream", ""):
        response = tus.add(url, 0, b"123", **{"Content-Type": kind})
        assert (response.status_code, response.json()["code"]) == (415, "not_bytes")
    assert tus.offset(url) == 0


def test_an_upload_of_another_team_is_unknown(site: Site, tus: Tus) -> None:
    url = tus.begin(10)
    stranger = site.other_team("globex")
    upload = url.rsplit("/", 1)[-1]
    theirs = Tus(stranger, "/api/v1/teams/globex/uploads")
    for address, code in ((f"{theirs.path}/{upload}", "not_found"), (url, "not_found")):
        for method in ("HEAD", "PATCH", "DELETE"):
            response = stranger.request(method, address, headers=BYTES | {"Upload-Offset": "0"}, content=b"x")
            assert response.status_code == 404
            assert method == "HEAD" or response.json()["code"] == code
    assert theirs.client.get(theirs.path).json() == []
    assert tus.offset(url) == 0


def test_a_viewer_can_list_uploads_and_not_upload(site: Site, tus: Tus) -> None:
    url = tus.begin(10)
    viewer = Tus(site.member("viewer"), tus.path)
    assert len(viewer.client.get(viewer.path).json()) == 1
    assert viewer.announce(10).status_code == 403
    assert viewer.add(url, 0, b"x").status_code == 403
    assert viewer.drop(url).status_code == 403


@pytest.mark.parametrize("foreign", [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}])
def test_another_site_cannot_upload_with_a_visitor_s_cookie(
    site: Site, tus: Tus, foreign: dict[str, str]
) -> None:
    browser = site.anonymous()
    signed_in = browser.post(
        "/api/v1/auth/sign-in", json={"email": "ada@acme.example", "password": "a long enough password"}
    )
    assert signed_in.status_code == 200
    theirs = Tus(browser, tus.path)
    url = theirs.begin(10)
    assert theirs.add(url, 0, b"123").status_code == 204, "a page of the platform itself"
    for response in (
        theirs.announce(10, **foreign),
        theirs.add(url, 3, b"456", **foreign),
        browser.delete(url, headers=TUS | foreign),
        browser.post(url, headers=TUS | foreign | {"X-HTTP-Method-Override": "DELETE"}),
    ):
        assert (response.status_code, response.json()["code"]) == (403, "foreign_origin")
    assert theirs.offset(url) == 3
