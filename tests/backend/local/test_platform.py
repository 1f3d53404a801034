"""The processes of a local platform: the API restarts alone, and a long start names its log."""

from collections.abc import Callable
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from trainwright_backend.local import platform as processes
from trainwright_backend.local.data_folder import DataFolder, PlatformError
from trainwright_backend.local.platform import Platform, bind_socket


@pytest.mark.slow(target="databases")
@pytest.mark.timeout(400)
def test_the_api_restarts_alone_and_a_long_start_names_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(processes, "NOTICE_AFTER_SECONDS", 1e9)
    environment: dict[str, str] = {}
    with Platform(DataFolder.acquire(tmp_path), bind_socket("127.0.0.1", 0), environment) as platform:
        health = f"{platform.url}/api/v1/health"
        assert responds(health)
        parts = {"broker", "api", "worker", "agent"}
        assert {log.stem for log in platform.logs.iterdir()} == parts
        assert "Still waiting" not in capsys.readouterr().err
        agent = platform.pid("agent")
        platform.end_api()
        assert platform.dead_parts() == ["api"] and not responds(health)
        monkeypatch.setattr(processes, "NOTICE_AFTER_SECONDS", 0.0)
        monkeypatch.setattr(processes, "responds", late(processes.responds))
        platform.start_api()
        assert platform.dead_parts() == [] and responds(health) and platform.pid("agent") == agent
        [line] = capsys.readouterr().err.splitlines()
        assert "at most 180 s" in line and line.endswith(f"{tmp_path / 'logs' / 'api.log'}")
        platform.end_api()
        environment["TRAINWRIGHT_LOG_LEVEL"] = "whisper"
        with pytest.raises(PlatformError, match=r"(?s)api did not start.*log_level"):
            platform.start_api()


def late(really: Callable[[str], bool]) -> Callable[[str], bool]:
    """Pretend that the first check comes before the API responds, however fast the machine is."""
    asked: list[str] = []

    def ask(address: str) -> bool:
        asked.append(address)
        return len(asked) > 1 and really(address)

    return ask


def responds(address: str) -> bool:
    try:
        with urlopen(address, timeout=10) as response:
            return bool(response.status == 200)
    except (URLError, OSError):
        return False
