"""What the end of a reply means."""

import pytest

from services.planner.models.types import Ending, ending_of

WHOLE = "stop|a_name_of_its_own|stop_token"
LIMIT = "length|max_tokens|MAX_TOKENS|max-new-tokens|max_output_tokens|model_length|error_limit"
LIMIT += "|model_context_window_exceeded"
FILTERED = "content_filter|content_filtered|guardrail_intervened|Sensitive |refusal|error_toxic|safety|imageSafety"
FILTERED += "|recitation|blocklist|prohibited_content|SPII|language"
BROKEN = "abort|aborted|error|ServerError|Server Error|network_error|rate_limit|cancelled|timeout|OTHER"
BROKEN += "|insufficient_system_resource|repetition_truncation|malformed_response|malformed_function_call"


@pytest.mark.parametrize(
    ("reasons", "ending"), [(WHOLE, "whole"), (LIMIT, "limit"), (FILTERED, "filtered"), (BROKEN, "broken")]
)
def test_an_end_has_a_meaning(reasons: str, ending: Ending) -> None:
    """In any case of letters, also with blanks."""
    assert {reason: ending_of(reason, is_ended=False) for reason in reasons.split("|")} == dict.fromkeys(
        reasons.split("|"), ending
    )


def test_without_a_reason_the_end_of_the_protocol_counts() -> None:
    """Or its absence."""
    assert (ending_of(None, is_ended=True), ending_of(None, is_ended=False)) == ("whole", "broken")
