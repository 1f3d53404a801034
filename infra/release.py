"""Build the files of a release in ``dist/``, from a commit whose changelog has a section for its version.

    trainwright-….whl, trainwright-….tar.gz   the wheel with the pages, and the sources
    …-python.cdx.json, …-pages.cdx.json       software bills of materials (CycloneDX) of the packages that both install
    SHA256SUMS                                the digests of these files

``make release`` builds the pages before. Nothing is published: the last lines say how.
"""

import hashlib
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from base64 import b64decode
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
PAGES = "trainwright_backend/static/index.html"


def main() -> None:
    version, torch = project_version(ROOT), sys.argv[1]
    if problems := why_not_ready(ROOT, version):
        sys.exit("\n".join(problems))
    dist = ROOT / "dist"
    dist.mkdir(exist_ok=True)
    for old in dist.iterdir():
        old.unlink()
    run(sys.executable, "-m", "hatchling", "build")
    [wheel] = dist.glob("*.whl")
    if PAGES not in zipfile.ZipFile(wheel).namelist():
        sys.exit(f"{wheel.name} has no pages: run `make release`, which builds them.")
    stem = f"trainwright-{version}"
    list_python_packages(dist / f"{stem}-python.cdx.json", torch)
    lock = json.loads((ROOT / "frontend" / "package-lock.json").read_text())
    (dist / f"{stem}-pages.cdx.json").write_text(json.dumps(page_packages(lock), indent=2) + "\n")
    (dist / "SHA256SUMS").write_text(digests(dist))
    print(f"dist/ has the release. Publish it:\n  git tag v{version} && git push origin v{version}")
    print(f"  TRAINWRIGHT_VERSION={version} docker compose --profile gpu build")


def project_version(root: Path) -> str:
    """The version in ``pyproject.toml``."""
    version: str = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    return version


def why_not_ready(root: Path, version: str) -> list[str]:
    """What must be done before ``version`` can be released from the folder; empty if nothing."""
    problems = []
    if changed := git(root, "status", "--porcelain"):
        problems.append(f"Commit or remove these changes first:\n{changed}")
    pages = json.loads((root / "frontend" / "package.json").read_text())["version"]
    if pages != version:
        problems.append(
            f"frontend/package.json has version {pages}, and pyproject.toml {version}: make them equal."
        )
    sections = re.split(r"^## ", (root / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
    titles = {
        title.strip(): text.strip() for title, _, text in (section.partition("\n") for section in sections)
    }
    if not any(re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", title) for title in titles):
        problems.append(f"CHANGELOG.md has no section `## {version} (YYYY-MM-DD)`: rename `## Unreleased`.")
    elif titles.get("Unreleased"):
        problems.append(f"CHANGELOG.md lists changes as unreleased: move them to the section of {version}.")
    if (tagged := git(root, "tag", "--list", f"v{version}", "--format=%(objectname)")) and (
        git(root, "rev-list", "--max-count=1", tagged) != git(root, "rev-parse", "HEAD")
    ):
        problems.append(f"The tag v{version} is at another commit: increase the version.")
    return problems


def list_python_packages(target: Path, torch: str) -> None:
    """Write the bill of materials of the locked Python packages, and of PyTorch, which is chosen by machine."""
    locked = (ROOT / "requirements" / "runtime.txt").read_text()
    with tempfile.TemporaryDirectory(prefix="trainwright-release-") as folder:
        programs = Path(folder) / "bin"
        run(sys.executable, "-m", "venv", folder)
        pip = (programs / "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet")
        run(*pip, "--no-deps", "--require-hashes", "-r", ROOT / "requirements" / "release.txt")
        options = ("--pyproject", ROOT / "pyproject.toml", "--output-format", "JSON", "--output-reproducible")
        words = (programs / "cyclonedx-py", "requirements", *options, "--output-file", target, "-")
        run(*words, text=f"{locked}\ntorch=={torch}\n")


def page_packages(lock: dict[str, Any]) -> dict[str, Any]:
    """The bill of materials of the packages that the built pages may contain: those of npm's lock that are not only tools.

    It is written here because `npm sbom --omit dev` leaves out packages that tools need too, such as React.
    """
    components = []
    for path, package in sorted(lock["packages"].items()):
        if path == "" or package.get("dev"):
            continue
        name, version = path.rpartition("node_modules/")[2], package["version"]
        algorithm, _, digest = package["integrity"].partition("-")
        address = f"pkg:npm/{quote(name)}@{version}"
        components.append(
            {
                "type": "library",
                "bom-ref": f"{address}#{path}",
                "name": name,
                "version": version,
                "purl": address,
                "licenses": [{"expression": package["license"]}] if "license" in package else [],
                "hashes": [
                    {"alg": algorithm.upper().replace("SHA", "SHA-"), "content": b64decode(digest).hex()}
                ],
            }
        )
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": lock["name"], "version": lock["version"]}},
        "components": components,
    }


def digests(folder: Path) -> str:
    """The SHA-256 of each file, as ``sha256sum --check`` reads them."""
    files = sorted(file for file in folder.iterdir() if file.name != "SHA256SUMS")
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)


def git(root: Path, *words: str) -> str:
    return run("git", "-C", root, *words).rstrip()


def run(*words: str | Path, text: str | None = None) -> str:
    """The standard output of a command; its errors go to the terminal."""
    done = subprocess.run(
        [str(word) for word in words], cwd=ROOT, input=text, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"{done.stdout}`{' '.join(map(str, words))}` failed with exit status {done.returncode}.")
    return done.stdout


if __name__ == "__main__":
    main()
