"""Writes the pages of the documentation's site that git does not contain: references, and copies of the pages at the root.

`docs/conf.py` calls this at the start of each build. A page that has not changed is not written again, so that Sphinx does
not read it again.
"""

import json
import re
from pathlib import Path

from infra.reference import command_line, python_sdk, rest_api, settings

ROOT_PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
"""Copied to `project/`, in lower case."""


def write_pages(repository: Path) -> None:
    """Write all generated pages below ``docs``."""
    for name, text in (reference_pages(repository) | project_pages(repository)).items():
        file = repository / "docs" / name
        file.parent.mkdir(exist_ok=True)
        if not file.exists() or file.read_text() != text:
            file.write_text(text)


def reference_pages(repository: Path) -> dict[str, str]:
    """The pages made from code, by their path below ``docs``."""
    document = json.loads((repository / "frontend" / "openapi.json").read_text())
    contracts = repository / "sdk" / "trainwright" / "contracts"
    return {
        "reference/rest.md": rest_api.routes_page(document),
        f"reference/{rest_api.TYPES_PAGE}": rest_api.types_page(document),
        "reference/cli.md": command_line.page(),
        "reference/settings.md": settings.page(),
        "reference/sdk.md": python_sdk.calls_page(),
        "reference/sdk-spec.md": python_sdk.spec_page(contracts),
    }


def project_pages(repository: Path) -> dict[str, str]:
    """The pages at the root of the repository, with links that fit their place in the site."""
    return {f"project/{name.lower()}": _moved((repository / name).read_text()) for name in ROOT_PAGES}


def _moved(text: str) -> str:
    names = "|".join(re.escape(name) for name in ROOT_PAGES)
    text = re.sub(rf"\]\(({names})", lambda link: f"]({link[1].lower()}", text)
    return text.replace("](docs/", "](../")
