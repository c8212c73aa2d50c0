"""What OpenAI-compatible servers send, each in its own way, and what is read of it."""

from typing import Any

import orjson
import pytest

from contracts.runs.payload import Usage
from services.planner.models.errors import ModelFailed
from services.planner.models.openai_reply import MAX_REPETITIONS, ReplyReader
from services.planner.models.types import Delta


def chunk(delta: dict[str, Any], **more: Any) -> bytes:
    return b"data: " + orjson.dumps({"choices": [{"index": 0, "delta": delta, **more}]})


def read(*lines: bytes) -> tuple[ReplyReader, list[Delta]]:
    reader = ReplyReader("openai/scripted")
    return reader, [*(delta for line in lines for delta in reader.read_line(line)), *reader.end()]


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
    told = [(delta.text, delta.reasoning) for delta in deltas]
    assert told == [("", "vLLM thinks, "), ("", "Ollama too"), ("yes", "")]
    assert (reader.text, reader.reasoning) == ("yes", "vLLM thinks, Ollama too")
    assert (reader.finish_reason, reader.ended) == ("stop", True)


def test_a_content_may_be_a_list_of_parts() -> None:
    """As Mistral's reasoning models send it."""
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    reader, _ = read(chunk({"content": [thinking, {"type": "text", "text": "yes"}]}))
    assert (reader.text, reader.reasoning) == ("yes", "hm")


def test_a_reply_that_came_as_reasoning_is_the_reply() -> None:
    """One whole object is no thought; anything else may be one."""
    reader, deltas = read(chunk({"reasoning_content": '{"next_node": '}), chunk({"reasoning_content": '"look"}'}))
    assert (reader.text, deltas[-1]) == ('{"next_node": "look"}', Delta('{"next_node": "look"}'))
    assert read(chunk({"reasoning": 'So {"next_node": "look"}'}))[0].text == ""


USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "prompt_cache_hit_tokens": 5, "reasoning_tokens": 3}


@pytest.mark.parametrize(
    "last",
    [
        {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": USAGE},
        {"choices": [], "x_groq": {"usage": USAGE}},
    ],
)
def test_usage_is_read_wherever_it_stands(last: dict[str, Any]) -> None:
    """In a chunk of its own, beside the last choice, with cached tokens in either place."""
    reader, _ = read(chunk({"content": "yes"}), b"data: " + orjson.dumps(last))
    counted = Usage(model_calls=1, prompt_tokens=11, completion_tokens=7, cached_tokens=5, reasoning_tokens=3)
    assert reader.usage == counted


def test_the_end_may_be_called_a_stop_reason() -> None:
    """Where there is no finish reason."""
    reader, _ = read(chunk({"content": "a"}), chunk({}, finish_reason=None, stop_reason="max_tokens"))
    assert reader.finish_reason == "max_tokens"


def test_without_usage_there_is_none() -> None:
    """An estimate is made by the caller, and marked."""
    assert read(chunk({"content": "yes"}), b'data: {"choices": [], "usage": null}')[0].usage is None


@pytest.mark.parametrize(
    "delta",
    [
        {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "look", "arguments": {"q": "tea"}}}]},
        {"tool_calls": [{"index": "0", "id": None, "function": {"name": "look", "arguments": '{"q":"tea"}'}}]},
        {"function_call": {"name": "look", "arguments": '{"q":"tea"}'}, "tool_calls": None},
        {"tool_calls": [{"index": 0.0, "name": "look", "parameters": {"q": "tea"}}]},
        {"tool_calls": {"1": {"function": {"name": "look", "arguments": '{"q":"tea"}'}}}},
    ],
    ids=["object", "number as text", "old form", "flat", "no list"],
)
def test_a_call_has_one_of_several_forms(delta: dict[str, Any]) -> None:
    """Each of them is in use."""
    reader, _ = read(chunk({}), chunk(delta))
    assert [call["function"] for call in reader.tool_calls] == [{"name": "look", "arguments": '{"q":"tea"}'}]


def test_a_model_that_says_one_thing_for_ever_is_stopped() -> None:
    """Equal pieces of some length; a long rule of dashes is none."""
    read(*[chunk({"content": "--------"})] * MAX_REPETITIONS)
    read(*[chunk({"content": " "})] * (MAX_REPETITIONS + 1))
    with pytest.raises(ModelFailed, match="said the same over and over"):
        read(*[chunk({"content": "--------"})] * (MAX_REPETITIONS + 1))


