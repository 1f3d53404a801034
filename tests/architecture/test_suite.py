"""The suite's own machinery: budgets fail a session, slow targets are complete, and CI runs those that changed."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import check_slow_marks, slow_targets
from tests.cpu_time import CpuTime
from tests.part import Part

BUSY = "def test_busy():\n    for _ in range(3_000_000):\n        pass\n"
BUSY_CHILD = """
import subprocess, sys, time
def test_busy():
    child = subprocess.Popen([sys.executable, "-c", "for n in range(9_000_000): pass\\nimport time; time.sleep(60)"])
    time.sleep(3)
    assert child.poll() is None
    child.kill()
"""
SLOW = "import pytest\npytestmark = pytest.mark.slow\n"


@pytest.mark.parametrize(
    ("source", "budget", "passes"),
    [(BUSY, 0.001, False), (BUSY, 60.0, True), (BUSY_CHILD, 0.1, False), (SLOW + BUSY, 0.001, True)],
    ids=["over", "within", "over by a living child", "slow tests have no budget"],
)
def test_a_folder_over_its_budget_fails_the_session(
    source: str, budget: float, passes: bool, pytester: pytest.Pytester
) -> None:
    folder = pytester.mkdir("tests") / "some"
    folder.mkdir()
    (folder / "test_it.py").write_text(source)
    result = pytester.inline_run(plugins=[CpuTime({"tests/some": budget})])
    assert result.ret == (pytest.ExitCode.OK if passes else pytest.ExitCode.TESTS_FAILED)


def test_the_parts_of_a_suite_together_run_each_test_once(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import pytest\n@pytest.mark.parametrize('n', range(8))\ndef test_it(n): assert n != 0"
    )
    runs = [
        pytester.inline_run("-k", "not 7", plugins=[Part(f"{number}/3")]).listoutcomes()
        for number in (1, 2, 3)
    ]
    assert [[*map(len, outcomes)] for outcomes in runs] == [[2, 0, 1], [2, 0, 0], [2, 0, 0]]
    ran = [report.nodeid for outcomes in runs for reports in outcomes for report in reports]
    assert len(ran) == len(set(ran)) == 7


@pytest.mark.parametrize("text", ["0/4", "5/4", "2", "a/b", "1/0"])
def test_a_part_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(pytest.UsageError, match=f"--part {text}: write k/n"):
        Part(text)


def test_everything_runs_every_slow_target(repository: Path) -> None:
    makefile = (repository / "Makefile").read_text()
    listed = re.search(r"^SLOW = (.+)$", makefile, re.MULTILINE)
    assert listed is not None and sorted(listed[1].split()) == sorted(slow_targets())
    for target in slow_targets():
        assert re.search(rf"^{target}:.* ## ", makefile, re.MULTILINE), f"make help lists {target}"


class _SlowTest:
    """What the check reads of a collected test."""

    def __init__(self, folder: str, target: str) -> None:
        self.nodeid = f"{folder}/test_some.py::test_it"
        self._mark = pytest.mark.slow(target=target).mark

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        return [self._mark]


@pytest.mark.parametrize(("folder", "target"), [("tests/sdk", "layouts"), ("tests/trainer", "layout")])
def test_a_slow_test_that_no_target_runs_is_refused(folder: str, target: str) -> None:
    check_slow_marks([_SlowTest("tests/trainer/model", "layouts")])
    with pytest.raises(
        pytest.UsageError, match=f"{folder}/test_some.py::test_it: .* a target that runs its folder"
    ):
        check_slow_marks([_SlowTest(folder, target)])


def test_the_sources_of_slow_targets_exist(repository: Path) -> None:
    for line in (repository / ".ci" / "targets").read_text().splitlines():
        if not line.startswith("#"):
            for source in line.partition(":")[2].split():
                assert list(repository.glob(source.removeprefix(":(glob)"))), line


def test_parity_and_layouts_name_the_schemas_of_the_api_that_the_planner_and_the_trainer_import(
    repository: Path,
) -> None:
    folders = ("sdk/trainwright/planner", "trainer/trainwright_trainer")
    unread = [file for folder in folders for file in (repository / folder).rglob("*.py")]
    imported: set[str] = set()
    while unread:
        for name in re.findall(r"trainwright\.contracts\.api\.(\w+)", unread.pop().read_text()):
            schemas = f"sdk/trainwright/contracts/api/{name}.py"
            if schemas not in imported:
                imported.add(schemas)
                unread.append(repository / schemas)
    lines = [
        line
        for line in (repository / ".ci" / "targets").read_text().splitlines()
        if line.startswith(("layouts:", "parity:"))
    ]
    assert imported and len(lines) == 2
    assert all(imported <= set(line.split()) for line in lines)


def test_the_tests_that_the_page_on_injected_faults_names_exist(repository: Path) -> None:
    named = re.findall(r"`(tests/\S+\.py)::(\w+)`", (repository / "docs" / "injected_faults.md").read_text())
    assert named
    for file, test in named:
        assert f"\ndef {test}(" in (repository / file).read_text(), f"{file} has no {test}"


@pytest.fixture
def project(repository: Path, tmp_path: Path) -> Path:
    """A repository with our CI, two slow targets, and a Makefile whose targets print a closing line each."""
    shutil.copytree(repository / ".ci", tmp_path / ".ci")
    (tmp_path / ".ci" / "passed").unlink(missing_ok=True)
    (tmp_path / ".ci" / "targets").write_text("# comment\none: a shared\ntwo: b shared\n")
    for folder in ("a", "b", "shared"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "file.py").write_text("")
    closing = "=== {} in 1.0s (GPU tests skipped: {}) ==="
    (tmp_path / "Makefile").write_text(
        "check:\n\t@echo checked\n"
        f'test:\n\t@echo "{closing.format("5 passed, 2 skipped", 2)}"\n'
        f'one:\n\t@echo "{closing.format("1 failed, 3 passed", 0)}"; false\n'
        "two:\n\t@echo stopped early; false\n"
    )
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def changed(project: Path) -> list[str]:
    done = subprocess.run([".ci/changed-targets"], cwd=project, check=True, capture_output=True, text=True)
    return done.stdout.split()


def passed(project: Path, *targets: str) -> None:
    subprocess.run([".ci/changed-targets", "--passed", *targets], cwd=project, check=True)


def test_targets_run_again_once_a_source_has_changed(project: Path) -> None:
    assert changed(project) == ["one", "two"]
    passed(project, "two")
    assert changed(project) == ["one"]
    passed(project, "one")
    assert changed(project) == []
    (project / "a" / "file.py").write_text("changed")
    assert changed(project) == ["one"]
    (project / "a" / "file.py").write_text("")
    (project / "b" / "another.py").write_text("")
    assert changed(project) == ["two"]
    (project / "b" / "another.py").unlink()
    (project / "shared" / "file.py").unlink()
    assert changed(project) == ["one", "two"]


def test_ci_ends_with_the_sum_of_all_closing_lines(project: Path) -> None:
    done = subprocess.run([".ci/run"], cwd=project, capture_output=True, text=True)
    assert done.returncode == 1
    last = done.stdout.splitlines()[-1]
    sums = r"=== 1 failed, 8 passed, 2 skipped, 1 error in [\d.]+s \(GPU tests skipped: 2\) ==="
    assert re.fullmatch(sums, last), done.stdout
    assert "ci: failed: one two" in done.stdout or "ci: failed: two one" in done.stdout

    passed(project, "one", "two")
    done = subprocess.run([".ci/run"], cwd=project, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("=== 5 passed, 2 skipped in ")


def test_ci_starts_no_slow_target_after_its_time_limit(project: Path) -> None:
    no_time = os.environ | {"LAST_START_MINUTES": "0"}
    done = subprocess.run([".ci/run"], cwd=project, capture_output=True, text=True, env=no_time)
    assert done.returncode == 0
    assert "ci: make check\nchecked\nci: make test" in done.stdout
    due = re.search("^ci: still due, for lack of time: (.*)$", done.stdout, re.MULTILINE)
    assert due is not None and set(due[1].split()) == {"one", "two"}, done.stdout
