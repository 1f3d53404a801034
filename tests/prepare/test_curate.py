"""`curate` agrees with a naive pass over the texts: duplicates, rules, mixtures and counts."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainwright.contracts.curation import CurationSpec, FilterRules, ReadSpec
from trainwright.prepare import duplicates
from trainwright.prepare.chunks import read_chunk, write_chunks
from trainwright.prepare.curate import CurationSource, MaskValue, curate, length_histogram
from trainwright.prepare.documents import Source
from trainwright.prepare.sniff import sniff
from trainwright.prepare.text_stats import compute_text_stats

KEEP_ALL = CurationSpec()


def _chunks(folder: Path, texts: Sequence[Sequence[str]]) -> list[Path]:
    """A chunk for each list of texts."""

    found = []
    for group in texts:
        number = len(list(folder.glob("*.jsonl")))
        path = folder / f"{number}.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in group))
        source = Source(path.name, path)
        [info] = write_chunks(source, sniff(source), ReadSpec(field="text"), folder, None, number)
        found.append(folder / f"piece-{info.number:05d}.parquet")
    return found


def _masks(sources: Sequence[CurationSource], curation: CurationSpec) -> list[list[int]]:
    masks: list[list[int]] = []
    curate(sources, curation, lambda number, mask: masks.append(list(mask)) if number == len(masks) else None)
    return masks


GROUPS = st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=12), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(groups=GROUPS, bucket=st.sampled_from([1, 3, 10**6]), dropped=st.sets(st.integers(0, 40)))
def test_duplicates_equal_those_of_a_naive_set(
    tmp_path: Path, groups: list[list[str]], bucket: int, dropped: set[int]
) -> None:
    chunks = _chunks(tmp_path, groups)
    seen: set[str] = set()
    masks, expected, place = [], list[list[int]](), 0
    for group in groups:
        masks.append(bytes(9 if place + index in dropped else 0 for index in range(len(group))))
        row = []
        for index, text in enumerate(group):
            if place + index in dropped:
                row.append(9)
                continue
            row.append(MaskValue.DUPLICATE if text in seen else MaskValue.KEPT)
            seen.add(text)
        expected.append(row)
        place += len(group)
    source = CurationSource(chunks, None, masks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "BUCKET_DOCUMENTS", bucket)
        assert _masks([source], CurationSpec(drop_duplicates=True)) == expected
        kept = curate([source], KEEP_ALL)
    again = sum(code == MaskValue.DUPLICATE for row in expected for code in row)
    exist = sum(code != 9 for row in expected for code in row)
    assert (kept.documents, kept.kept, kept.duplicates, kept.dropped) == (exist, exist, again, {})


def test_the_first_rule_that_applies_counts_and_limits_are_inclusive(tmp_path: Path) -> None:
    texts = [
        "ab",
        "abc def",
        "abc def",
        "1234 5678",
        "x\nx\nx\nx\n",
        "a b c d e f",
        "abcdefghijklmnop",
        "y" * 99,
    ]
    [chunk] = _chunks(tmp_path, [texts])
    rules = FilterRules(
        min_characters=7,
        max_characters=98,
        min_letter_fraction=0.5,
        max_repeated_line_fraction=0.7,
        min_mean_word_characters=3,
        max_mean_word_characters=10,
    )
    parts = [
        MaskValue.MIN_CHARACTERS,
        MaskValue.KEPT,
        MaskValue.DUPLICATE,
        MaskValue.MIN_LETTER_FRACTION,
        MaskValue.MAX_REPEATED_LINE_FRACTION,
        MaskValue.MIN_MEAN_WORD_CHARACTERS,
        MaskValue.MAX_MEAN_WORD_CHARACTERS,
        MaskValue.MAX_CHARACTERS,
    ]
    curation = CurationSpec(drop_duplicates=True, rules=rules)
    assert _masks([CurationSource([chunk])], curation) == [parts]
    found = curate([CurationSource([chunk])], curation, rejected=3)
    assert (found.documents, found.kept, found.rejected, found.characters) == (8, 1, 3, 7)
    assert found.dropped == {part.name.lower(): 1 for part in parts if part is not MaskValue.KEPT}
    measured = compute_text_stats(texts, [text.encode() for text in texts])
    at_limits = FilterRules(
        min_letter_fraction=float(measured.letter_fraction.min()),
        max_repeated_line_fraction=0.75,
        min_mean_word_characters=1,
        max_mean_word_characters=99,
    )
    assert curate([CurationSource([chunk])], CurationSpec(rules=at_limits)).kept == 8, (
        "a document at a limit is kept"
    )


def _random_texts(prefix: str, count: int, seed: int) -> list[str]:
    lengths = np.random.default_rng(seed).integers(5, 400, count)
    return [f"{prefix} {number} " + "x" * int(length) for number, length in enumerate(lengths)]


def test_a_mixture_has_its_weights_and_takes_all_of_the_scarcest_source(tmp_path: Path) -> None:
    texts = {
        "big": _random_texts("big", 40_000, 1),
        "mid": _random_texts("mid", 9_000, 2),
        "small": _random_texts("small", 4_000, 3),
    }
    weights = {"big": 5.0, "mid": 2.0, "small": 1.0}
    sources = [
        CurationSource(
            _chunks(tmp_path, [texts[name][: len(texts[name]) // 2], texts[name][len(texts[name]) // 2 :]]),
            weight,
        )
        for name, weight in weights.items()
    ]
    found = curate(sources, KEEP_ALL)
    total = sum(share.characters for share in found.shares)
    assert total == found.characters
    for share, weight in zip(found.shares, weights.values(), strict=True):
        assert share.characters / total == pytest.approx(weight / 8, rel=0.01)
    assert found.shares[2].documents == 4_000, "the scarcest source relative to its weight is taken entirely"
    assert found.dropped == {"mixture": found.documents - found.kept}
    masks = _masks(sources, KEEP_ALL)
    assert masks == _masks(sources, KEEP_ALL)
    assert sum(mask.count(0) for mask in masks) == found.kept
    assert {code for mask in masks for code in mask} == {MaskValue.KEPT, MaskValue.MIXTURE}
    # A heavier weight takes more of the same documents.
    more = _masks([replace(sources[0], weight=6.0), *sources[1:]], KEEP_ALL)
    assert all(heavy <= light for heavy, light in zip(more[0], masks[0], strict=True))


def test_a_mixture_drops_what_its_sources_and_its_own_rules_drop(tmp_path: Path) -> None:
    one, two = _random_texts("one", 3_000, 4), _random_texts("two", 3_000, 5)
    own = bytes(MaskValue.MIN_CHARACTERS if number % 3 == 0 else 0 for number in range(3_000))
    sources = [
        CurationSource(_chunks(tmp_path, [one]), 1.0, [own]),
        CurationSource(_chunks(tmp_path, [two]), 1.0, [bytes(3_000)]),
    ]
    curation = CurationSpec(rules=FilterRules(max_characters=300))
    found = curate(sources, curation)
    assert found.documents == 5_000
    assert found.shares[0].characters == pytest.approx(found.shares[1].characters, rel=0.02)
    first = _masks(sources, curation)[0]
    assert all(code == MaskValue.MIN_CHARACTERS for code in first[::3])
    assert first.count(MaskValue.MIXTURE) == 0, "the scarcer source is taken entirely"
    assert first.count(MaskValue.MAX_CHARACTERS) == sum(
        len(text) > 300 for n, text in enumerate(one) if n % 3
    )


def test_lengths_are_counted_up_to_powers_of_two(tmp_path: Path) -> None:
    [chunk] = _chunks(tmp_path, [["x" * length for length in (1, 2, 3, 4, 5, 8, 9, 1_024, 1_025)]])
    bins = {bin_.upto: bin_.documents for bin_ in curate([CurationSource([chunk])], KEEP_ALL).lengths}
    assert bins == {1: 1, 2: 1, 4: 2, 8: 2, 16: 1, 32: 0, 64: 0, 128: 0, 256: 0, 512: 0, 1_024: 1, 2_048: 1}
    assert length_histogram(np.array([], np.int64)) == []
    assert [bin_.upto for bin_ in length_histogram(np.array([0, 0]))] == [1]


def test_a_count_of_some_chunks_is_scaled_up_and_marked(tmp_path: Path) -> None:
    chunks = _chunks(tmp_path, [[f"{group} {number}" for number in range(50)] for group in range(20)])
    found = curate([CurationSource(chunks)], KEEP_ALL, rejected=7, max_chunks=4)
    assert (found.counted_fraction, found.documents, found.kept, found.rejected) == (0.2, 1_000, 1_000, 7)
    characters = sum(len(document.text) for chunk in chunks for document in read_chunk(chunk))
    assert found.characters == pytest.approx(characters, rel=0.05)
    assert curate([CurationSource(chunks)], KEEP_ALL, max_chunks=20).counted_fraction == 1.0


def test_a_quick_count_samples_every_source_of_a_mixture(tmp_path: Path) -> None:
    big = _chunks(tmp_path, [[f"big {group} {number:02}" for number in range(20)] for group in range(60)])
    [small] = _chunks(tmp_path, [[f"small {number:04}" for number in range(20)]])
    sources = [
        CurationSource(big, 1.0, [bytes(20)] * len(big)),
        CurationSource([small], 1.0, [bytes(20)]),
    ]
    full, quick = curate(sources, KEEP_ALL), curate(sources, KEEP_ALL, max_chunks=15)
    assert (quick.documents, quick.duplicates) == (full.documents, full.duplicates) == (1_220, 0)
    assert quick.counted_fraction < 0.3
    assert quick.shares[1] == full.shares[1], "the scarcest source is taken entirely"
    # Documents are chosen by hash: 20 of the 300 in the sample, times 4; the standard error is 4.5.
    assert quick.shares[0].documents == pytest.approx(full.shares[0].documents, abs=20)


def test_a_quick_count_finds_distant_duplicates(tmp_path: Path) -> None:
    texts = [f"text number {number:04}" for number in range(600)]
    shuffled = list(np.random.default_rng(1).permutation(texts))
    groups = [rows[first : first + 20] for rows in (texts, shuffled) for first in range(0, 600, 20)]
    source = CurationSource(_chunks(tmp_path, groups))
    curation = CurationSpec(drop_duplicates=True, rules=FilterRules(min_characters=5))
    full, quick = curate([source], curation), curate([source], curation, max_chunks=6)
    assert quick.counted_fraction < 0.3
    assert quick.model_copy(update={"counted_fraction": 1.0}) == full
    assert (full.kept, full.dropped) == (600, {"duplicate": 600, "min_characters": 0})


def test_temporary_files_are_in_the_given_folder(tmp_path: Path) -> None:
    chunks, folder, seen = _chunks(tmp_path, [["a", "b"]]), tmp_path / "work", list[int]()
    folder.mkdir()
    curate(
        [CurationSource(chunks)], KEEP_ALL, lambda *_: seen.append(len(list(folder.iterdir()))), folder=folder
    )
    assert seen == [1] and not list(folder.iterdir())


def test_a_count_without_documents_is_zero() -> None:
    found = curate([CurationSource([])], CurationSpec(drop_duplicates=True))
    assert (found.documents, found.kept, found.lengths, found.dropped) == (0, 0, [], {"duplicate": 0})
