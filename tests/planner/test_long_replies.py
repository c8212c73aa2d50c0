"""Replies of a megabyte, in one piece and in many: other runs go on meanwhile.

The limit is generous, for slow machines; each of these held the loop for longer, or did so on a busy machine.
"""

import json
import time
from collections.abc import Callable

import pytest

from benchmarks.long_replies import SHAPES, read
from services.planner.models.types import Reply
from services.planner.replies.actions.reading import MAX_ITEMS, MAX_VALUES
from services.planner.replies.answer_stream import AnswerStream
from services.planner.run.ending import terminal
from services.planner.run.state.run import Run
from services.planner.run.turn.decision import Final
from services.planner.strategies.react.reading import ReactReading


@pytest.mark.sample(5)
@pytest.mark.parametrize("make", SHAPES.values(), ids=SHAPES)
async def test_no_shape_of_reply_is_dear(make: Callable[[int], str]) -> None:
    """Processor time for a megabyte, beside a loop of ten turns a character: some took thirty times that and more."""
    began = time.process_time()
    for _ in range(10 << 20):
        pass
    loop = time.process_time() - began
    coming, whole = await read(make(1 << 20))
    assert coming + whole < 25 * loop


@pytest.mark.parametrize("unit", ["[", "x{ ", '{"a":1}', "[[]]", "<think></think>"])
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
