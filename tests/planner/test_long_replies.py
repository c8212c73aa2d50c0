"""Replies of a megabyte, in one piece and in many: other runs go on meanwhile.

The limit is generous, for slow machines; each of these held the loop for longer, or did so on a busy machine.
"""

import json
import time
from collections.abc import Callable

import pytest

from benchmarks.long_replies import SHAPES, read
from services.planner.effects.model_call import in_parts
from services.planner.models.types import CallPiece, Delta, Reply
from services.planner.replies.actions.reading import MAX_ITEMS, MAX_VALUES
from services.planner.replies.answer_stream import AnswerStream
from services.planner.run.ending import terminal
from services.planner.run.state.run import Run
from services.planner.run.turn.decision import Final
from services.planner.strategies.react.reading import ReactReading
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
    assert [
        part.call.name for part in in_parts(Delta(text="a" * 2000, call=CallPiece(0, "look", ""))) if part.call
    ] == ["look"]


@pytest.mark.parametrize("make", SHAPES.values(), ids=SHAPES)
async def test_no_shape_of_reply_is_dear(make: Callable[[int], str]) -> None:
    """Time of the processor for a megabyte, however busy the machine is: some of these took ten seconds and more."""
    coming, whole = await read(make(1 << 20))
    assert coming + whole < 5.0


@pytest.mark.parametrize("unit", ["[", "x{ ", '{"a":1}', "<", "[[]]", "<think></think>"])
def test_behind_so_many_beginnings_nothing_is_shown_any_more(unit: str) -> None:
    """The stream stops looking for an action; behind fewer of them it is found."""
    action = '{"next_node": "final_response", "args": {"answer": "yes"}}'
    stream, text = AnswerStream(), unit * 100_000
    assert stream.feed(text + action) == ""
    assert stream.characters_examined < len(text) / 2
    assert AnswerStream().feed(unit * 20 + action) == "yes"


def test_an_answer_has_bounds_beside_its_text() -> None:
    """What a model says beside its answer is kept up to some thousand values, and what is left out is named."""
    sources = [{"title": f"page {number}", "url": f"https://example.org/{number}"} for number in range(10_000)]
    actions = [{"action_id": f"more {number}", "label": "more"} for number in range(10_000)]
    fields = {f"k{number}": number for number in range(MAX_VALUES)}
    args = {
        "answer": "word " * 100_000,
        "sources": sources,
        "suggested_actions": actions,
        "rows": [[1] * 100] * 300,
        **fields,
    }
    decision = ReactReading({}).decide(Reply(text=json.dumps({"next_node": "final_response", "args": args})))
    assert isinstance(decision, Final)
    began = time.process_time()
    done = terminal.answered(Run(), decision.args)
    assert time.process_time() - began < 1.0
    assert done.raw_answer == args["answer"]
    assert [source.title for source in done.sources] == [source["title"] for source in sources[:MAX_ITEMS]]
    assert [action.action_id for action in done.suggested_actions] == [
        action["action_id"] for action in actions[:MAX_ITEMS]
    ]
    assert MAX_VALUES / 2 < len(done.extra) < MAX_VALUES
    assert decision.warnings[:2] == (
        "`sources` was cut: it had 10,000 items, and the first 1,000 are kept",
        "`suggested_actions` was cut: it had 10,000 items, and the first 1,000 are kept",
    )
    assert decision.warnings[2].startswith("`rows` and ")


def test_what_stands_behind_a_shown_answer_is_not_read_as_it_comes() -> None:
    """Nothing there can change it."""
    head = '{"next_node": "final_response", "args": {"answer": "yes"'
    stream = AnswerStream()
    assert stream.feed(head + ', "sources": [' + "{}, " * 100_000) == "yes"
    assert stream.characters_examined < len(head) + 10
    assert stream.is_terminal
