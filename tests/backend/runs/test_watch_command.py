"""`trainwright runs watch` shows a run's progress, also in scripts."""

import threading

from tests.backend.runs.conftest import Served
from tests.backend.scripted_agent import Scene


def test_without_a_terminal_each_new_state_is_a_line(scene: Scene, served: Served) -> None:
    key = scene.site.admin.headers["Authorization"].removeprefix("Bearer ")
    run_id = scene.submit()
    later = threading.Timer(3.0, lambda: scene.cancel(run_id))
    later.start()
    done = served.command(key, f"runs watch {run_id}")
    later.join()
    assert done.exit_code == 1, "it was cancelled"
    states = [line.split()[0] for line in done.stderr.splitlines() if "step 0 of" in line]
    assert states == ["queued", "cancelled"]
