"""The site of `make docs` builds without warnings, documents the SDK, and needs no network."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow(target="docs-check")]


@pytest.fixture(scope="module")
def site(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "--quiet",
        "--fail-on-warning",
        "--keep-going",
        "-d",
        out / "doctrees",
    ]
    built = subprocess.run([*command, repository / "docs", out / "html"], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return out / "html"


def test_the_methods_of_the_clients_are_documented(site: Path) -> None:
    page = (site / "reference" / "sdk.html").read_text()
    for name in ("Client.team", "TeamClient.submit", "TeamClient.download"):
        assert f'id="trainwright.client.{name}"' in page


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert pages
    for page in pages:
        loaded = re.findall(
            r"<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=\"([^\"]+)\"", page.read_text()
        )
        assert loaded and not [address for address in loaded if "//" in address], page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import\s+['\"]?https?:", style.read_text()), style
