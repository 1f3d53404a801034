"""Reading takes bounded memory for any file: no line, frame, row group or column has to fit into memory."""

import gzip
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.prepare.test_decompress import rle_frame
from tests.selection import partly_slow

MEBIBYTE = 2**20
GROWTH_MIB = 240
WINDOW_MIB = 128
"""What a Zstandard frame may need in addition."""
LONG_MIB = 320
"""Files of this size do not fit into the permitted memory."""

READ = """
import sys
from pathlib import Path
from trainwright.contracts.curation import ReadSpec
from trainwright.prepare.documents import Source, UnusableDataError
from trainwright.prepare.chunks import write_chunks
from trainwright.prepare.sniff import sniff

path, folder = Path(sys.argv[1]), Path(sys.argv[2])
rows = 0
try:
    source = Source(path.name, path)
    for chunk in write_chunks(source, sniff(source), ReadSpec(), folder):
        rows += chunk.documents + chunk.rejected_count
        (folder / f"piece-{chunk.number:05d}.parquet").unlink(missing_ok=True)
except UnusableDataError as error:
    print(error)
"""
TAKE_APART = """
import os, sys
from trainwright.prepare.parquet_process import main

os.dup2(os.open(sys.argv[1], os.O_RDONLY), 0)
out = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
rows = main(["values", "text", "0"])
sys.stdout.flush()
os.dup2(out, 1)
"""
REPORT = """
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
print(rows, int(peak) // 1024)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="peaks of memory are read from /proc")


def _measure(program: str, path: Path, folder: Path) -> tuple[int, int, str]:
    """Number of rows, peak memory in MiB, and the error that was raised."""
    done = subprocess.run(
        [sys.executable, "-c", program + REPORT, str(path), str(folder)],
        capture_output=True,
        text=True,
        check=True,
    )
    *output, last = done.stdout.strip().splitlines()
    rows, peak = last.split()
    return int(rows), int(peak), " ".join(output)


def _repeated(block: bytes, mebibytes: int = LONG_MIB) -> Iterator[bytes]:
    for _ in range(mebibytes * MEBIBYTE // len(block)):
        yield block


def _one_line_of_words() -> Iterator[bytes]:
    return _repeated("wörter ohne zeilenende ".encode() * 1_000)


def _one_line_of_json() -> Iterator[bytes]:
    yield b'{"text": "'
    yield from _repeated(b"x" * MEBIBYTE)
    yield b'"}\n{"text": "after"}\n'


def _an_open_quotation() -> Iterator[bytes]:
    yield b'id,text\n1,a\n2,"'
    yield from _repeated(b"never closed, line after line\n" * 10_000)


def _many_objects() -> Iterator[bytes]:
    for inner in (b"{},", b'{"":0},', b"[],", b"[0.5],", b'"\xc4\x81",'):
        yield b'{"text": "a", "more": [' + inner * (7 * MEBIBYTE // len(inner)) + b"0]}\n"


def _many_short_lines() -> Iterator[bytes]:
    return _repeated("".join(f"ā{number:x}\n" for number in range(60_000)).encode(), 40)


def _blank_lines() -> Iterator[bytes]:
    return _repeated(b"\n" * MEBIBYTE, 100)


def _well_packed() -> Iterator[bytes]:
    packer = zlib.compressobj(1, wbits=31)
    for block in _one_line_of_words():
        yield packer.compress(block)
    yield packer.flush()


def _bomb() -> Iterator[bytes]:
    yield rle_frame(2**18, window_log=27)


def _many_members() -> Iterator[bytes]:
    return _repeated(gzip.compress(b"") * 1_000, 2)


CASES: list[tuple[str, Callable[[], Iterator[bytes]], int | None, str]] = [
    # Name, content, rows, error.
    ("words.txt", _one_line_of_words, 40, ""),
    ("lines.txt", _many_short_lines, 5, ""),
    ("blank.txt", _blank_lines, 0, ""),
    ("words.txt.gz", _well_packed, 40, ""),
    ("members.txt.gz", _many_members, None, "empty gzip members"),
    ("bomb.txt.zst", _bomb, None, "more than 200 to 1"),
    ("line.jsonl", _one_line_of_json, 2, ""),
    ("objects.jsonl", _many_objects, 5, ""),
    ("open.csv", _an_open_quotation, None, "never ends"),
    ("line.csv", _one_line_of_words, None, "the header is too long"),
]


@pytest.fixture(scope="module")
def base_mib(tmp_path_factory: pytest.TempPathFactory) -> int:
    """Peak memory of a process that reads only a few bytes."""
    folder = tmp_path_factory.mktemp("base")
    (folder / "a.jsonl").write_text('{"text": "ä"}')
    return _measure(READ, folder / "a.jsonl", folder)[1]


LONGEST = ("lines.txt", "open.csv", "words.txt.gz", "objects.jsonl")
"""Cases of ``make faults``, which take a dozen CPU seconds each."""


@pytest.mark.parametrize(
    ("name", "content", "rows", "error"),
    partly_slow(CASES, [case for case in CASES if case[0] not in LONGEST], "faults"),
    ids=[case[0] for case in CASES],
)
def test_a_hostile_file_takes_bounded_memory(
    tmp_path: Path,
    base_mib: int,
    name: str,
    content: Callable[[], Iterator[bytes]],
    rows: int | None,
    error: str,
) -> None:
    with (tmp_path / name).open("wb") as file:
        file.writelines(content())
    found, peak, output = _measure(READ, tmp_path / name, tmp_path)
    (tmp_path / name).unlink()
    assert error in output and bool(output) == bool(error)
    assert rows is None or found == rows
    print(f"{name}: {peak - base_mib} MiB")
    assert peak - base_mib <= GROWTH_MIB + (WINDOW_MIB if name.endswith(".zst") else 0)


@pytest.mark.slow(target="faults")
def test_a_huge_row_group_takes_bounded_memory(tmp_path: Path, base_mib: int) -> None:
    path = tmp_path / "a.parquet"
    text = "word " * 1_000
    with pq.ParquetWriter(
        path, pa.schema([("text", pa.string())]), use_dictionary=False, compression="zstd"
    ) as writer:
        rows = LONG_MIB * MEBIBYTE // len(text)
        writer.write_table(pa.table({"text": pa.array([text] * rows)}), row_group_size=rows)
    assert pq.read_metadata(path).num_row_groups == 1
    status, peak, output = _measure(TAKE_APART, path, tmp_path)
    assert (status, output) == (0, "")
    assert peak - base_mib <= GROWTH_MIB
