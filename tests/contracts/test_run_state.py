"""The state machine and the table of end codes are consistent."""

import itertools

import pytest

from trainwright.contracts.end_codes import RETRIES, EndClass, EndCode, end_class, sentence
from trainwright.contracts.job_spec import Outcome
from trainwright.contracts.run_state import (
    ADVANCING,
    FINAL,
    MOVES,
    SETTLES_TO,
    WITHOUT_TRAINER,
    RunState,
    Verdict,
)


def test_final_states_allow_no_move_and_all_others_lead_to_one() -> None:
    assert {state for state, targets in MOVES.items() if not targets} == FINAL
    for start in RunState:
        reached, frontier = {start}, [start]
        while frontier:
            for target in MOVES[frontier.pop()] - reached:
                reached.add(target)
                frontier.append(target)
        assert reached & FINAL, start


def test_a_run_that_holds_a_node_ends_early_only_through_stopping() -> None:
    for state in set(RunState) - WITHOUT_TRAINER - {RunState.STOPPING}:
        early = MOVES[state] & {RunState.FAILED, RunState.CANCELLED, RunState.RETRY_WAIT, RunState.PAUSED}
        assert not early, state
        assert RunState.STOPPING in MOVES[state], state


def test_the_path_of_an_undisturbed_run_is_allowed() -> None:
    way = [*ADVANCING, RunState.SUCCEEDED]
    for before, after in itertools.pairwise(way):
        assert after in MOVES[before]


def test_verdicts_have_one_order_and_one_target_each() -> None:
    weakest_first = [Verdict.RETRY, Verdict.MOVE, Verdict.PAUSE, Verdict.FAIL, Verdict.CANCEL]
    assert [verdict.strength for verdict in weakest_first] == [0, 1, 2, 3, 4]
    assert set(SETTLES_TO) == set(Verdict)
    assert MOVES[RunState.STOPPING] == {RunState.SUCCEEDED, *SETTLES_TO.values()}


def test_every_end_code_has_a_class_and_a_sentence() -> None:
    for code in EndCode:
        assert end_class(code) in EndClass
        assert sentence(code).endswith(".")
    assert set(RETRIES) == {EndClass.LOST, EndClass.LEASE_EXPIRED, EndClass.RETRYABLE, EndClass.DIVERGED}


def test_a_reason_of_a_newer_version_is_read_as_unknown_by_client_and_agent() -> None:
    assert Outcome.model_validate_json('{"code": "too_hot", "message": "it glows"}').code is EndCode.UNKNOWN
    with pytest.raises(ValueError):
        EndCode(3)


def test_the_older_name_of_an_end_code_is_read() -> None:
    assert (
        Outcome.model_validate_json('{"code": "lease_lapsed", "message": ""}').code is EndCode.LEASE_EXPIRED
    )
