"""Pieces of native calls, as different servers send them."""

from types import SimpleNamespace
from typing import Any

import pytest

from services.planner.models.litellm.model import GatheredChunks
from services.planner.models.types import CallPiece

Piece = tuple[int, str | None, str | None, str]
"""Index, id, name, arguments."""
BOTH = [("look", '{"q": "a"}'), ("save", '{"q": "b"}')]


def chunk(index: int, call_id: str | None, name: str | None, arguments: str) -> Any:
    """One chunk with one piece of a call."""
    call = SimpleNamespace(index=index, id=call_id, function=SimpleNamespace(name=name, arguments=arguments))
    delta = SimpleNamespace(content=None, tool_calls=[call])
    return SimpleNamespace(usage=None, choices=[SimpleNamespace(finish_reason=None, delta=delta)])


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        ([(0, "1", "look", '{"q": '), (0, None, None, '"a"}'), (1, "2", "save", '{"q": "b"}')], BOTH),
        ([(0, "1", "look", '{"q": "a"}'), (0, "2", "save", '{"q": "b"}')], BOTH),
        (
            [(0, "1", "look", '{"q": '), (1, "2", "save", '{"q": '), (0, None, None, '"a"}'), (1, None, None, '"b"}')],
            BOTH,
        ),
        (
            [(0, "1", "look", '{"q": "a"}'), (0, "2", "look", '{"q": "b"}')],
            [("look", '{"q": "a"}'), ("look", '{"q": "b"}')],
        ),
        ([(0, "1", "look", '{"q": '), (0, "1", "look", '"a"}')], [("look", '{"q": "a"}')]),
        ([(0, "1", "lo", ""), (0, None, "ok", '{"q": "a"}')], [("look", '{"q": "a"}')]),
        ([(0, "1", "look", '{"q": '), (0, "other", None, '"a"}')], [("look", '{"q": "a"}')]),
        ([(0, None, "look", '{"q": "a"}')], [("look", '{"q": "a"}')]),
    ],
)
def test_pieces_of_calls_come_together(pieces: list[Piece], calls: list[tuple[str, str]]) -> None:
    """However they are numbered and named, whole and in order; each piece says to which call it belongs."""
    gathered = GatheredChunks()
    given: dict[int, str] = {}
    for piece in pieces:
        for _, _, call in gathered.take(chunk(*piece)):
            assert isinstance(call, CallPiece)
            given[call.index] = given.get(call.index, "") + call.arguments
    found = [(call["function"]["name"], call["function"]["arguments"]) for call in gathered.tool_calls]
    assert found == calls
    assert [given[place] for place in range(len(calls))] == [arguments for _, arguments in calls]


def test_many_calls_are_taken_in_as_quickly_as_few() -> None:
    """Each finds its place at once."""
    gathered = GatheredChunks()
    for index in range(30_000):
        list(gathered.take(chunk(index, str(index), "look", "{}")))
    assert len(gathered.tool_calls) == 30_000
