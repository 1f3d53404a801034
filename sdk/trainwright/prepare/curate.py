"""Applying a curation: choosing the documents to keep, from the text statistics of chunks.

    hashes ─▶ duplicates ─▶ rules ─▶ mixture ─▶ a keep mask for each chunk, and the counts

A mask has one byte per document: 0 if it is kept, otherwise the first part of the curation that leaves it out (`MaskValue`).
Texts are not read. Memory is bounded by the statistics of one chunk, a bucket of hashes, and a bit per document.

A quick count reads the statistics of only some chunks, evenly spaced within each source, and extrapolates for each source.
Documents and duplicates are exact even then: duplicates are far apart, and a sample would miss them.

In a mixture, the masks of each source apply first, then the mixture's own curation. The source with the least text for
its weight is used completely and limits the size of the mixture: source i with weight share w contributes w·T
characters, where T is the minimum of characters ÷ w over the sources. Documents are chosen by a hash of their text, in
order of that hash until the source has contributed its characters: always the same documents, and none twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainwright.contracts.api.datasets import HistogramBin
from trainwright.contracts.base import Envelope
from trainwright.contracts.curation import CurationSpec, FilterRules
from trainwright.prepare.chunks import count_documents, read_hashes, read_text_stats
from trainwright.prepare.documents import mix_ranks
from trainwright.prepare.duplicates import Duplicates
from trainwright.prepare.text_stats import TextStats

RANKS = 2**16
"""Resolution of a mixture's shares: steps of 1/65,536 of a source."""
MAX_EXPONENT = 31

Mask = NDArray[np.uint8]
OnMask = Callable[[int, bytes], None]


class MaskValue(IntEnum):
    """What happens to a document. Statistics use these names in lower case."""

    KEPT = 0
    DUPLICATE = 1
    MIN_CHARACTERS = 2
    MAX_CHARACTERS = 3
    MIN_LETTER_FRACTION = 4
    MAX_REPEATED_LINE_FRACTION = 5
    MIN_MEAN_WORD_CHARACTERS = 6
    MAX_MEAN_WORD_CHARACTERS = 7
    MIXTURE = 8


@dataclass(frozen=True)
class CurationSource:
    """Chunks that are curated together: those of a version's files, or of a version in a mixture."""

    chunks: Sequence[Path]
    weight: float | None = None
    """Weight of the source in a mixture; None outside of mixtures."""

    masks: Sequence[bytes] | None = None
    """Masks of a version in a mixture, read when needed. Documents that they leave out do not exist for the mixture."""

    documents: Sequence[int] | None = None
    """Documents of each chunk, if known; otherwise they are read from the chunks."""


class SourceShare(Envelope):
    """What one source contributes."""

    documents: int
    characters: int


class CurationResult(Envelope):
    """The counts. In a quick count, ``documents``, ``rejected`` and ``duplicates`` are exact, the others extrapolated."""

    documents: int
    """Documents of the sources, after their own masks."""

    kept: int
    characters: int
    """Characters of the kept documents."""

    rejected: int
    duplicates: int
    """Documents with the text of an earlier one, including those that are kept."""

    dropped: dict[str, int] = {}
    """Documents by the name of the `MaskValue`, for the parts that the curation has."""

    lengths: list[HistogramBin] = []
    """Kept documents by characters, in bins up to powers of two."""

    shares: list[SourceShare] = []
    """One for each source."""

    counted_fraction: float = 1.0
    """Fraction of the documents in chunks whose statistics were read."""


@dataclass(frozen=True)
class _Chunk:
    """One chunk of one source."""

    number: int
    """Index among all chunks of all sources."""

    source: int
    paths: Sequence[Path]
    """The chunks of its source."""

    own_masks: Sequence[bytes] | None
    place: int
    """Index among the chunks and masks of its source."""

    first: int
    """Index of its first document."""

    documents: int

    @property
    def path(self) -> Path:
        """Its file; a store may have to fetch it first."""
        return self.paths[self.place]

    def own_mask(self) -> Mask:
        """The source's own mask of the chunk."""
        if self.own_masks is None:
            return np.zeros(self.documents, np.uint8)
        mask = np.frombuffer(self.own_masks[self.place], np.uint8)
        assert len(mask) == self.documents, f"chunk {self.number}: the mask belongs to another chunk"
        return mask


