"""Who is to blame for a bad connection: one of its two nodes, or the network."""

import pytest

from trainwright_backend.nodes.link_verdict import LinkMeasurement, judge_links

FAST, SLOW = 900e6, 200e6
A, B, C = "node-a", "node-b", "node-c"


def link(one: str, other: str, speed: float, problem: str = "") -> LinkMeasurement:
    return LinkMeasurement((one, other), speed, problem)


def failed(one: str, other: str) -> LinkMeasurement:
    return link(one, other, 0.0, f"{one}: timed out")


CASES: dict[str, tuple[list[LinkMeasurement], bool]] = {
    "all are good": ([link(A, B, FAST), link(A, C, FAST), link(B, C, FAST)], True),
    "the suspect reaches nobody": ([failed(A, B), failed(A, C), link(B, C, FAST)], False),
    "the suspect is slow": ([link(A, B, SLOW), link(A, C, SLOW), link(B, C, FAST)], False),
    "slow to one, and fails to the other": ([link(A, B, SLOW), failed(A, C), link(B, C, FAST)], False),
    "a neighbour is faulty": ([failed(A, B), link(A, C, FAST), failed(B, C)], True),
    "a neighbour is slow": ([link(A, B, SLOW), link(A, C, FAST), link(B, C, SLOW)], True),
    "a neighbour fails with the suspect only": ([failed(A, B), link(A, C, FAST), link(B, C, FAST)], True),
    "the network is down": ([failed(A, B), failed(A, C), failed(B, C)], True),
    "the network is slow": ([link(A, B, SLOW), link(A, C, SLOW), link(B, C, SLOW)], True),
    "the neighbours' own connection is slow": ([link(A, B, FAST), link(A, C, FAST), link(B, C, SLOW)], True),
    "a third of the speed is enough": ([link(A, B, 301e6), link(A, C, 299e6), link(B, C, FAST)], True),
    "one neighbour, good": ([link(A, B, FAST)], True),
    "one neighbour, bad": ([failed(A, B)], True),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_only_the_suspect_itself_is_convicted(case: str) -> None:
    links, passes = CASES[case]
    checks = judge_links(A, links)
    own = [found for found in links if A in found.nodes]
    assert [check.name for check in checks] == [f"connection to {found.other(A)}" for found in own]
    assert [check.passed for check in checks] == [passes] * len(own)


@pytest.mark.parametrize(
    ("case", "details"),
    [
        ("all are good", ["900.0 MB/s", "900.0 MB/s"]),
        (
            "the suspect is slow",
            ["200.0 MB/s; node-b and node-c exchange data with 900.0 MB/s"] * 2,
        ),
        (
            "a neighbour is faulty",
            [
                "node-a: timed out; node-c exchanges data with this node with 900.0 MB/s, so node-b may be at fault",
                "900.0 MB/s",
            ],
        ),
        (
            "the network is down",
            [
                "node-a: timed out; node-b and node-c cannot exchange data either (node-b: timed out), so the network or one "
                "of them is at fault"
            ]
            * 2,
        ),
        (
            "one neighbour, bad",
            [
                "node-a: timed out; without a second neighbour, this does not show which of the two nodes is at fault"
            ],
        ),
    ],
)
def test_each_check_says_what_was_measured_and_who_may_be_at_fault(case: str, details: list[str]) -> None:
    assert [check.detail for check in judge_links(A, CASES[case][0])] == details
