"""ACTIONS 3: what of a reply is shown while it arrives, chunk by chunk."""

from typing import Any

from services.planner.answer_stream import AnswerStream
from tests.conformance.compare import assert_same


def check(vector: dict[str, Any]) -> None:
    """Feed the chunks as they are, then the same text in one piece and character by character: the split must not matter."""
    given, expected = vector["input"], vector["expected"]
    options = {"action_format": given.get("action_format", "auto"), "tools": frozenset(given.get("tools", ()))}
    text = "".join(given["chunks"])
    for chunks in (given["chunks"], [text], list(text)):
        stream = AnswerStream(**options)
        seen = [stream.feed(chunk) for chunk in chunks]
        assert_same("".join(seen) + stream.finish(), expected["text"], f"the text of {len(chunks)} chunks")
        assert_same(stream.is_terminal, expected["is_terminal"], f"is_terminal after {len(chunks)} chunks")
        if chunks is given["chunks"] and "per_chunk" in expected:
            assert_same(seen, expected["per_chunk"], "the text per chunk")
