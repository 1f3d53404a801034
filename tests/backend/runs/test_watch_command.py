"""`trainwright runs watch` shows a run's progress, also in scripts."""

import threading

from tests.backend.runs.conftest import Served
from tests.backend.scripted_agent import Scene


def test_without_a_terminal_each_new_state_is_a_line(scene: Scene, served: Served, key: str) -> None:
    run_id = scene.submit()
    later = threading.Timer(3.0, lambda: scene.cancel(run_id))
    later.start()
    done = served.command(key, f"runs watch {run_id}")
    later.join()
    assert done.exit_code == 1, "it was cancelled"
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["queued"]
    assert done.stdout.startswith("cancelled: ")


def test_the_result_is_one_line_and_the_next_command_follows(scene: Scene, served: Served, key: str) -> None:
    work = scene.start()
    assert work.finish(10) == "succeeded"
    watched = served.command(key, f"runs watch {work.run_id}")
    assert (watched.exit_code, watched.stdout) == (0, "done: loss 0.100\n")
    assert watched.stderr == f"Download its weights: trainwright runs download {work.run_id} FOLDER\n"
