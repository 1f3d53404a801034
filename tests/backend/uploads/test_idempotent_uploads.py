"""A repeated announcement of an upload finds the upload of the first one."""

import pytest

from tests.backend.conftest import Site
from tests.backend.uploads.conftest import BYTES, TUS, Tus, metadata

KEY = {"Idempotency-Key": "k1"}


@pytest.mark.both_databases
def test_a_repetition_returns_the_upload_and_its_position(tus: Tus) -> None:
    first = tus.announce(5, **KEY)
    tus.add(first.headers["Location"], 0, b"abc")
    again = tus.announce(5, **KEY)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.headers["Location"] == first.headers["Location"]
    assert (first.headers["Upload-Offset"], again.headers["Upload-Offset"]) == ("0", "3")
    assert len(tus.client.get(tus.path, params={"limit": 5}).json()["items"]) == 1
    assert tus.announce(5).headers["Location"] != first.headers["Location"]


def test_the_body_of_a_repetition_is_not_stored_twice(tus: Tus) -> None:
    headers = TUS | BYTES | KEY | {"Upload-Length": "5", "Upload-Metadata": metadata(filename="a.txt")}
    positions = [tus.client.post(tus.path, content=b"abc", headers=headers) for _ in range(2)]
    assert [response.headers["Upload-Offset"] for response in positions] == ["3", "3"]
    assert tus.add(positions[1].headers["Location"], 3, b"de").status_code == 204


@pytest.mark.parametrize(("size", "name"), [(6, "a.txt"), (5, "b.txt")])
def test_a_key_belongs_to_one_file(tus: Tus, size: int, name: str) -> None:
    assert tus.announce(5, "a.txt", **KEY).status_code == 201
    refused = tus.announce(size, name, **KEY)
    assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_key_reused")


def test_a_late_repetition_does_not_create_a_deleted_upload_again(tus: Tus) -> None:
    url = tus.announce(5, **KEY).headers["Location"]
    assert tus.client.delete(url, headers=TUS).status_code == 204
    refused = tus.announce(5, **KEY)
    assert (refused.status_code, refused.json()["code"]) == (410, "upload_deleted")


def test_a_refused_announcement_does_not_use_up_its_key(tus: Tus, site: Site) -> None:
    def limit(size: int) -> None:
        site.admin.put(f"{site.path}/storage", json={"limit_bytes": size})

    limit(10)
    assert tus.announce(50, **KEY).status_code == 403
    limit(100)
    assert tus.announce(50, **KEY).status_code == 201
