"""Rows of ``make bench``: from files to tokens.

    read          files of each format into chunks
    tokenise      chunks into shards, with a vocabulary of 32,000
    bpe-training  32,000 tokens from 20 MB

Rates in MB/s are per second of CPU time on one core. The peers do less on purpose: a loop that parses and drops, an encoder
without shards. The contenders are at the end of this file; each runs in its own process (``harness.interleave``).
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from tests.benchmarks.data.sample_texts import documents, in_parts, size_of
from tests.benchmarks.harness.interleave import Contender, Pacer, Request, Spent, in_turn
from tests.benchmarks.report.entries import Entry, at_most
from tests.benchmarks.trainer.shapes import TOY
from trainwright.contracts.curation import ReadSpec, TextDocuments
from trainwright.contracts.data_spec import TokenizerKind, TokenizerSpec
from trainwright.prepare.chunks import chunk_name, read_chunk, write_chunks
from trainwright.prepare.documents import Source
from trainwright.prepare.encode import load_encoder
from trainwright.prepare.sniff import sniff
from trainwright.prepare.token_shards import write_chunk_shards
from trainwright.prepare.tokenizer import (
    END_OF_TEXT,
    end_of_text_id,
    load_tokenizer,
    save_tokenizer,
    train_bpe,
)

Entries = dict[str, Entry]

GOAL = 30.0
"""MB/s of tokenization; there is no need to read faster."""
SLOWEST_READING = 5.0
"""MB/s of `tokenizers` at its fastest."""
BPE_SECONDS = 1.5
MEGABYTE = 1_000_000
_FORMATS = ("jsonl", "csv", "parquet", "txt")
_CHILDREN = "children.json"


def read(given: argparse.Namespace) -> Entries:
    """MB/s of text that is parsed into chunks, and of a plain loop over the same file."""
    texts = documents((1 if given.toy else 16) * MEGABYTE)
    _write_files(given.folder / "read", texts)
    found = {}
    for form in _FORMATS:
        rounds = 1 if given.toy else 3
        folder = given.folder / f"read-{form}"
        options = {"file": str(given.folder / "read" / f"texts.{form}")}
        spent = _in_turn("read_into_pieces", "read_and_drop", folder, options, rounds, warm_up=1)
        ours, peer = (
            [size_of(texts) / MEGABYTE / seconds for seconds in _with_children(folder / who, one)]
            for who, one in spent.items()
        )
        marks = (SLOWEST_READING, GOAL)
        walls = spent["peer"].wall_median() / spent["ours"].wall_median()
        found[f"read-{form}"] = _rate(median(ours), median(peer), "MB/s a core", marks).with_other_clock(
            walls
        )
    return found


def tokenise(given: argparse.Namespace) -> Entries:
    """MB/s of tokenizing a chunk, shards included, and of `tokenizers` encoding the same texts."""
    parts = list(
        in_parts(documents((3 if given.toy else 30) * MEGABYTE), MEGABYTE // (2 if given.toy else 1))
    )
    pieces = given.folder / "tokenise-pieces"
    _write_parts(pieces, parts)
    learned_from = (text for part in parts[:20] for text in part)
    save_tokenizer(train_bpe(learned_from, _vocabulary(given)), pieces / "tokenizer.json")
    rounds = (len(parts) - _WARM_UP) // 2
    options = {"pieces": str(pieces)}
    spent = _in_turn("make_shards", "only_encode", given.folder / "tokenise", options, rounds, _WARM_UP)
    ours, peer = (
        median(
            size_of(part) / MEGABYTE / seconds
            for part, seconds in zip(parts[_WARM_UP:], item.cpu, strict=False)
        )
        for item in spent.values()
    )
    walls = spent["peer"].wall_median() / spent["ours"].wall_median()
    return {"tokenise": _rate(ours, peer, "MB/s a core", (peer, GOAL)).with_other_clock(walls)}


def bpe_training(given: argparse.Namespace) -> Entries:
    """Seconds of wall time on all cores. We use `tokenizers` too, so the ratio shows only what we add to it."""
    options = {"bytes": str((1 if given.toy else 20) * MEGABYTE), "vocabulary": str(_vocabulary(given))}
    folder, rounds = given.folder / "bpe", 1 if given.toy else 2
    spent = _in_turn(
        "train_ours", "train_bare", folder, options, rounds, warm_up=1, threads=os.cpu_count() or 1
    )
    ours, peer = (item.wall_median() for item in spent.values())
    cpu = spent["ours"].cpu_median() / spent["peer"].cpu_median()
    goal = BPE_SECONDS / peer
    # Both use the same library, so a difference of more than a tenth is not noise.
    return {"bpe-training": at_most(ours, peer, "s", max(1.1, goal), goal).with_other_clock(cpu)}


def _in_turn(
    ours: str,
    peer: str,
    folder: Path,
    options: dict[str, str],
    rounds: int,
    warm_up: int,
    threads: int = 1,
) -> dict[str, Spent]:
    folder.mkdir()
    request = Request(
        folder=folder,
        model=TOY.model,
        vocabulary=TOY.vocabulary,
        batch=TOY.batch,
        steps=warm_up + 2 * rounds,
        threads=threads,
    )
    contenders = {"ours": Contender(__name__, ours), "peer": Contender(__name__, peer)}
    return in_turn(contenders, request, warm_up, rounds, options=dict.fromkeys(contenders, options))


def _rate(ours: float, peer: float, unit: str, marks: tuple[float, float]) -> Entry:
    """An entry whose marks are absolute speeds, independent of the peer."""
    passes, goal = marks
    reached = "goal" if ours >= goal else "pass" if ours >= passes else "no"
    return Entry(ours, peer, ours / peer, unit, passes / peer, goal / peer, reached)


def _vocabulary(given: argparse.Namespace) -> int:
    return 1_000 if given.toy else 32_000


_WARM_UP = 2


def _write_files(folder: Path, texts: Sequence[str]) -> None:
    """The same texts in each format; as plain text, with a blank line between them."""
    folder.mkdir()
    with (folder / "texts.jsonl").open("w", encoding="utf-8") as out:
        out.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    with (folder / "texts.csv").open("w", encoding="utf-8", newline="") as out:
        csv.writer(out).writerows([["text"], *([text] for text in texts)])
    pq.write_table(pa.table({"text": list(texts)}), folder / "texts.parquet")
    (folder / "texts.txt").write_text("\n\n".join(texts), encoding="utf-8")


def _write_parts(folder: Path, parts: Sequence[Sequence[str]]) -> None:
    """Write one chunk per part."""
    folder.mkdir()
    for number, part in enumerate(parts):
        file = folder / "part.jsonl"
        file.write_text("".join(json.dumps({"text": text}) + "\n" for text in part))
        source = Source(file.name, file)
        *_, last = write_chunks(source, sniff(source), ReadSpec(field="text"), folder, first_number=number)
        assert last.number in (number, number + 1), "a part is one piece"


def _with_children(folder: Path, spent: Spent) -> list[float]:
    """CPU seconds of each timed step, its child processes included."""
    children: list[float] = json.loads((folder / _CHILDREN).read_text())
    return [own + of_child for own, of_child in zip(spent.cpu, children[-len(spent.cpu) :], strict=True)]


# --- contenders


def read_into_pieces(request: Request, pacer: Pacer) -> None:
    """Sniff, read, measure, and write synced chunks."""
    path = Path(request.options["file"])
    read_spec = ReadSpec(
        field=None if path.suffix == ".txt" else "text", text_documents=TextDocuments.BLANK_LINE
    )

    def step() -> None:
        source = Source(path.name, path)
        for _ in write_chunks(source, sniff(source), read_spec, request.folder):
            pass

    _read_steps(request, pacer, step)


def read_and_drop(request: Request, pacer: Pacer) -> None:
    """Read as a short script would."""
    path = Path(request.options["file"])
    csv.field_size_limit(8 * 2**20)
    _read_steps(request, pacer, lambda: _PLAIN[path.suffix](path))


def _read_steps(request: Request, pacer: Pacer, step: Callable[[], object]) -> None:
    children: list[float] = []
    pacer.start()
    for _ in range(request.steps):
        before = _children_seconds()
        step()
        children.append(_children_seconds() - before)
        pacer.step_done(lambda: (request.folder / _CHILDREN).write_text(json.dumps(children)))


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _plain_jsonl(path: Path) -> list[str]:
    with path.open("rb") as lines:
        return [json.loads(line)["text"] for line in lines]


def _plain_csv(path: Path) -> list[str]:
    with path.open(encoding="utf-8", newline="") as lines:
        return [row[0] for row in csv.reader(lines)]


def _plain_parquet(path: Path) -> list[str]:
    return [
        text for batch in pq.ParquetFile(path).iter_batches() for text in batch.column("text").to_pylist()
    ]


def _plain_text(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n\n")


_PLAIN: dict[str, Callable[[Path], list[str]]] = {
    ".jsonl": _plain_jsonl,
    ".csv": _plain_csv,
    ".parquet": _plain_parquet,
    ".txt": _plain_text,
}


def make_shards(request: Request, pacer: Pacer) -> None:
    """The step of a preparation: one chunk per step."""
    _on_one_core()
    pieces = Path(request.options["pieces"])
    tokenizer = pieces / "tokenizer.json"
    encoder = load_encoder(tokenizer)
    loaded = load_tokenizer(tokenizer)
    end, spec = (
        end_of_text_id(loaded),
        TokenizerSpec(kind=TokenizerKind.BPE, vocabulary=loaded.get_vocab_size()),
    )
    pacer.start()
    for number in range(request.steps):
        write_chunk_shards(
            pieces / chunk_name(number), None, number, encoder, spec, end, 0.01, request.folder
        )
        pacer.step_done()


def only_encode(request: Request, pacer: Pacer) -> None:
    """Texts are in memory, and the ids are dropped."""
    _on_one_core()
    pieces = Path(request.options["pieces"])
    tokenizer = load_tokenizer(pieces / "tokenizer.json")
    pacer.start()
    for number in range(request.steps):
        texts = [document.text for document in read_chunk(pieces / chunk_name(number))]
        pacer.begin()
        tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        pacer.step_done()


def _on_one_core() -> None:
    """Must run before either library starts its threads."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1")


def train_ours(request: Request, pacer: Pacer) -> None:
    """Train as a preparation does."""
    texts, vocabulary = documents(int(request.options["bytes"])), int(request.options["vocabulary"])
    pacer.start()
    for _ in range(request.steps):
        train_bpe(iter(texts), vocabulary)
        pacer.step_done()


def train_bare(request: Request, pacer: Pacer) -> None:
    """Train as the library's own examples do."""
    texts, vocabulary = documents(int(request.options["bytes"])), int(request.options["vocabulary"])
    pacer.start()
    for _ in range(request.steps):
        tokenizer = Tokenizer(BPE())
        tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
        trainer = BpeTrainer(vocab_size=vocabulary, special_tokens=[END_OF_TEXT], show_progress=False)
        tokenizer.train_from_iterator(texts, trainer)
        pacer.step_done()


PREPARING_ROWS: dict[str, Callable[[argparse.Namespace], Entries]] = {
    "read": read,
    "tokenise": tokenise,
    "bpe-training": bpe_training,
}
