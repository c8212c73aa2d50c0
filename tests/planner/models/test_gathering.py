"""Pieces of texts and of native calls, as different servers send them, put together."""

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.planner.models.errors import ModelFailed
from services.planner.models.gathering import MAX_CALLS, Gathered, Piece, Strand
from services.planner.models.types import Delta

TEA, MILK = '{"q": "tea"}', '{"q": "milk"}'
LOOKS = [("look", TEA), ("look", MILK)]
BOTH = [("look", TEA), ("save", MILK)]
Pieces = Sequence[tuple[int | None, str, str, str]]
"""Index, id, name and arguments of each."""


class Gathering(Gathered):
    """A reply of calls, with what is told of them."""

    def __init__(self, pieces: Pieces) -> None:
        super().__init__("m")
        self.deltas = list(self._read(pieces))
        self.calls = [(call["function"]["name"], call["function"]["arguments"]) for call in self.tool_calls]

    def _read(self, pieces: Pieces) -> Iterator[Delta]:
        for piece in pieces:
            yield from self._add_call(Piece(*piece))
        yield from self.end()


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        ([(0, "1", "look", '{"q": '), (0, "", "", '"tea"}'), (1, "2", "save", MILK)], BOTH),
        ([(0, "1", "look", '{"q": '), (1, "2", "save", '{"q": '), (0, "", "", '"tea"}'), (1, "", "", '"milk"}')], BOTH),
        # One number for all, with ids, with one id, without any, and without names.
        ([(0, "1", "look", TEA), (0, "2", "save", MILK)], BOTH),
        ([(0, "1", "look", TEA), (0, "1", "look", MILK)], LOOKS),
        ([(0, "", "look", TEA), (0, "", "save", ""), (0, "", "", MILK)], BOTH),
        ([(0, "", "look", ""), (0, "", "", TEA), (0, "", "look", ""), (0, "", "", MILK)], LOOKS),
        ([(0, "1", "look", TEA), (0, "2", "", MILK)], LOOKS),
        ([(0, "1", "look", '{"q": "tea"} {"q": "m'), (0, "1", "look", 'ilk"}')], LOOKS),
        ([(0, "1", "save", TEA), (1, "1", "look", MILK)], [("save", TEA), ("look", MILK)]),
        # No number.
        ([(None, "1", "look", '{"q": '), (None, "", "", '"tea"}'), (None, "2", "save", MILK)], BOTH),
        ([(None, "1", "look", '{"q": '), (None, "2", "save", MILK), (None, "1", "", '"tea"}')], BOTH),
        ([(None, "", "look", ""), (None, "", "save", MILK)], [("look", ""), BOTH[1]]),
        # A number for each piece.
        ([(0, "1", "look", '{"q": '), (1, "", "", '"tea"}'), (2, "2", "save", MILK)], BOTH),
        # The name in each piece, in pieces, or after the id.
        ([(0, "1", "look", '{"q": '), (0, "1", "look", '"tea"'), (0, "1", "look", "}")], LOOKS[:1]),
        ([(0, "1", "lo", ""), (0, "", "ok", TEA)], LOOKS[:1]),
        ([(0, "1", "", ""), (0, "", "look", TEA)], LOOKS[:1]),
        # The id last, or another one in each piece.
        ([(0, "", "look", TEA), (0, "1", "", "")], LOOKS[:1]),
        ([(0, "1", "look", '{"q": '), (0, "other", "", '"tea"}')], LOOKS[:1]),
        # All of it again; all so far in each piece.
        ([(0, "1", "look", '{"q": '), (0, "", "", '"tea"}'), (0, "1", "look", TEA)], LOOKS[:1]),
        ([(0, "1", "look", TEA[:size]) for size in (3, 7, 9, 12, 12)], LOOKS[:1]),
        ([(0, "1", "look", TEA[:6]), (0, "1", "look", TEA)], LOOKS[:1]),
        ([(0, "1", "look", '{"q": '), (0, "1", "", '{"q": 1}}')], [("look", '{"q": {"q": 1}}')]),
        # Something before the arguments.
        ([(0, "1", "look", "{}"), (0, "", "", TEA)], LOOKS[:1]),
        ([(0, "1", "look", "{"), (0, "", "", "}"), (0, "", "look", TEA)], LOOKS[:1]),
        ([(0, "1", "look", "{}"), (1, "2", "save", MILK)], [("look", "{}"), BOTH[1]]),
        ([(0, "1", "look", TEA + "<|im_"), (0, "", "", "end|>\n</tool_call>")], LOOKS[:1]),
        ([(0, "1", "look", "``"), (0, "", "", "`json\n" + TEA), (0, "", "", "\n```")], LOOKS[:1]),
        # Nothing at all, and what is no JSON.
        ([(0, "", "", "")], []),
        ([(0, "1", "look", "{'q': 'a'}"), (0, "", "", "}")], [("look", "{'q': 'a'}}")]),
    ],
)  # fmt: skip
def test_pieces_of_calls_come_together(pieces: Pieces, calls: list[tuple[str, str]]) -> None:
    """However they are numbered, named and repeated: whole and in order."""
    assert Gathering(pieces).calls == calls


