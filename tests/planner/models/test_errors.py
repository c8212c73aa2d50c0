"""What is said of a failure, and the pause that a provider asks for."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from services.planner.models.errors import RATE_LIMITED, failure, meaning_of_status, no_reply, retry_after


@pytest.mark.parametrize(
    ("headers", "pause_s"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({}, None),
    ],
)
def test_a_pause_is_read_in_each_form(headers: dict[str, str], pause_s: float | None) -> None:
    """Milliseconds, seconds, or a date."""
    assert retry_after(headers) == pause_s


def test_a_pause_until_a_date_counts_from_now() -> None:
    """In seconds."""
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert retry_after({"retry-after": date}) == pytest.approx(60, abs=2)


def test_only_a_failure_that_may_pass_has_a_pause() -> None:
    """A wrong key is not waited for."""
    assert failure(RATE_LIMITED, "m", headers={"retry-after": "7"}).retry_after_s == 7
    assert failure(meaning_of_status(401), "m", headers={"retry-after": "7"}).retry_after_s is None


@pytest.mark.parametrize(
    ("finish_reason", "content_type", "beginning", "reason"),
    [
        ("content_filter", "text/html", b"<p>no", "the provider of m filtered the reply"),
        ("length", "", b"", "m used up its output limit before it said anything"),
        ("stop", "text/event-stream", b"", "m gave an empty reply"),
        (None, "text/plain; charset=utf-8", b"prompt", "the server of m sent text/plain instead of a completion"),
        (None, "Text/HTML", b"<script>x = 1 <b>Hi</b>", "the server of m sent text/html instead of a completion"),
        (None, "text/html", b"<b>Hi <i", "the server of m sent text/html ('Hi') instead of a completion"),
        (None, "the prompt", b"x", "the server of m sent something else instead of a completion"),
    ],
)
def test_a_reply_without_content_is_described(
    finish_reason: str | None, content_type: str, beginning: bytes, reason: str
) -> None:
    """By its finish reason, else by what came instead. Only the words of a page are shown."""
    assert no_reply("m", finish_reason, content_type, beginning).fault.reason.startswith(reason)
