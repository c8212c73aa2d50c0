"""What of a reply is shown while it arrives, chunk by chunk."""

from typing import Any

from services.planner.replies.answer_stream import AnswerStream
from tests.conformance.compare import assert_same


def check(vector: dict[str, Any]) -> None:
    """Feed the chunks, then the same text in one piece and character by character: the split must not matter.

    Only what the vector names is compared.
    """
    given = vector["input"]
    expected = {field: value for field, value in vector["expected"].items() if value is not None}
    options: dict[str, Any] = {
        "action_format": given.get("action_format") or "auto",
        "tools": frozenset(given.get("tools") or ()),
    }
    text = "".join(given["chunks"])
    for chunks in (given["chunks"], [text], list(text)):
        stream = AnswerStream(**options)
        seen = [stream.feed(chunk) for chunk in chunks]
        shown = "".join(seen)
        assert_same(shown, expected.get("text", shown), f"the text of {len(chunks)} chunks")
        is_final = expected.get("is_terminal", stream.is_terminal)
        assert_same(stream.is_terminal, is_final, f"is_terminal after {len(chunks)} chunks")
        if chunks is given["chunks"] and "per_chunk" in expected:
            assert_same(seen, expected["per_chunk"], "the text per chunk")
