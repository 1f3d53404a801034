"""Compressed streams give their plain bytes or an error: truncated, corrupt, or too large when expanded."""

import gzip
import random
import zlib

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.prepare.conftest import Store
from trainwright.contracts.curation import Compression
from trainwright.prepare.decompress import PlainStream
from trainwright.prepare.documents import UnusableDataError

PACKERS = {
    Compression.NONE: bytes,
    Compression.GZIP: gzip.compress,
    Compression.ZSTANDARD: zstandard.compress,
}
BOTH = [Compression.GZIP, Compression.ZSTANDARD]


def _whole(store: Store, content: bytes, compression: Compression, size: int = 2**20) -> bytes:
    with PlainStream(store("file", content), compression) as stream:
        return b"".join(iter(lambda: stream.read(size), b""))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parts=st.lists(st.binary(max_size=3_000), min_size=1, max_size=5),
    skip=st.integers(0, 9_000),
    size=st.integers(1, 5_000),
)
@pytest.mark.parametrize("compression", PACKERS)
def test_members_concatenate_to_the_plain_bytes_from_any_offset(
    store: Store, compression: Compression, parts: list[bytes], skip: int, size: int
) -> None:
    packed = b"".join(PACKERS[compression](part) for part in parts)
    plain = b"".join(parts)
    with PlainStream(store("file", packed), compression) as stream:
        stream.skip(skip)
        assert b"".join(iter(lambda: stream.read(size), b"")) == plain[skip:]
        assert stream.stored_bytes >= len(packed)


def test_padding_and_skippable_frames_are_skipped(store: Store) -> None:
    skippable = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"notes"
    framed = skippable + zstandard.compress(b"one ") + skippable + zstandard.compress(b"two")
    assert _whole(store, framed, Compression.ZSTANDARD) == b"one two"
    assert (
        _whole(store, gzip.compress(b"one ") + gzip.compress(b"two") + bytes(512), Compression.GZIP)
        == b"one two"
    )


@pytest.mark.parametrize("compression", BOTH)
@pytest.mark.parametrize("part", [0.001, 0.3, 0.99])
def test_a_truncated_stream_is_reported(store: Store, compression: Compression, part: float) -> None:
    packed = PACKERS[compression](random.Random(1).randbytes(200_000))
    with pytest.raises(
        UnusableDataError, match=r"file ends in the middle of its \w+ data.*Upload the whole file"
    ):
        _whole(store, packed[: int(len(packed) * part)], compression)


@pytest.mark.parametrize("compression", BOTH)
def test_bytes_after_the_end_and_bad_checksums_are_errors(store: Store, compression: Compression) -> None:
    packed = PACKERS[compression](b"hello" * 1_000)
    with pytest.raises(UnusableDataError, match="contains broken"):
        _whole(store, packed + b"garbage!", compression)
    if compression is Compression.GZIP:
        with pytest.raises(UnusableDataError, match=r"contains broken gzip data .*incorrect data check"):
            _whole(store, packed[:-8] + bytes(4) + packed[-4:], compression)


@pytest.mark.slow(target="faults")
def test_a_gzip_bomb_is_stopped_at_the_ratio(store: Store) -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(2**20)) for _ in range(300)) + packer.flush()
    with pytest.raises(UnusableDataError, match="more than 200 to 1"):
        _whole(store, bomb, Compression.GZIP)


def test_data_that_compresses_like_logs_is_accepted(store: Store) -> None:
    line = random.Random(2).randbytes(400).hex().encode()
    plain = line * 100_000  # 80 MB
    packed = gzip.compress(plain, 1)
    assert 90 < len(plain) / len(packed) < 200
    assert len(_whole(store, packed, Compression.GZIP)) == len(plain)


def rle_frame(blocks: int, window_log: int = 17) -> bytes:
    """A Zstandard frame of ``blocks`` times 128 KiB of one letter, in 4 bytes each."""
    descriptor = bytes([0]) + bytes([(window_log - 10) << 3])
    block = ((2**17 << 3) | (1 << 1)).to_bytes(3, "little") + b"x"
    last = ((2**17 << 3) | (1 << 1) | 1).to_bytes(3, "little") + b"x"
    return b"\x28\xb5\x2f\xfd" + descriptor + block * (blocks - 1) + last


def test_a_zstandard_bomb_is_stopped_at_the_ratio(store: Store) -> None:
    assert _whole(store, rle_frame(8), Compression.ZSTANDARD) == b"x" * 2**20
    with pytest.raises(UnusableDataError, match="more than 200 to 1"):
        _whole(store, rle_frame(2**20), Compression.ZSTANDARD)


def test_the_number_of_empty_members_is_limited(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gigabyte of them would occupy a worker for minutes, without a row at which it could yield."""
    monkeypatch.setattr("trainwright.prepare.decompress.MAX_EMPTY_MEMBERS", 20)
    empty = {Compression.GZIP: gzip.compress(b""), Compression.ZSTANDARD: zstandard.compress(b"")}
    full = {Compression.GZIP: gzip.compress(b"text"), Compression.ZSTANDARD: zstandard.compress(b"text")}
    for compression, member in empty.items():
        sound = member * 20 + full[compression] * 30
        assert _whole(store, sound, compression) == b"text" * 30
        with pytest.raises(UnusableDataError, match=r"empty \w+ members"):
            _whole(store, sound + member, compression)


def test_a_huge_window_is_refused_before_it_is_allocated(store: Store) -> None:
    with pytest.raises(UnusableDataError, match=r"window of more than 128 MiB. Compress it without --long"):
        _whole(store, rle_frame(1, window_log=31), Compression.ZSTANDARD)


@pytest.mark.slow(target="faults")
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("compression", BOTH)
def test_corrupt_streams_end_in_bytes_or_our_error(
    store: Store, compression: Compression, data: st.DataObject
) -> None:
    packed = bytearray(
        PACKERS[compression](b"".join(b"line %d of a text\n" % number for number in range(300)))
    )
    for _ in range(data.draw(st.integers(1, 6))):
        packed[data.draw(st.integers(4, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        _whole(store, bytes(packed), compression)
    except UnusableDataError as error:
        assert str(error).startswith("file")