@dataclass(frozen=True)
class _ExactCounts:
    """Counts over all chunks, one entry per chunk."""

    documents: NDArray[np.int64]
    """Documents that the masks of their sources keep."""

    duplicates: NDArray[np.int64]


@dataclass(frozen=True)
class _Sample:
    """The chunks whose statistics are read, and the factors to extrapolate their counts."""

    chunks: Sequence[_Chunk]
    scales: Sequence[float]
    """One for each source; 1 if all its chunks are read."""


def curate(
    sources: Sequence[CurationSource],
    curation: CurationSpec,
    on_mask: OnMask | None = None,
    rejected: int = 0,
    max_chunks: int | None = None,
    folder: Path | None = None,
    between_chunks: Callable[[], None] = lambda: None,
) -> CurationResult:
    """Apply ``curation`` to ``sources``, and count what it keeps.

    Args:
        on_mask: called with the index of each chunk and its mask, in order.
        rejected: number of rejected rows, passed through to the result.
        max_chunks: read the statistics of at most this many chunks, but at least one per source. Not with masks.
        folder: for temporary files, 24 bytes per document. A killed process leaves them there.
        between_chunks: called after each chunk that was read. It may raise to end the work.
    """
    assert on_mask is None or max_chunks is None, "masks need all chunks"
    chunks = list(_chunks(sources))
    total = sum(chunk.documents for chunk in chunks)
    with Duplicates(total, folder) as duplicates:
        exact = _find_duplicates(chunks, duplicates, between_chunks)
        sample = _sample_chunks(chunks, exact, curation, len(sources), max_chunks)
        limits = _mixture_limits(sources, sample, curation, duplicates)
        counts = _Counts(exact, sample.scales)
        for chunk in sample.chunks:
            again = duplicates.between(chunk.first, chunk.first + chunk.documents)
            stats = read_text_stats(chunk.path)
            mask = _mask(chunk, stats, curation, again)
            if limits is not None:
                _leave_out(mask, mix_ranks(stats.hash) >= limits[chunk.source], MaskValue.MIXTURE)
            counts.add(chunk, stats, mask)
            if on_mask is not None:
                on_mask(chunk.number, mask.tobytes())
            between_chunks()
    read = sum(chunk.documents for chunk in sample.chunks)
    return counts.result(_parts(curation, limits is not None), rejected, read / total if total else 1.0)


def _chunks(sources: Sequence[CurationSource]) -> Iterator[_Chunk]:
    number = first = 0
    for at, source in enumerate(sources):
        sizes = source.documents or [count_documents(path) for path in source.chunks]
        for place, documents in enumerate(sizes):
            yield _Chunk(number, at, source.chunks, source.masks, place, first, documents)
            number, first = number + 1, first + documents


def _find_duplicates(
    chunks: Sequence[_Chunk], duplicates: Duplicates, between_chunks: Callable[[], None]
) -> _ExactCounts:
    documents = []
    for chunk in chunks:
        takes_part = chunk.own_mask() == MaskValue.KEPT
        duplicates.add(read_hashes(chunk.path), takes_part)
        documents.append(int(takes_part.sum()))
        between_chunks()
    duplicates.find()
    again = [int(duplicates.between(chunk.first, chunk.first + chunk.documents).sum()) for chunk in chunks]
    return _ExactCounts(np.array(documents, np.int64), np.array(again, np.int64))


