"""Malformed replies through whole decisions, without a server: no crash, always an end, nothing invented.

A run is played as the handlers play it: the dialect reads the reply chunk by chunk and decides, the rules say what
follows, the fold takes it in. Calls get an outcome at once.
"""

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import settings

from contracts.runs.decisions import FINAL_RESPONSE
from contracts.runs.events import ActionFormat, ActionTransport, Done
from contracts.runs.inbox import CallFinished
from contracts.runs.payload import Usage
from contracts.tools.messages import ToolSpec
from services.planner.agents import Agent
from services.planner.models.types import CallPiece, Reply
from services.planner.replies.actions.normalize import normalize_action
from services.planner.replies.plain_text import begins_action
from services.planner.run.commands import Abandon, Ack, Append, Ask, Close, Dispatch, Open, Rules, Say
from services.planner.run.state.fold import fold
from services.planner.run.state.run import Run
from services.planner.run.turn.decide import resolve_decision, text_of
from services.planner.run.turn.decision import Final
from services.planner.strategies.react.strategy import React
from tests.planner.handlings import Attempt, advance, attempt
from tests.planner.replies.test_actions_properties import leaves
from tests.planner.run_world import started
from tests.support import samples

CANARY = "CANARY"
STRICT = {
    "type": "object",
    "properties": {"q": {"type": "string"}, "answer": {"type": "string"}, "n": {"type": "integer"}},
    "additionalProperties": False,
}
TOOLS = [
    ToolSpec(name="work", input_schema=STRICT),
    ToolSpec(name="save", input_schema={"type": "object"}),
    ToolSpec(name="plan"),
]
REACT = React(native_reasoning=True, idle_s=1, total_s=1)
RULES = Rules(strategy=REACT)


@dataclass
class Played:
    """A run from its first reply to its end."""

    action_format: ActionFormat = "auto"
    transport: ActionTransport = "json"
    run: Run = field(default_factory=Run)
    events: list[Any] = field(default_factory=list)
    shown: dict[tuple[int, int], str] = field(default_factory=dict)
    sent: list[Any] = field(default_factory=list)

    def play(self, replies: Iterator[str], rng: random.Random) -> None:
        opening = started(max_steps=4, max_parallel=2)
        opening = opening.model_copy(update={"action_format": self.action_format, "action_transport": self.transport})
        waiting = [attempt("REQUESTS:1", started=opening, specs={spec.name: spec for spec in TOOLS})]
        while waiting:
            self.handle(waiting.pop(0), waiting, replies, rng)

    def handle(self, handling: Attempt, waiting: list[Attempt], replies: Iterator[str], rng: random.Random) -> None:
        while True:
            match advance(self.run, handling, RULES):
                case Append(events):
                    fold(self.run, self.run.seq + 1, handling.now, events)
                    self.events += events
                    handling.wrote(events)
                case Ask(asked):
                    self.ask(handling, (asked.turn, asked.attempt), next(replies), rng)
                case Say(asked, answer):
                    self.shown[asked.turn, asked.attempt] = text_of(self.run, answer)
                    handling.decision, handling.answer_to_restate = replace(answer, restate=False), None
                case Dispatch(calls, _):
                    handling.dispatched |= {call.call_id for call in calls}
                    self.sent += calls
                    for call in calls:
                        outcome = CallFinished(
                            call_id=call.call_id, tool=call.tool, status="succeeded", observation={"text": "seen"}
                        )
                        waiting.append(attempt(f"INBOX:{call.call_id}", outcome, specs=handling.specs))
                case Open():
                    handling.opened = True
                case Close():
                    handling.closed = True
                case Ack() | Abandon():
                    return

    def ask(self, handling: Attempt, key: tuple[int, int], text: str, rng: random.Random) -> None:
        """Let the model say a reply, in pieces of any size."""
        REACT.request(self.run, TOOLS, Agent())
        reading = REACT.read(self.run, TOOLS)
        shown, rest = "", text
        while rest:
            size = rng.choice([1, 3, 17, 400])
            piece, rest = rest[:size], rest[size:]
            shown += (
                reading.feed_call(CallPiece(0, "save" if len(rest) + size == len(text) else "", piece))
                if self.calls(text)
                else reading.feed(piece)
            )
        call = {"id": "x", "type": "function", "function": {"name": "save", "arguments": text}}
        usage = Usage(model_calls=1, cost_usd=0.0)
        reply = Reply(text="", tool_calls=(call,), usage=usage) if self.calls(text) else Reply(text=text, usage=usage)
        assert shown == reading.shown
        decision = resolve_decision(self.run, reading.decide(reply), 2000, RULES)
        answer = text_of(self.run, decision)
        if answer and isinstance(decision, Final):
            fits = answer.startswith(shown)
            decision = replace(decision, restate=not fits)
            shown = answer if fits else shown
        self.shown[key] = shown
        handling.decision = decision

    def calls(self, text: str) -> bool:
        """Whether this reply comes as the arguments of a native call."""
        return self.transport == "tools" and text.startswith("{")