WHOLE = orjson.dumps({"choices": [{"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}]})
CHUNK = b'{"choices": [{"delta": {"content": "yes"}, "finish_reason": "stop"}]}'
HALF = b'{"id": "\\ud83c", "choices": [{"delta": {"content": "yes"}, "finish_reason": "stop", "logprobs": NaN}]}'


@pytest.mark.parametrize(
    "body",
    [
        WHOLE,
        b"\xef\xbb\xbf" + WHOLE,
        b"\n \n" + WHOLE + b"\n\ndata: [DONE]\n",
        b"[" + WHOLE + b"]",
        orjson.dumps(orjson.loads(WHOLE), option=orjson.OPT_INDENT_2).replace(b"\n", b"\n\n"),
        b"data: " + WHOLE,
        CHUNK,
        b"[" + CHUNK + b",\n" + b'{"choices": []}' + b"]",
        b"\xef\xbb\xbfdata: " + CHUNK,
        b"data:\n" + CHUNK,
        b"Loading the model\n{\ndata: " + CHUNK,
        b"Loading the model\n" + WHOLE,
        b"data: " + CHUNK[:13] + b"\ndata: " + CHUNK[13:] + b"\n\ndata: [DONE]",
        b"data: " + CHUNK + b'\n\ndata: "[DONE]"\n\ndata: {no JSON',
        b"data: " + HALF,
        b"data: " + CHUNK + b"\ndata: " + WHOLE,
    ],
)
def test_a_completion_comes_in_any_frame(body: bytes) -> None:
    """Whole or in events, in one or on several lines."""
    reader, deltas = read(*body.splitlines(keepends=True))
    assert (deltas, reader.text, reader.finish_reason, reader.error) == ([Delta("yes")], "yes", "stop", None)


def test_of_a_message_behind_its_deltas_only_the_rest_is_read() -> None:
    """Some servers repeat all of it, some keep the calls for it."""
    call = {"id": "a", "function": {"name": "look", "arguments": "{}"}}
    message = {"content": "yes", "reasoning": "hm", "tool_calls": [call]}
    begun = chunk({"content": "ye"}), chunk({"content": "s"})
    reader, _ = read(*begun, chunk({}, message=message, finish_reason="stop"))
    assert (reader.text, reader.reasoning, len(reader.tool_calls)) == ("yes", "hm", 1)
    assert read(*begun, chunk({"content": "yes"}, finish_reason="stop"))[0].text == "yes"


@pytest.mark.parametrize("late", [chunk({"content": " and more"}), b"data: {no JSON", b"data: [DONE]"])
def test_what_follows_the_end_is_ignored(late: bytes) -> None:
    """A complete reply stays as it is."""
    reader, _ = read(chunk({"content": "yes"}), b"data: [DONE]", late)
    assert (reader.text, reader.ended) == ("yes", True)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (b'data: {"error": {"message": "overloaded", "code": 529}}', "overloaded"),
        (b'data: {"object": "error", "message": "too long", "code": 400}', "too long"),
        (b'data: {"choices": [{"delta": {}, "error": {"message": "no"}}]}', "no"),
        (b"event: error\ndata: upstream is gone\n\n", "upstream is gone"),
        (b'event: error\ndata: {"message": "no"}\n\n', "no"),
        (b'data: {"error_code": 18, "error_msg": "no"}', "no"),
        (b'{"base_resp": {"status_code": 1004, "status_msg": "no"}, "choices": null}', "no"),
        (b'{"success": false, "errors": [{"code": 7, "message": "no"}]}', "no"),
        (b'{"detail": "no"}', "no"),
        (b'{"detail": [{"msg": "no"}]}', [{"msg": "no"}]),
    ],
)
def test_an_error_may_have_status_200(lines: bytes, message: Any) -> None:
    """In one of several shapes."""
    reader, deltas = read(*lines.splitlines(keepends=True))
    assert deltas == []
    assert (reader.error or {})["message"] == message


def test_a_word_beside_a_reply_is_no_error() -> None:
    """Only where nothing follows."""
    reader, _ = read(
        b'data: {"message": "waiting"}',
        chunk({"content": "yes"}),
        b'data: {"base_resp": {"status_code": 0, "status_msg": "success"}}',
    )
    assert (reader.text, reader.error) == ("yes", None)


@pytest.mark.parametrize(
    "line", [b": a comment", b"", b"event: ping", b"data: {}", b'data: {"choices": []}', b'data: {"choices": [null]}']
)
def test_what_says_nothing_changes_nothing(line: bytes) -> None:
    """Comments, empty chunks, names of events."""
    reader, deltas = read(line)
    assert (deltas, reader.begun, reader.ended) == ([], False, False)


@pytest.mark.parametrize("line", [b"data: {", b"data: 7", b"data: [1]", b"data: \xff", b"data: " + b"[" * 100_000])
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