def _sample_chunks(
    chunks: Sequence[_Chunk],
    exact: _ExactCounts,
    curation: CurationSpec,
    sources: int,
    max_chunks: int | None,
) -> _Sample:
    """Choose chunks of each source, in proportion to their number, evenly spaced among those with documents left."""
    if max_chunks is None or len(chunks) <= max_chunks:
        return _Sample(chunks, [1.0] * sources)
    # Duplicates are known, so only the effect of the other rules on the rest is extrapolated.
    left = exact.documents - exact.duplicates if curation.drop_duplicates else exact.documents
    sample, scales = [], []
    for source in range(sources):
        full = [chunk for chunk in chunks if chunk.source == source and left[chunk.number]]
        count = min(len(full), max(1, max_chunks * len(full) // len(chunks)))
        chosen = [full[int((place + 0.5) * len(full) / count)] for place in range(count)]
        sample += chosen
        counted = sum(left[chunk.number] for chunk in chosen)
        scales.append(float(sum(left[chunk.number] for chunk in full) / counted) if counted else 1.0)
    return _Sample(sample, scales)


def _mask(chunk: _Chunk, stats: TextStats, curation: CurationSpec, again: NDArray[np.bool_]) -> Mask:
    """The mask of a chunk, before mixing."""
    mask = chunk.own_mask().copy()
    if curation.drop_duplicates:
        _leave_out(mask, again, MaskValue.DUPLICATE)
    for part, broken in _broken_rules(stats, curation.rules):
        _leave_out(mask, broken, part)
    return mask


def _broken_rules(stats: TextStats, rules: FilterRules) -> Iterator[tuple[MaskValue, NDArray[np.bool_]]]:
    """The documents that violate a rule, for each rule that is set."""
    if rules.min_characters is not None:
        yield MaskValue.MIN_CHARACTERS, stats.characters < rules.min_characters
    if rules.max_characters is not None:
        yield MaskValue.MAX_CHARACTERS, stats.characters > rules.max_characters
    # Statistics are float32. Limits are rounded in the same way, so that a document exactly at a limit is kept.
    if rules.min_letter_fraction is not None:
        yield MaskValue.MIN_LETTER_FRACTION, stats.letter_fraction < np.float32(rules.min_letter_fraction)
    if rules.max_repeated_line_fraction is not None:
        most = np.float32(rules.max_repeated_line_fraction)
        yield MaskValue.MAX_REPEATED_LINE_FRACTION, stats.repeated_line_fraction > most
    if rules.min_mean_word_characters is not None:
        least = np.float32(rules.min_mean_word_characters)
        yield MaskValue.MIN_MEAN_WORD_CHARACTERS, stats.mean_word_characters < least
    if rules.max_mean_word_characters is not None:
        most = np.float32(rules.max_mean_word_characters)
        yield MaskValue.MAX_MEAN_WORD_CHARACTERS, stats.mean_word_characters > most


def _leave_out(mask: Mask, wanted: NDArray[np.bool_], part: MaskValue) -> None:
    mask[wanted & (mask == MaskValue.KEPT)] = part


def _parts(curation: CurationSpec, is_mixture: bool) -> list[MaskValue]:
    """The parts of the curation that can leave out documents."""
    found = [MaskValue.DUPLICATE] if curation.drop_duplicates else []
    found += [MaskValue[name.upper()] for name, limit in curation.rules if limit is not None]
    return [*found, MaskValue.MIXTURE] if is_mixture else found


def _mixture_limits(
    sources: Sequence[CurationSource], sample: _Sample, curation: CurationSpec, duplicates: Duplicates
) -> list[float] | None:
    """The rank of each source below which its documents are used; None if nothing is mixed."""
    if all(source.weight is None for source in sources):
        return None
    characters_by_rank = np.zeros((len(sources), RANKS), np.int64)
    for chunk in sample.chunks:
        stats = read_text_stats(chunk.path)
        again = duplicates.between(chunk.first, chunk.first + chunk.documents)
        kept = _mask(chunk, stats, curation, again) == MaskValue.KEPT
        ranks = (mix_ranks(stats.hash[kept]) * RANKS).astype(np.int64)
        np.add.at(characters_by_rank[chunk.source], ranks, stats.characters[kept])
    weights = np.array([source.weight or 0.0 for source in sources])
    shares = weights / weights.sum()
    characters = characters_by_rank.sum(axis=1) * np.array(sample.scales)
    least = min(total / share for total, share in zip(characters, shares, strict=True) if share)
    return [
        _limit(by_rank, share * least / scale)
        for by_rank, share, scale in zip(characters_by_rank, shares, sample.scales, strict=True)
    ]


def _limit(characters_by_rank: NDArray[np.int64], wanted: float) -> float:
    """The rank below which the documents have ``wanted`` characters, as closely as the resolution allows."""
    sums = np.concatenate([[0], np.cumsum(characters_by_rank)])
    # The first of several equally close steps: after the last document the sums stay equal.
    return float(np.argmin(np.abs(sums - wanted))) / RANKS


class _Counts:
    """Adds up the masks for each source."""

    def __init__(self, exact: _ExactCounts, scales: Sequence[float]) -> None:
        self._exact = exact
        self._scales = np.array(scales)
        self._parts = np.zeros((len(scales), len(MaskValue)), np.int64)
        self._lengths = np.zeros((len(scales), MAX_EXPONENT + 1), np.int64)
        self._characters = np.zeros(len(scales), np.int64)

    def add(self, chunk: _Chunk, stats: TextStats, mask: Mask) -> None:
        kept = stats.characters[mask == MaskValue.KEPT]
        self._parts[chunk.source] += np.bincount(
            mask[chunk.own_mask() == MaskValue.KEPT], minlength=len(MaskValue)
        )
        self._lengths[chunk.source] += np.bincount(_exponents(kept), minlength=MAX_EXPONENT + 1)
        self._characters[chunk.source] += kept.sum(dtype=np.int64)

    def result(self, parts: Sequence[MaskValue], rejected: int, counted_fraction: float) -> CurationResult:
        kept = self._scaled(self._parts[:, MaskValue.KEPT])
        characters = self._scaled(self._characters)
        dropped = {part: int(self._scaled(self._parts[:, part]).sum()) for part in parts}
        duplicates = int(self._exact.duplicates.sum())
        if MaskValue.DUPLICATE in dropped:
            dropped[MaskValue.DUPLICATE] = duplicates
        return CurationResult(
            documents=int(self._exact.documents.sum()),
            kept=int(kept.sum()),
            characters=int(characters.sum()),
            rejected=rejected,
            duplicates=duplicates,
            dropped={part.name.lower(): count for part, count in dropped.items()},
            lengths=_bins(self._scaled(self._lengths).sum(axis=0)),
            shares=[
                SourceShare(documents=int(count), characters=int(size))
                for count, size in zip(kept, characters, strict=True)
            ],
            counted_fraction=counted_fraction,
        )

    def _scaled(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Extrapolate ``counts``, with one row per source, to all chunks."""
        scaled: NDArray[np.float64] = (counts.T * self._scales).T
        return np.rint(scaled).astype(np.int64)


def length_histogram(lengths: NDArray[np.integer]) -> list[HistogramBin]:
    """Histogram of ``lengths`` in bins up to powers of two, from the first to the last bin that is not empty."""
    return _bins(np.bincount(_exponents(lengths), minlength=MAX_EXPONENT + 1))


def _exponents(lengths: NDArray[np.integer]) -> NDArray[np.int64]:
    """The smallest e with 2^e ≥ length. frexp is exact, log2 is not."""
    mantissa, exponent = np.frexp(lengths.astype(np.float64))
    return np.maximum(np.where(mantissa == 0.5, exponent - 1, exponent), 0).astype(np.int64)


def _bins(counts: NDArray[np.int64]) -> list[HistogramBin]:
    filled = np.flatnonzero(counts)
    if not len(filled):
        return []
    return [
        HistogramBin(upto=2**exponent, documents=int(counts[exponent]))
        for exponent in range(filled[0], filled[-1] + 1)
    ]