STEPS = [{"node": "work", "args": {"q": "beta"}}, {"node": "save", "args": {"answer": CANARY}}]
FINAL = {"next_node": FINAL_RESPONSE, "args": {"answer": CANARY}}
ACTIONS: list[Any] = [
    {"next_node": "work", "args": {"q": "alpha", "n": 7}},
    {"next_node": "save", "args": {"answer": CANARY, "deep": FINAL}},
    {"next_node": "plan", "args": {"steps": STEPS, "join": {"node": "save"}}},
    {"next_node": FINAL_RESPONSE, "args": {"answer": "gamma delta", "confidence": 0.5}},
    {"next_node": FINAL_RESPONSE, "args": {"confidence": 0.5}},
    {"thought": "t", "next_node": None, "args": {"raw_answer": "epsilon"}, "plan": None, "join": None},
    {"next_node": "task", "args": {"query": CANARY, "tool": "save"}},
    {"name": "save", "arguments": {"answer": CANARY}},
    {"tool_calls": [{"function": {"name": "save", "arguments": json.dumps({"answer": CANARY})}}]},
]
PIECES = [*"{}[]\"',:\\…\ud83d\x00", "```json\n", "```", "<think>", "</think>", "null", "NaN", "1e999", "// c\n"]
LISTED = [
    *("", " ", "null", "[]", "{}", "42", '"', "{", "[{", "Just prose.", "```json\n```"),
    *("<think>", "<think>never closed {"),
    *('{"next_node": }', '{"next_node": 5}', '{"next_node": ""}', '{"next_node": "unknown", "args": {}}'),
    *(f'{{"next_node": "work", "args": {args}}}' for args in ('{"q": 5}', "null", '"text"', f'{{"n": 1{"0" * 400}}}')),
    *(f'{{"next_node": "plan", "args": {{"steps": {steps}}}}}' for steps in ("[]", '"x"', '[{"node": "nope"}]')),
    '{"next_node": "final_response"}',
    '{"next_node": "final_response", "args": []}',
    '{"next_node": "final_response", "args": {"answer": {"x": [1, {"y": null}]}}}',
    '{"next_node": "final_response", "args": {"answer": "cut',
    '{"next_node": "final_response", "args": {"answer": "\\ud83d"}}',
    *('{"next_node": "work", "args": ' + "[" * 500, "{" * 5000, '{"a":' * 3000),
    *('{"next_node": "\\u0000", "args": {}}', '{"next_node": "' + "x" * 5000 + '"}'),
    *('{"args": {"answer": "CANARY"}, "next_node": "save"}', '{"args": {"answer": "CANARY"}, "next_node": "save"'),
    'save({"answer": "CANARY"})',
]


