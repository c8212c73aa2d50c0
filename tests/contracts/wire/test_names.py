"""The names of a call's messages, round by round."""

import pytest

from contracts.wire import names

RUN = "0" * 32


@pytest.mark.parametrize("number", [0, 1, 12])
def test_the_key_of_a_round_says_run_call_and_round(number: int) -> None:
    """That of the first round is the idempotency key of the call."""
    assert names.parsed_round_key(names.round_key(RUN, "3-1", number)) == (RUN, "3-1", number)
    assert names.round_key(RUN, "3-1") == f"{RUN}.3-1"


def test_a_round_has_an_outcome_or_a_pause() -> None:
    """Their names differ, also from those of other rounds, and may stand in a subject."""
    found = [
        name(call, number)
        for name in (names.outcome_of, names.pause_of)
        for call in ("1-0", "1-1")
        for number in (0, 1)
    ]
    assert len({names.MESSAGE.checked(name) for name in found}) == len(found)
    assert names.outcome_of("1-0") == "1-0"
