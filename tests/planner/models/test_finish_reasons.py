"""What the end of a reply means."""

import pytest

from services.planner.models.types import ENDINGS, Ending, ending_of


@pytest.mark.parametrize(
    ("finish_reason", "is_ended", "ending"),
    [
        ("stop", False, "whole"),
        ("a_name_of_its_own", False, "whole"),
        (None, True, "whole"),
        (None, False, "broken"),
        ("MAX_TOKENS", True, "limit"),
        ("Sensitive ", True, "filtered"),
        ("abort", True, "broken"),
        ("max-new-tokens", True, "limit"),
        ("imageSafety", True, "filtered"),
        ("Server Error", True, "broken"),
        ("rate_limit", True, "broken"),
        ("stop_token", True, "whole"),
    ],
)
def test_an_end_has_a_meaning(*, finish_reason: str | None, is_ended: bool, ending: Ending) -> None:
    """In any case of letters; without a reason the end of the protocol counts."""
    assert ending_of(finish_reason, is_ended=is_ended) == ending


def test_every_reason_is_found_as_servers_write_it() -> None:
    """The keys of the table are in lower case, as they are looked up."""
    assert all(ending_of(reason.upper(), is_ended=True) == ending for reason, ending in ENDINGS.items())
