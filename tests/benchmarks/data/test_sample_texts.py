from tests.benchmarks.data.sample_texts import documents, in_parts, size_of


def test_texts_are_bounded_distinct_and_the_same_each_time() -> None:
    texts = documents(2_000_000)
    assert 1_000_000 < size_of(texts) <= 2_000_000
    assert len(set(texts)) == len(texts) and documents(2_000_000) == texts
    parts = list(in_parts(texts, 50_000))
    assert len(parts) > 1 and all(size_of(part) >= 50_000 for part in parts)
    assert size_of(texts) - sum(map(size_of, parts)) < 50_000
    assert [text for part in parts for text in part] == texts[: sum(map(len, parts))]
