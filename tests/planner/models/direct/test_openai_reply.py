"""What OpenAI-compatible servers send, each in its own way, and what is read of it."""

from typing import Any

import orjson
import pytest

from services.planner.models.direct.openai_reply import MAX_CALLS, MAX_REPETITIONS, ReplyReader
from services.planner.models.errors import ModelFailed
from services.planner.models.types import Delta


def chunk(delta: dict[str, Any], **more: Any) -> bytes:
    """A line of a stream."""
    return b"data: " + orjson.dumps({"choices": [{"index": 0, "delta": delta, **more}]})


def read(*lines: bytes) -> tuple[ReplyReader, list[Delta]]:
    """Read a whole stream."""
    reader = ReplyReader("openai/scripted")
    return reader, [delta for line in lines for delta in reader.read_line(line)]


def test_text_and_reasoning_are_passed_on_and_kept() -> None:
    """Whatever the server calls its reasoning."""
    reader, deltas = read(
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "vLLM thinks, "}),
        chunk({"reasoning": "Ollama too"}),
        chunk({"content": "yes"}),
        chunk({"content": None}, finish_reason="stop"),
        b"data: [DONE]",
    )
    assert [(delta.text, delta.reasoning) for delta in deltas] == [
        ("", "vLLM thinks, "),
        ("", "Ollama too"),
        ("yes", ""),
    ]
    assert (reader.text, reader.reasoning) == ("yes", "vLLM thinks, Ollama too")
    assert (reader.finish_reason, reader.ended) == ("stop", True)


def test_a_content_may_be_a_list_of_parts() -> None:
    """As Mistral's reasoning models send it."""
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    reader, _ = read(chunk({"content": [thinking, {"type": "text", "text": "yes"}]}))
    assert (reader.text, reader.reasoning) == ("yes", "hm")


@pytest.mark.parametrize("usage_beside_choices", [True, False])
def test_usage_is_read_wherever_it_stands(*, usage_beside_choices: bool) -> None:
    """In a chunk of its own, beside the last choice, with cached tokens in either place."""
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "prompt_cache_hit_tokens": 5, "reasoning_tokens": 3}
    lines = [chunk({"content": "yes"})]
    if usage_beside_choices:
        lines.append(b"data: " + orjson.dumps({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": usage}))
    else:
        lines.append(b"data: " + orjson.dumps({"choices": [], "x_groq": {"usage": usage}}))
    reader, _ = read(*lines)
    assert reader.usage is not None
    counts = reader.usage
    assert (counts.prompt_tokens, counts.completion_tokens, counts.cached_tokens, counts.reasoning_tokens) == (
        11,
        7,
        5,
        3,
    )


def test_without_usage_there_is_none() -> None:
    """An estimate is made by the caller, and marked."""
    assert read(chunk({"content": "yes"}), b'data: {"choices": [], "usage": null}')[0].usage is None


def test_tool_calls_are_put_together() -> None:
    """Pieces in turns, one index for all, a name in each piece, arguments as an object: each of them is in use."""
    first = {"index": 0, "id": "a", "function": {"name": "search", "arguments": '{"q": '}}
    reader, deltas = read(
        chunk({"tool_calls": [first]}),
        chunk({"tool_calls": [{"index": 0, "function": {"name": "search", "arguments": '"nats"}'}}]}),
        chunk({"tool_calls": [{"index": 0, "id": "b", "function": {"name": "clock", "arguments": {}}}]}),
    )
    assert [call["function"] for call in reader.tool_calls] == [
        {"name": "search", "arguments": '{"q": "nats"}'},
        {"name": "clock", "arguments": "{}"},
    ]
    assert [delta.call.index for delta in deltas if delta.call] == [0, 0, 1]


def test_tool_calls_have_a_limit() -> None:
    """A reply of nothing but beginnings of calls ends."""
    with pytest.raises(ModelFailed, match="more than 128 tool calls"):
        read(
            *(
                chunk({"tool_calls": [{"index": number, "id": str(number), "function": {"name": "clock"}}]})
                for number in range(MAX_CALLS + 1)
            )
        )


def test_a_model_that_says_one_thing_for_ever_is_stopped() -> None:
    """Equal pieces of some length; a long rule of dashes is none."""
    read(*[chunk({"content": "--------"})] * MAX_REPETITIONS)
    read(*[chunk({"content": " "})] * (MAX_REPETITIONS + 1))
    with pytest.raises(ModelFailed, match="said the same over and over"):
        read(*[chunk({"content": "--------"})] * (MAX_REPETITIONS + 1))


def test_a_whole_completion_is_read() -> None:
    """Some servers do not stream, whatever they are asked."""
    reader = ReplyReader("openai/scripted")
    body = {"choices": [{"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}]}
    assert list(reader.read_whole(orjson.dumps(body))) == [Delta("yes")]
    assert reader.ended


@pytest.mark.parametrize("late", [chunk({"content": " and more"}), b"data: {no JSON", b"data: [DONE]"])
def test_what_follows_the_end_is_ignored(late: bytes) -> None:
    """A complete reply stays as it is."""
    reader, _ = read(chunk({"content": "yes"}), b"data: [DONE]", late)
    assert (reader.text, reader.ended) == ("yes", True)


def test_an_error_inside_a_stream_is_kept() -> None:
    """It has no status of HTTP."""
    reader, deltas = read(b'data: {"error": {"message": "overloaded", "code": 529}}')
    assert (reader.error, deltas) == ({"message": "overloaded", "code": 529}, [])


@pytest.mark.parametrize(
    "line", [b": a comment", b"", b"event: ping", b"data: {}", b'data: {"choices": []}', b'data: {"choices": [null]}']
)
def test_what_says_nothing_changes_nothing(line: bytes) -> None:
    """Comments, empty chunks, names of events."""
    reader, deltas = read(line)
    assert (deltas, reader.begun, reader.ended) == ([], False, False)


@pytest.mark.parametrize("line", [b"data: {", b"data: 7", b"data: [1]", b"data: \xff"])
def test_a_malformed_chunk_is_a_failure(line: bytes) -> None:
    """Whose text does not hang on the exception."""
    with pytest.raises(ModelFailed, match="malformed stream") as caught:
        read(line)
    assert caught.value.fault.retryable
    assert caught.value.__context__ is None


@pytest.mark.parametrize("odd", [7, None, [], {}, [7], [None], {"a": 1}, True])
def test_fields_of_other_types_are_ignored(odd: Any) -> None:
    """A server that sends anything anywhere breaks nothing."""
    for field in ("content", "reasoning_content", "reasoning", "tool_calls"):
        read(chunk({field: odd}))
    read(b"data: " + orjson.dumps({"choices": odd, "usage": odd, "x_groq": odd}))
    read(chunk({"tool_calls": [{"index": odd, "id": odd, "function": odd}]}))
    read(chunk({"tool_calls": [{"index": 0, "function": {"name": odd, "arguments": odd}}]}))
