"""Replies of a megabyte, in one piece and in many: other runs go on meanwhile.

The limit is generous, for slow machines; each of these held the loop for longer, or did so on a busy machine.
"""

import json

import pytest

from services.planner.effects.model_call import in_parts
from services.planner.models.litellm import Delta
from services.planner.models.types import CallPiece
from tests.planner.conftest import Plan
from tests.support.loop_lag import loop_lag
from tests.support.model_server import ModelServer, Say, answer

STALL_S = 1.0
SIZE = 800_000


@pytest.mark.parametrize(
    "text",
    [
        "<think>abc</think>" * (SIZE // 18),
        "```json\n{}\n```\n" * (SIZE // 16),
        "The quick {brown} fox. " * (SIZE // 23),
        json.dumps({"next_node": "final_response", "args": {"answer": '\n"' * (SIZE // 4)}}),
        '{"next_node":"final_response","args":{' + ",".join(f'"k{n}":1' for n in range(SIZE // 10)) + "}}",
    ],
    ids=["think", "fences", "braces", "escapes", "keys"],
)
async def test_a_long_reply_in_one_piece_holds_nobody_up(plan: Plan, provider: ModelServer, text: str) -> None:
    """It is read in parts, and as a whole in a thread."""
    planning = await plan(max_repairs=0)
    provider.say(Say(text=text, piece=SIZE * 2), answer("done"))
    async with loop_lag() as lag:
        await planning.ended(await planning.ask(), wait_s=120)
    assert lag.worst_s < STALL_S


def test_the_parts_of_a_delta_are_the_delta() -> None:
    """Nothing is lost or comes twice; what is short stays whole."""
    short = Delta(text="hello", reasoning="so")
    assert list(in_parts(short)) == [short]
    long = Delta(text="ab" * 5000, reasoning="cd" * 7000, call=CallPiece(3, "look", "ef" * 3000))
    parts = list(in_parts(long))
    assert "".join(part.text for part in parts) == long.text
    assert "".join(part.reasoning for part in parts) == long.reasoning
    calls = [part.call for part in parts if part.call]
    assert [call.name for call in calls] == ["look"] + [""] * (len(calls) - 1)
    assert "".join(call.arguments for call in calls) == "ef" * 3000
    assert {call.index for call in calls} == {3}
    assert max(len(part.text) + len(part.reasoning) for part in parts) <= 1000
    assert [part.call.name for part in in_parts(Delta(text="a" * 2000, call=CallPiece(0, "look", ""))) if part.call] == ["look"]
