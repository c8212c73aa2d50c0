"""Bytes of servers, cut anywhere and altered anywhere: what is read of them depends on the bytes alone."""

import json
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from services.planner.models.errors import ModelFailed
from services.planner.models.limits import WholeLines
from services.planner.models.openai_reply import ReplyReader
from services.planner.models.types import Delta


def chunk(delta: dict[str, Any], **more: Any) -> str:
    return json.dumps({"id": "1", "choices": [{"index": 0, "delta": delta, **more}]})


def call(arguments: str, **more: Any) -> dict[str, Any]:
    return {"tool_calls": [{**more, "function": {"name": "look", "arguments": arguments}}]}


TEXT = [chunk({"content": "Tea \ud83c"}), chunk({"content": "\udf75, ça va \ud83c"}), chunk({}, finish_reason="stop")]
CALLS = [
    chunk(call('{"q": "t', index=0, id="a")),
    chunk(call('ea"}{"q": ', index=0)),
    chunk({"function_call": {"arguments": "1}"}}, finish_reason="tool_calls"),
]
REPEATED = [chunk({"reasoning": "so"}), *(chunk({"content": "Tea is grown"[:size]}) for size in (3, 6, 12))]
WHOLE = {"choices": [{"message": {"content": "Tea.", "tool_calls": call("{}")["tool_calls"]}, "finish_reason": "stop"}]}
ERRORS = [TEXT[0], json.dumps({"object": "error", "message": "too long", "code": 400})]


def events(chunks: Iterable[str], end: str = "\n\n") -> str:
    return "".join(f"data: {each}{end}" for each in [*chunks, "[DONE]"])


BODIES = [
    *(events(chunks, end) for chunks in (TEXT, CALLS, REPEATED, ERRORS) for end in ("\n\n", "\r\n\r\n", "\r\r", "\n")),
    ": waiting\n\n" + events(TEXT).replace("data: ", "event: message\nid: 7\ndata:"),
    events(each.replace('"choices"', '\ndata: "choices"') for each in TEXT),
    "Loading the model\n[\n" + events(TEXT),
    "event: error\ndata: upstream is gone\n\n",
    "\ufeff" + json.dumps(WHOLE, indent=2),
    json.dumps(WHOLE) + "\n\ndata: [DONE]\n",
    "\n".join(TEXT),
    "[" + ",\n".join(TEXT) + "]",
    '{"detail": "no"}',
    "<html>\n<body>no</body>",
]


def outcome(parts: Iterable[bytes]) -> tuple[Any, ...]:
    """What is read of a reply whose bytes come in these parts. The deltas are the reply."""
    reader, lines, fault = ReplyReader("m"), WholeLines("m", 1 << 20), ""
    deltas: list[Delta] = []

    def read() -> Iterator[Delta]:
        for part in parts:
            for line in lines.feed(part):
                yield from reader.read_line(line)
        yield from reader.read_line(lines.rest())
        yield from reader.end()

    try:
        for delta in read():
            deltas += [delta]
    except ModelFailed as failed:
        fault = failed.fault.reason
    assert "".join(delta.text for delta in deltas) == reader.text
    assert "".join(delta.reasoning for delta in deltas) == reader.reasoning
    reader.text.encode()
    calls = [(each["function"]["name"], each["function"]["arguments"]) for each in reader.tool_calls]
    return reader.text, reader.reasoning, calls, reader.finish_reason, reader.ended, reader.error, fault


PLACES = st.integers(0)
CHANGES = st.tuples(PLACES, st.integers(0, 9), st.binary(max_size=4) | st.sampled_from([b"\n", b'"', b"{}"]))


@given(st.sampled_from(BODIES), st.lists(PLACES), st.lists(CHANGES))
def test_bytes_may_be_cut_anywhere(text: str, cuts: list[int], changes: list[tuple[int, int, bytes]]) -> None:
    """The same text and calls, or the same failure, as of the whole; also where bytes are lost, added or others."""
    body = text.encode()
    for at, lost, added in changes:
        at %= len(body) + 1  # noqa: PLW2901
        body = body[:at] + added + body[at + lost :]
    places = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    assert outcome(body[start:stop] for start, stop in pairwise(places)) == outcome([body])


def test_the_bodies_say_something() -> None:
    """So that the property compares more than nothing."""
    found = [outcome([body.encode()]) for body in BODIES]
    assert {each[0] for each in found} == {"Tea \U0001f375, ça va \ufffd", "", "Tea is grown", "Tea \ufffd", "Tea."}
    assert {tuple(each[2]) for each in found} >= {(("look", '{"q": "tea"}'), ("look", '{"q": 1}')), (("look", "{}"),)}
