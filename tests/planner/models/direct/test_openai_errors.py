"""What the errors of OpenAI-compatible servers mean."""

from typing import Any

import pytest

from services.planner.models.direct.openai_reply import error_in, failure_of


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (400, {"code": "context_length_exceeded"}, "context_too_long"),
        (400, {"message": "This model's maximum context length is 8192 tokens."}, "context_too_long"),
        (400, {"type": "exceed_context_size_error", "message": "the request exceeds it"}, "context_too_long"),
        (413, {}, "context_too_long"),
        (400, {"code": "1261", "message": "no"}, "context_too_long"),
        (400, {"code": "content_filter"}, "model_refused"),
        (400, {"message": "blocked by our content management policy"}, "model_refused"),
        (422, {"message": "Unknown field"}, "model_refused"),
        (429, {"message": "Slow down, or reduce the length of the messages"}, "model_rate_limited"),
        (429, {"code": "insufficient_quota"}, "model_failed"),
        (401, {"message": "no key"}, "model_failed"),
        (500, {"message": "Input exceeds the available context size"}, "context_too_long"),
        (None, {"code": 429, "message": "slow down"}, "model_rate_limited"),
        (None, {"message": "something broke"}, "model_failed"),
    ],
)
def test_an_error_has_a_code(status: int | None, error: dict[str, Any], code: str) -> None:
    """By its own code, by known phrases where the status leaves it open, else by its status."""
    assert failure_of("openai/scripted", status, {}, error).fault.code == code


def test_a_quota_that_is_used_up_is_not_waited_for() -> None:
    """Another model may answer."""
    failure = failure_of("openai/scripted", 429, {"retry-after": "1"}, {"code": "insufficient_quota"})
    assert (failure.fault.retryable, failure.elsewhere) == (False, True)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b'{"error": {"message": "no", "code": "x"}}', {"message": "no", "code": "x"}),
        (b'[{"error": {"message": "no"}}]', {"message": "no"}),
        (b'{"error": "no"}', {"message": "no"}),
        (b'{"detail": "no"}', {"message": "no"}),
        (b'{"message": "no", "type": "y"}', {"message": "no", "type": "y"}),
        (b"no", {"message": "no"}),
        (b'"no"', {"message": "no"}),
    ],
)
def test_an_error_is_found_in_any_body(body: bytes, error: dict[str, Any]) -> None:
    """Servers differ."""
    assert error_in(body) == error


def test_only_codes_are_shown() -> None:
    """Of what the server wrote: no text, and nothing that looks like a key."""
    failure = failure_of("openai/scripted", 400, {}, {"message": "the secret", "code": "sk-abc", "type": "bad_request"})
    assert failure.fault.reason.endswith("(400, bad_request)")
