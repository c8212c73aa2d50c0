"""What is said of a failure, and the pause that a provider asks for."""

import time
from email.utils import formatdate

import pytest

from services.planner.models.errors import RATE_LIMITED, failure, is_too_long, meaning_of_status, no_reply, retry_after


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
    assert retry_after({"retry-after": formatdate(time.time() + 60, usegmt=True)}) == pytest.approx(60, abs=2)


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
        (
            None,
            "application/json",
            b'{"id": 1, "a b": "c"}',
            "the server of m sent application/json with the fields id",
        ),
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


@pytest.mark.parametrize(
    "text",
    [
        "maximum context length is 4096 tokens, you requested 5000 (200 in the functions)",
        "the input (5000 tokens) is longer than the model's context length (4096 tokens)",
        "the request exceeds the available context size",
        "the context length is only 4096 tokens",
        "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
        "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000",
        "invalid params, context window exceeds limit (2013)",
        "prompt length 9000 is greater than max_seq_len 8192",
        "the decoder prompt is longer than the maximum model length of 4096",
        "max_tokens must be at least 1, got -904",
        "maximum prompt length is 131072 but the request contains 200000 tokens",
        "model_max_prompt_tokens_exceeded",
        "Range of input length should be [1, 30720]",
        "Please reduce the length of the messages",
        "Prompt exceeds max length",
        "Input is too long for requested model.",
        "prompt is too long: 208310 tokens > 200000 maximum",
        "input token count (1200000) exceeds the maximum number of tokens allowed (1048576)",
        "`inputs` tokens + `max_new_tokens` must be <= 8193",
        "`inputs` must have less than 4096 tokens",
        "tokens in request more than max tokens allowed",
        "too many tokens: the prompt cannot exceed 4081",
        "your request exceeded model token limit: 8192",
        "the prompt has 9000 tokens but only 8192 fit",
        "输入过长",
        "上下文长度超过模型限制",
    ],
)
def test_a_conversation_that_is_too_long_is_known_in_any_words(text: str) -> None:
    """By what they mean."""
    assert is_too_long("", text)


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens",
        "max_tokens: 100000 > 8192, the maximum allowed number of output tokens",
        "Input should be less than or equal to 2",
        "Rate limit reached: tokens per min exceed 30000",
        "messages.0.content: image exceeds 5 MB maximum",
        "Invalid 'tools[0].function.name': string too long, maximum length 64",
        "stop: too many stop sequences, maximum 4",
        "You exceeded your current quota",
        "model limit of concurrent requests exceeded",
        "messages: roles must alternate",
        "only the default (1) value is supported with this model",
    ],
)
def test_other_limits_are_not_its_length(text: str) -> None:
    """Of the output, of rates, of other parts of a request."""
    assert not is_too_long("", text)


def test_what_an_error_says_is_searched_in_linear_time() -> None:
    """However often it begins to say it."""
    began = time.thread_time()
    for word in ("input ", "token ", "exceed ", "max prompt ", "context length "):
        assert not is_too_long("", word * 100_000) or word == "context length "
    assert time.thread_time() - began < 1.0
