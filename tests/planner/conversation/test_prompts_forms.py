"""The prompt and the history in each dialect: JSON, five fields, native calls."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from contracts.runs.events import Observed, PlannedCall, Step
from contracts.runs.requests import RunLimits
from contracts.tools.messages import ToolSpec
from services.planner.agents import Agent
from services.planner.conversation import encoding, messages, native
from services.planner.conversation.messages import Dialect
from services.planner.conversation.native import NativeTools
from services.planner.conversation.rendering import JsonActions

SNAPSHOT = Path(__file__).parent / "prompt_forms.snapshot.txt"
LOOK = ToolSpec(
    name="look",
    description="Look it up.",
    input_schema={"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
)
TASK = ToolSpec(name="task", description="A tool that bears a reserved word.")
FORMS: dict[str, dict[str, Any]] = {
    "auto": {},
    "unified": {"action_format": "unified"},
    "legacy": {"action_format": "legacy"},
    "tools": {"transport": "tools"},
}
BIG = 2**70
NATIVE = NativeTools()


def test_the_prompt_of_each_form_is_the_one_that_was_reviewed() -> None:
    """Written again with WRITE_SNAPSHOTS=1."""
    parts = []
    for name, options in FORMS.items():
        message = messages.system_message(Agent(), [LOOK, TASK], limits=RunLimits(), **options)
        parts.append(f"######## {name}\n{message['content'][0]['text']}")
    parts.append("######## functions\n" + json.dumps(native.functions([LOOK, TASK]), indent=1))
    text = "\n\n".join(parts) + "\n"
    if os.environ.get("WRITE_SNAPSHOTS"):
        SNAPSHOT.write_text(text)
    assert text == SNAPSHOT.read_text()


def step(**fields: Any) -> Step:
    """Two calls, decided in the second turn."""
    calls = [PlannedCall(call_id=f"2-{n}", tool=tool, args={"q": BIG}) for n, tool in ((1, "look"), (2, "task"))]
    return Step(step=2, node="plan", status="started", **{"calls": calls, **fields})


def observed(*ids: str) -> list[Observed]:
    return [Observed(call_id=f"2-{each}", tool="look", status="succeeded", observation={"n": each}) for each in ids]


def test_native_calls_and_their_results_belong_together() -> None:
    """One result for each call, in the order of the calls, with ids that every provider takes; a note comes last."""
    decision = NATIVE.decision(step())
    results = NATIVE.outcomes(step(), observed("2", "1"), "By the way.")
    assert [call["function"]["name"] for call in decision["tool_calls"]] == ["look", "tool_task"]
    ids = [call["id"] for call in decision["tool_calls"]]
    assert [result["tool_call_id"] for result in results] == ids
    assert all(len(each) == 9 and each.isalnum() for each in ids)
    assert json.loads(decision["tool_calls"][0]["function"]["arguments"]) == {"q": BIG}
    assert results[-1]["content"].endswith("</results>\nBy the way.")


@pytest.mark.parametrize("dialect", [JsonActions(), NATIVE], ids=["json", "tools"])
def test_compaction_keeps_every_step(dialect: Dialect) -> None:
    """Calls stay calls and JSON stays valid; only the middle of long lines is cut."""
    history = [{"role": "user", "content": "the question " * 50}]
    for n in range(3):
        long = step(calls=[PlannedCall(call_id="2-1", tool="look", args={"q": f"begin{n} " + "x" * 5000 + f" end{n}"})])
        seen = [
            Observed(
                call_id="2-1", tool="look", status="succeeded", observation=f"start{n} " + "y" * 5000 + f" stop{n}"
            )
        ]
        history.append(dialect.decision(long))
        history += dialect.outcomes(long, seen)
    short = encoding.compacted(history, 200)
    assert short[0] == history[0]
    assert short[-2:] == history[-2:]
    assert len(short) == len(history)
    text = json.dumps(short[1:-2])
    assert all(f"{word}{n}" in text for word in ("begin", "end", "start", "stop") for n in (0, 1))
    assert sum(map(encoding.length, short[1:-2])) < 1400
    newest = encoding.compacted(history, 100, newest=True)
    assert max(map(encoding.length, newest[-2:])) < 1400
    for message in newest:
        for call in message.get("tool_calls", ()):
            json.loads(call["function"]["arguments"])
