"""The speed of our encoder and of `tokenizers`, measured alternately on one core.

    python -m tests.benchmarks.data.encoding [--vocabulary 32000] FILE …

Each file is UTF-8 text and gives one row. A BPE is trained on all files. The first half of each file warms up both
encoders; the second half, in documents of 4,000 characters, is timed: it is new text, as in a preparation.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from trainwright.prepare.encode import Encode, Encoder, Ids, exact_encode, make_encoder
from trainwright.prepare.tokenizer import train_bpe

DOCUMENT_CHARACTERS = 4_000
ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("files", type=Path, nargs="+")
    given = parser.parse_args()
    # One core and one thread, before either library starts any.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1")
    texts = {path: _documents(path) for path in given.files}
    start = time.perf_counter()
    tokenizer = train_bpe((text for found in texts.values() for text in found), given.vocabulary)
    trained_bytes = sum(_size(found) for found in texts.values())
    print(
        f"trained {given.vocabulary:,} tokens on {trained_bytes / 1e6:.1f} MB in {time.perf_counter() - start:.1f} s"
    )
    for path, found in texts.items():
        ours, exact = make_encoder(tokenizer), exact_encode(tokenizer)
        print(f"{path.name:12} {_row(found, ours, exact)}")


def _documents(path: Path) -> list[str]:
    text = path.read_text()
    return [text[start : start + DOCUMENT_CHARACTERS] for start in range(0, len(text), DOCUMENT_CHARACTERS)]


def _row(texts: Sequence[str], ours: Encoder, exact: Encode) -> str:
    """Each round has its own part of the second half, so that no text is encoded twice."""
    half = len(texts) // 2
    ours.encode(texts[:half])
    exact(list(texts[: half // 4]))
    speeds: list[tuple[float, float]] = []
    for number in range(ROUNDS):
        part = list(texts[half + number :: ROUNDS])
        theirs_seconds, expected = _timed(lambda part=part: exact(part))
        our_seconds, found = _timed(lambda part=part: ours.encode(part))
        assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True)), "ids differ"
        speeds.append((_size(part) / our_seconds / 1e6, _size(part) / theirs_seconds / 1e6))
    our_speed, their_speed = (statistics.median(speed) for speed in zip(*speeds, strict=True))
    ratio = statistics.median(one / other for one, other in speeds)
    return f"{ours.library} {our_speed:6.1f} MB/s, tokenizers {their_speed:5.2f} MB/s, ratio {ratio:5.1f}"


def _timed(work: Callable[[], list[Ids]]) -> tuple[float, list[Ids]]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def _size(texts: Sequence[str]) -> int:
    return sum(len(text.encode()) for text in texts)


if __name__ == "__main__":
    main()