@given(
    st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=8), min_size=1), min_size=1, max_size=3),
    st.lists(st.integers(0)),
    st.sampled_from(["numbers", "one number", "no number", "ids alone"]),
)
def test_calls_may_be_cut_anywhere(values: list[dict[str, str]], cuts: list[int], form: str) -> None:
    """Arguments in any pieces give the same calls, and what is told of them is what they are."""
    pieces: list[tuple[int | None, str, str, str]] = []
    for number, value in enumerate(values):
        text = json.dumps(value, ensure_ascii=False)
        places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
        index = {"numbers": number, "one number": 0}.get(form)
        for at, (start, stop) in enumerate(pairwise(places)):
            call_id = f"c{number}" if at == 0 or form == "ids alone" else ""
            pieces.append((index, call_id, "" if at else f"tool_{number}", text[start:stop]))
    gathering = Gathering(pieces)
    expected = [(f"tool_{number}", value) for number, value in enumerate(values)]
    assert [(name, json.loads(arguments)) for name, arguments in gathering.calls] == expected
    told = [""] * len(values)
    for delta in gathering.deltas:
        assert delta.call
        told[delta.call.index] += delta.call.arguments
    assert told == [arguments for _, arguments in gathering.calls]


def test_a_reply_has_so_many_calls() -> None:
    """A reply of nothing but beginnings of calls ends, and arguments that run together count too."""
    with pytest.raises(ModelFailed, match="more than 128 tool calls"):
        Gathering([(number, str(number), "look", "") for number in range(MAX_CALLS + 1)])
    with pytest.raises(ModelFailed, match="more than 128 tool calls"):
        Gathering([(0, "1", "look", TEA * 100_000)])


def test_brackets_in_a_text_are_no_end_of_arguments() -> None:
    """However often they look like one: what the arguments are is asked some times only."""
    gathering = Gathering(
        [(0, "1", "look", '{"q": "'), *[(0, "", "", "}"), (0, "", "", "{")] * 5_000, (0, "", "", '"}')]
    )
    assert gathering.calls == [("look", '{"q": "' + "}{" * 5_000 + '"}')]


@pytest.mark.parametrize(
    ("pieces", "told"),
    [
        (["Tea \ud83c", "\udf75 now"], ["Tea ", "\U0001f375 now"]),
        (["Tea \ud83c now \udf75", "\ud83c"], ["Tea \ufffd now \ufffd", "", "\ufffd"]),
        (["\ud83c", "", "\ud83c", "\udf75"], ["", "", "\ufffd", "\U0001f375"]),
        (["Tea", "Tea is", "Tea is grown", "Tea is grown", "."], ["Tea", "", " is grown", "", "."]),
        (["Tea", "Tea is", " it"], ["Tea", "", "Tea is it"]),
        (["1", "10"], ["1", "", "10"]),
        (["ha ", "ha ", "ha"], ["ha ", "ha ", "ha"]),
        (["Tea \ud83c", "Tea \ud83c\udf75", "Tea \ud83c\udf75!"], ["Tea ", "", "\U0001f375!"]),
    ],
)  # fmt: skip
def test_a_text_comes_in_pieces(pieces: list[str], told: list[str]) -> None:
    """Halves of a character are joined; a text that each piece repeats is there once, one that repeats itself stays."""
    strand = Strand()
    found = [*(strand.add(piece) for piece in pieces), strand.end()]
    assert found[: len(told)] == told
    assert "".join(found) == "".join(told) == strand.text
