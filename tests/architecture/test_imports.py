"""The import contracts between our packages hold, and each detects an injected violation."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PACKAGES = {
    "sdk": ["trainwright"],
    "backend": ["trainwright_backend"],
    "trainer": ["trainwright_agent", "trainwright_trainer"],
}

TRAINER = "trainer/trainwright_trainer"
AGENT = "trainer/trainwright_agent"
BACKEND = "backend/trainwright_backend"

# The contract's id, and files to add that break it.
PLANTED: list[tuple[str, dict[str, str]]] = [
    ("torch", {f"{BACKEND}/core/planted.py": "import torch"}),
    ("apart", {f"{AGENT}/planted.py": "import trainwright_trainer"}),
    ("sdk", {"sdk/trainwright/contracts/planted.py": "import fastapi"}),
    ("light", {"sdk/trainwright/contracts/planted.py": "import numpy"}),
    ("sdk-layers", {"sdk/trainwright/contracts/planted.py": "import trainwright.planner"}),
    ("client", {"sdk/trainwright/client.py": "", f"{AGENT}/planted.py": "import trainwright.client"}),
    ("trainer", {f"{TRAINER}/planted.py": "import httpx"}),
    (
        "trainer-layers",
        {f"{TRAINER}/fp8/compute/planted.py": "import trainwright_trainer.parallel.data.owned_parameters"},
    ),
    ("trainer-layers", {f"{TRAINER}/model/planted.py": "import trainwright_trainer.fp8.compute.linear"}),
    ("trainer-layers", {f"{TRAINER}/undeclared.py": ""}),
    ("process-layers", {f"{TRAINER}/process/job_file.py": "import trainwright_trainer.process.launcher"}),
    ("training-layers", {f"{TRAINER}/training/engine.py": "import trainwright_trainer.training.build"}),
    ("distributed-layers", {f"{TRAINER}/distributed/axis.py": "import trainwright_trainer.distributed.mesh"}),
    ("fp8-layers", {f"{TRAINER}/fp8/compute/planted.py": "import trainwright_trainer.fp8.state.updater"}),
    ("fp8-layers", {f"{TRAINER}/fp8/undeclared.py": ""}),
    (
        "parallel",
        {f"{TRAINER}/parallel/data/planted.py": "import trainwright_trainer.parallel.tensor.parallelize"},
    ),
    ("agent-contracts", {f"{AGENT}/planted.py": "import trainwright.planner"}),
    (
        "agent-layers",
        {f"{AGENT}/supervisor/planted.py": "import trainwright_agent.shipping.shipper"},
    ),
    ("agent-layers", {f"{AGENT}/undeclared.py": ""}),
    ("agent", {f"{AGENT}/planted.py": "import sqlalchemy"}),
    (
        "features",
        {f"{BACKEND}/runs/__init__.py": "", f"{BACKEND}/core/planted.py": "import trainwright_backend.runs"},
    ),
    (
        "features",
        {
            f"{BACKEND}/metrics/__init__.py": "",
            f"{BACKEND}/checkpoints/__init__.py": "",
            f"{BACKEND}/checkpoints/planted.py": "import trainwright_backend.metrics",
        },
    ),
    ("features", {f"{BACKEND}/nodes/planted.py": "import trainwright_backend.api.dependencies"}),
    ("features", {f"{BACKEND}/undeclared.py": ""}),
]


def test_the_import_contracts_hold(repository: Path) -> None:
    report = lint_imports(repository)
    assert broken_contracts(report.stdout) == set(), report.stdout
    assert report.returncode == 0, report.stdout + report.stderr


@pytest.mark.parametrize(("contract", "files"), PLANTED, ids=[contract for contract, _ in PLANTED])
def test_an_injected_violation_is_named(
    contract: str, files: dict[str, str], repository: Path, tmp_path: Path
) -> None:
    shutil.copy(repository / "pyproject.toml", tmp_path)
    for folder, packages in PACKAGES.items():
        for package in packages:
            copy_sources(repository / folder / package, tmp_path / folder / package)
    for name, source in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)

    report = lint_imports(tmp_path)

    assert report.returncode != 0
    assert contract_names(repository)[contract] in broken_contracts(report.stdout), (
        report.stdout + report.stderr
    )


def test_each_contract_has_an_injected_violation(repository: Path) -> None:
    assert {contract for contract, _ in PLANTED} == set(contract_names(repository))


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    """Check the packages below ``root``; PYTHONPATH comes before the editable install of the real ones."""
    path = os.pathsep.join(str(root / folder) for folder in PACKAGES)
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )


def broken_contracts(report: str) -> set[str]:
    return set(re.findall(r"^(.+) BROKEN\b", report, re.MULTILINE))


def contract_names(root: Path) -> dict[str, str]:
    settings = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]
    return {contract["id"]: contract["name"] for contract in settings["contracts"]}


def copy_sources(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "static"))
