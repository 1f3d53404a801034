"""Invalid headers and names are refused by name, and create or reserve nothing."""

from collections.abc import Callable

import pytest

from tests.backend.conftest import Site
from tests.backend.uploads.conftest import BYTES, TUS, Tus, metadata

Exact = Callable[[], bool]


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """These tests do not depend on the database."""
    return sqlite_url


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("Upload-Length", "", 400),
        ("Upload-Length", "-1", 400),
        ("Upload-Length", "+1", 400),
        ("Upload-Length", "1e3", 400),
        ("Upload-Length", "0x10", 400),
        ("Upload-Length", "1_000", 400),
        ("Upload-Length", "1.5", 400),
        ("Upload-Length", "9" * 19, 400),
        ("Upload-Length", "9" * 18, 413),
        ("Upload-Length", str(2**40 + 1), 413),
        ("Upload-Length", "0", 422),
        ("Upload-Defer-Length", "1", 400),
        ("Upload-Metadata", "", 400),
        ("Upload-Metadata", "filename", 422),
        ("Upload-Metadata", "filename %%%", 400),
        ("Upload-Metadata", "filename YQ", 400),
        ("Upload-Metadata", "filename YQ==,filename Yg==", 400),
        ("Upload-Metadata", "file name YQ==", 400),
        ("Upload-Metadata", "filename /w==", 400),
        ("Upload-Metadata", "type YQ==", 400),
    ],
)
def test_a_bad_upload_header_is_refused_by_its_name(
    tus: Tus, header: str, value: str, status: int, exact: Exact
) -> None:
    response = tus.announce(10, **{header: value})
    assert response.status_code == status, response.text
    body = response.json()
    assert body["status"] == status and response.headers["content-type"] == "application/problem+json"
    if status != 413:
        assert body["errors"][0]["field"].startswith(header) and header in body["detail"]
    assert tus.client.get(tus.path).json() == [] and exact()


def test_without_a_length_no_upload_is_created(tus: Tus) -> None:
    headers = TUS | {"Upload-Metadata": metadata(filename="a.txt")}
    response = tus.client.post(tus.path, headers=headers)
    assert response.status_code == 400 and "Upload-Length" in response.json()["detail"]


@pytest.mark.parametrize("header", ["Upload-Offset", "Upload-Length", "Tus-Resumable", "Upload-Checksum"])
def test_a_duplicate_header_is_refused(tus: Tus, header: str) -> None:
    url = tus.begin(10)
    headers = [*BYTES.items(), ("Upload-Offset", "0"), ("Upload-Length", "3")]
    headers += [("Upload-Metadata", metadata(filename="a")), (header, "0"), (header, "0")]
    method, address = ("POST", tus.path) if header == "Upload-Length" else ("PATCH", url)
    response = tus.client.request(method, address, headers=headers, content=b"123")
    assert response.status_code == 400 and header in response.json()["detail"], response.text
    assert tus.offset(url) == 0


@pytest.mark.parametrize(
    "value",
    ["md5 1B2M2Y8AsgTpgAmY7PhCfg==", "sha1", "sha1 %%", "sha1 YQ==", "sha256 YQ==", "", "SHA1 YQ=="],
)
def test_a_bad_checksum_header_is_refused(tus: Tus, value: str) -> None:
    url = tus.begin(10)
    response = tus.add(url, 0, b"123", **{"Upload-Checksum": value})
    assert response.status_code == 400 and "Upload-Checksum" in response.json()["detail"]
    assert tus.offset(url) == 0


@pytest.mark.parametrize("value", ["", "-1", "1.0", " ", "zero", "٣", "9" * 30])
def test_a_bad_offset_is_refused(tus: Tus, value: str) -> None:
    url = tus.begin(10)
    headers = [(name.encode(), text.encode()) for name, text in BYTES.items()]
    headers.append((b"Upload-Offset", value.encode()))
    response = tus.client.patch(url, headers=headers, content=b"123")
    assert response.status_code == 400 and "Upload-Offset" in response.json()["detail"]


@pytest.mark.parametrize(
    "name",
    [
        "", " ", "/", "/etc/passwd", "a//b", "a/", ".", "..", "a/../b", "a/./b", "../a", "a/..", "a\\b", "..\\a",
        "C:\\x", "a\x00b", "a\nb", "a\r\nSet-Cookie: x", "\x1b[2J", "a\u202egpj.exe", "x" * 256, "a/ /b", "a/ .. /b",
    ],
)  # fmt: skip
def test_an_invalid_file_name_is_refused(site: Site, tus: Tus, name: str, exact: Exact) -> None:
    for key in ("filename", "relativePath"):
        values = {"filename": "good.txt"} | {key: name}
        if key == "relativePath" and not name:
            continue  # clients send this for a file without folders
        response = tus.announce(10, **{"Upload-Metadata": metadata(**values)})
        assert response.status_code == 422, (key, response.text)
        assert "Rename the file" in response.json()["detail"]
    assert tus.client.get(tus.path).json() == [] and exact()


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"filename": "a.txt"}, "a.txt"),
        ({"filename": "a.txt", "relativePath": "null"}, "a.txt"),
        ({"filename": "a.txt", "relativePath": ""}, "a.txt"),
        ({"filename": "a.txt", "relativePath": "train/a.txt"}, "train/a.txt"),
        ({"filename": "日本語 (1).txt", "type": b"\xff\xfe"}, "日本語 (1).txt"),
        ({"filename": "...txt"}, "...txt"),
        ({"filename": "x" * 255}, "x" * 255),
    ],
)
def test_names_are_kept_with_their_folders(tus: Tus, values: dict[str, str | bytes], name: str) -> None:
    response = tus.announce(10, **{"Upload-Metadata": metadata(**values)})
    assert response.status_code == 201, response.text
    assert tus.client.get(tus.path).json()[0]["file_name"] == name
