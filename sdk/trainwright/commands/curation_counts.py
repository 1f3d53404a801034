"""What a curation keeps of documents, in lines for people."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.contracts.api.datasets import Statistics

_REASONS = {
    "duplicate": "as duplicates",
    "min_characters": "as too short",
    "max_characters": "as too long",
    "min_letter_fraction": "for too few letters",
    "max_repeated_line_fraction": "for too many repeated lines",
    "min_mean_word_characters": "for too short words",
    "max_mean_word_characters": "for too long words",
    "mixture": "to keep the weights of the mixture",
}


def statistics_lines(counted: Statistics) -> Iterator[str]:
    """The sums, and how many documents each part of the curation drops."""
    yield (
        f"{counted.kept:,} of {counted.documents:,} documents kept, {counted.characters:,} characters, "
        f"{counted.duplicates:,} duplicates, {counted.rejected:,} rejected"
    )
    for part, count in counted.dropped.items():
        yield f"  {count:,} dropped {_REASONS.get(part, f'by {part}')}"