def malformed(rng: random.Random) -> str:
    """An action with characters cut out, put in, put twice; or soup."""
    if rng.random() < 0.2:
        return "".join(rng.choice(PIECES) for _ in range(rng.randint(0, 20)))
    text = json.dumps(rng.choice(ACTIONS), indent=rng.choice([None, 1]))
    ways: list[Callable[[str], str]] = [
        lambda text: text[: rng.randrange(len(text) + 1)],
        lambda text: text[rng.randrange(len(text) + 1) :],
        lambda text: text.replace('"', "'"),
        lambda text: text + text,
        lambda text: f"Sure!\n```json\n{text}",
        lambda text: json.dumps(text)[: rng.randint(1, len(text) + 1)],
    ]
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(text) + 1)
        at_random = text[:at] + rng.choice(PIECES) + text[at + rng.choice([0, 1, 3]) :]
        text = at_random if rng.random() < 0.6 else rng.choice(ways)(text)
    return text


FORMS: list[tuple[ActionFormat, ActionTransport]]
FORMS = [("auto", "json"), ("unified", "json"), ("legacy", "json"), ("auto", "tools")]


@pytest.mark.parametrize("form", FORMS)
def test_malformed_replies(form: tuple[ActionFormat, ActionTransport]) -> None:
    """In every format the run ends, its answer is what was shown, and no argument is invented or shown."""
    rng = random.Random(samples.first_seed())
    given = 0
    while given < 5 * settings().max_examples:
        replies: list[str] = []
        played = Played(*form)
        played.play(speaking(rng, replies), rng)
        given += len(replies)
        judge(played, replies)


def speaking(rng: random.Random, replies: list[str]) -> Iterator[str]:
    """A model that makes one mistake after another."""
    while True:
        replies.append(rng.choice(LISTED) if rng.random() < 0.2 else malformed(rng))
        yield replies[-1]


@pytest.mark.sample(50)
@pytest.mark.parametrize("reply", LISTED)
@pytest.mark.parametrize("form", FORMS)
def test_a_model_that_says_nothing_else(reply: str, form: tuple[ActionFormat, ActionTransport]) -> None:
    """A model that repeats one mistake for ever: the run ends."""
    played = Played(*form)
    played.play(iter([reply] * 50), random.Random(1))
    judge(played, [reply])


def judge(played: Played, replies: list[str]) -> None:
    """What holds for every run."""
    [end] = [event for event in played.events if event.type in {"done", "error", "cancelled"}]
    assert played.events[-1] is end
    assert isinstance(end, Done)
    answered = played.events[-2].type == "step"
    assert answered or end.reason != "answer_complete"
    if answered:
        assert played.shown[max(played.shown)] == end.raw_answer, replies
    else:
        handling = played.events[-2]
        assert (handling.type, handling.text, handling.done) == ("chunk", end.raw_answer, True)
        is_taken_back = (handling.action_seq, handling.attempt) > max(played.shown)
        assert is_taken_back, "what was shown of broken replies"
    written = " ".join(replies).lower()
    for call in played.sent:
        words = {word for leaf in leaves(call.args) for word in re.findall(r"\w+", leaf.lower())}
        invented = {word for word in words if word not in written} - {"seen", "text", "found", "work", "save"}
        assert not invented, (call, replies)
    if CANARY in "".join(played.shown.values()):
        assert named_final_by_the_model(replies), replies


def named_final_by_the_model(replies: list[str]) -> bool:
    """Damage shows an argument only where it makes an answer of it: an action, prose, an object that calls nothing."""
    for text in replies:
        found = normalize_action(text, tools=frozenset({"work", "save", "tool_plan"}))
        if found.action is not None and found.action.next_node == FINAL_RESPONSE and CANARY in str(found.action.args):
            return True
        is_prose = CANARY in text.partition("{")[0] or not begins_action(text)
        if CANARY in text and (is_prose or (found.error == "no_action" and not found.was_action)):
            return True
    return False
