"""Replies that hold several actions: which of them count, and the warning that names the others."""

import json
from typing import Any

import pytest

from contracts.tools.messages import ToolSpec
from services.planner.models.types import Reply
from services.planner.run.turn.decision import Calls, Final, Invalid
from services.planner.strategies.react.reading import ReactReading
from services.planner.strategies.react.strategy import NativeReading

SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}
TOOLS = {name: ToolSpec(name=name, input_schema=SCHEMA) for name in ("look", "save")}
BOTH = (("look", {"q": "a"}), ("save", {"q": "b"}))


def call(node: str, **args: Any) -> str:
    """An action of two fields."""
    return json.dumps({"next_node": node, "args": args})


A, B, DONE = call("look", q="a"), call("save", q="b"), call("final_response", answer="Done.")
ENVELOPE = {"tool_calls": [{"function": {"name": name, "arguments": json.dumps(args)}} for name, args in BOTH]}


@pytest.mark.parametrize(
    ("text", "calls", "dropped"),
    [
        (f"{A}\n{B}", BOTH, ""),
        (f"[{A}, {B}]", BOTH, ""),
        (f"1. {A}\n2. {B}", BOTH, ""),
        (f"```json\n{A}\n```\n\n```json\n{B}\n```", BOTH, ""),
        (json.dumps(ENVELOPE), BOTH, ""),
        (f"{A}\n{A}", BOTH[:1], ""),
        (f"{A}\n{B}\n{DONE}", BOTH, "final_response"),
        (f"{A}\n{DONE}", BOTH[:1], "final_response"),
        (f"{A}\nObservation: it says b.\n{B}", BOTH[:1], "save"),
        (f"{A}\n{call('plan', steps=[{'node': 'save', 'args': {}}])}", BOTH[:1], "plan"),
    ],
)
def test_calls_right_behind_each_other_are_a_plan(text: str, calls: tuple[object, ...], dropped: str) -> None:
    """What stands behind prose may be made up from a result that the model has not seen."""
    decision = ReactReading(TOOLS).decide(Reply(text=text))
    assert isinstance(decision, Calls)
    assert decision.calls == calls
    assert [line.rpartition(": ")[2] for line in decision.warnings] == [dropped] * bool(dropped)


@pytest.mark.parametrize("reading", [ReactReading, NativeReading])
def test_an_answer_that_comes_first_counts(reading: type[ReactReading]) -> None:
    """The calls behind it are named."""
    functions = [{"name": "final_response", "arguments": '{"answer": "Done."}'}, ENVELOPE["tool_calls"][0]["function"]]
    native = Reply(text="", tool_calls=tuple({"function": function} for function in functions))
    decision = reading(TOOLS).decide(native if reading is NativeReading else Reply(text=f"{DONE}\n{A}"))
    assert isinstance(decision, Final)
    assert decision.warnings == ("the reply held further actions, which were left out: look",)


@pytest.mark.parametrize(
    ("text", "form", "rules"),
    [
        (A, "unified", []),
        (f'  {{"thought": "t", {A[1:]}', "legacy", []),
        (f"Look:\n```json\n{A}\n```", "unified", ["code_fence"]),
        (f"I look. {A} Done.", "unified", ["text_around"]),
        ("{'next_node': 'look', 'args': {'q': 'a'},}", "unified", ["lenient_json"]),
        (f"Hm. {DONE}\n</think>\n{A}", "unified", ["unopened_thought", "text_around"]),
        (f"{A}\n{B}", "unified", ["text_around", "several_actions"]),
        ('{"name": "Look", "arguments": {"q": "a"}}', "foreign", ["adjusted"]),
        ("<function=look><parameter=q>a</parameter></function>", "notation", ["Qwen-Coder"]),
        ("<look><q>a</q></look>", "notation", ["names of tools"]),
    ],
)
def test_how_a_reply_was_written(text: str, form: str, rules: list[str]) -> None:
    """And what was needed to read it."""
    decision = ReactReading(TOOLS).decide(Reply(text=text))
    assert isinstance(decision, Calls)
    assert decision.form is not None
    assert (decision.form.form, [rule.partition(",")[0] for rule in decision.form.rules]) == (form, rules)


def test_how_a_native_reply_was_written() -> None:
    """Calls, or a text."""
    calls = NativeReading(TOOLS).decide(Reply(text="", tool_calls=tuple(ENVELOPE["tool_calls"])))
    text = NativeReading(TOOLS).decide(Reply(text="Hello."))
    salvaged = ReactReading(TOOLS).decide(Reply(text="Hello."))
    assert isinstance(salvaged, Invalid)
    assert salvaged.salvage is not None
    assert [each.form and each.form.form for each in (calls, text, salvaged.salvage)] == ["native", "text", "text"]


def test_one_wrong_call_rejects_all() -> None:
    """As a step of a plan does."""
    decision = ReactReading(TOOLS).decide(Reply(text=f"{A}\n{call('lok', q='b')}"))
    assert isinstance(decision, Invalid)
    assert "lok" in decision.complaint


@pytest.mark.parametrize("node", ["nope", "final_response", "plan"])
def test_a_wrong_join_leaves_the_calls_and_says_why(node: str) -> None:
    """The results are worth something without it."""
    decision = ReactReading(TOOLS).decide(Reply(text=call("plan", steps=[{"node": "look"}], join={"node": node})))
    assert isinstance(decision, Calls)
    assert [name for name, _ in decision.calls] == ["look"]
    assert decision.join is None
    assert node in (decision.note or "")
