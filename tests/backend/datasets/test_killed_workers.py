"""Workers are killed at random. The shards are byte for byte those of an undisturbed run.

The suite kills eight on each database; ``TRAINWRIGHT_WORKER_KILLS=20`` kills twenty.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from sqlalchemy import func, select

from tests.backend.datasets import worker_process
from tests.backend.datasets.dataset_editor import DatasetEditor, Json, lines
from trainwright.prepare import chunks
from trainwright_backend.core.broker import die_with_parent
from trainwright_backend.core.ids import parse_id
from trainwright_backend.datasets.preparations import preparation_files
from trainwright_backend.datasets.tables import FileChunk, Preparation, PreparationChunk

KILLS = int(os.environ.get("TRAINWRIGHT_WORKER_KILLS", "8"))


@pytest.fixture
def start(editor: DatasetEditor) -> Iterator[Callable[[], psutil.Process]]:
    """Starts a worker process of the site."""
    app = editor.site.app
    script = str(Path(str(worker_process.__file__)))
    parent = subprocess.Popen(
        [sys.executable, script, app.state.database.url, str(app.state.store.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        preexec_fn=die_with_parent(signal.SIGKILL),
    )

    def fork() -> psutil.Process:
        assert parent.stdin is not None and parent.stdout is not None
        parent.stdin.write("another\n")
        parent.stdin.flush()
        return psutil.Process(int(parent.stdout.readline()))

    yield fork
    parent.kill()
    parent.wait()


def prepared(editor: DatasetEditor, dataset: Json) -> dict[str, bytes]:
    """Tokenizer, manifest and shards of the dataset's only preparation."""
    shown = dataset["versions"][0]["preparations"][0]
    with editor.site.app.state.database.read() as session:
        wanted = select(Preparation).where(Preparation.id == parse_id("prep", shown["id"]))
        files = preparation_files(session.scalars(wanted).one())
    return {file.name: editor.path_of(file.object_key).read_bytes() for file in files}


def count_finished_chunks(editor: DatasetEditor) -> int:
    """Chunks that are parsed or tokenized so far."""
    with editor.site.app.state.database.read() as session:
        pieces_read = session.scalar(select(func.count()).select_from(FileChunk)) or 0
        slices = select(func.count()).select_from(PreparationChunk).where(PreparationChunk.done)
        return pieces_read + (session.scalar(slices) or 0)


@pytest.mark.slow(target="databases")
@pytest.mark.timeout(120 + 10 * KILLS)
def test_killed_workers_change_no_byte(
    editor: DatasetEditor, start: Callable[[], psutil.Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = random.Random(7)
    words = [f"word{number}" for number in range(500)]
    texts = [" ".join(choice.choices(words, k=120)) for _ in range(800)]
    files = {"a.jsonl": lines(*texts[:500], *texts[:40]), "b.jsonl": lines(*texts[500:]) + b"broken\n"}
    curation = {"drop_duplicates": True, "rules": {"min_characters": 700}}
    monkeypatch.setattr(chunks, "CHUNK_DOCUMENTS", worker_process.CHUNK_DOCUMENTS)
    undisturbed = editor.make("undisturbed", curation, **files)
    before = count_finished_chunks(editor)
    # Other bytes and the same documents, so that nothing is shared with the first.
    made = editor.make("killed", curation, ready=False, **{name: one + b"\n" for name, one in files.items()})
    met = []
    for _ in range(KILLS):
        worker = start()
        enough = count_finished_chunks(editor) + choice.randint(0, 5 * before // (3 * KILLS))
        while count_finished_chunks(editor) < enough and worker.is_running():
            pass
        time.sleep(choice.uniform(0, 0.03))
        worker.kill()
        psutil.wait_procs([worker])
        version = editor.show(made)["versions"][0]
        assert version["error"] is None
        met.append((version["state"], count_finished_chunks(editor) - before))
    psutil.wait_procs([start()])
    done = editor.show(made)
    assert done["versions"][0]["statistics"] == undisturbed["versions"][0]["statistics"]
    assert prepared(editor, done) == prepared(editor, undisturbed)
    assert {state for state, _ in met} >= {"reading", "ready"} and len(set(met)) > KILLS // 2, met
