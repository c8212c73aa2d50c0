"""A provider whose script is in the query, so that runs do not mix and a repeated request gets the same reply.

The question says which tools to call in which turn, how long they take, how long the answer is and how fast it comes.
The turn is the number of replies since the newest question: nothing is remembered between two requests. What a request
of a run with the strategy `planned` or `chat` asks for, its form tells.
"""

import base64
import json
import re
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from tests.support.model_server import ModelServer, Say, Seen, action, answer, words

PLANNING = "__planning__"
WRITES = "writes"
_STORM_TOOLS = ["often", "once", "refuse"]
AGENTS = {"default": {"tools": _STORM_TOOLS}, WRITES: {"tools": _STORM_TOOLS, "action_transport": "json"}}
"""Of the storms. Runs wait for tools that their agent names, which a planner that has just started may not know yet."""
_PLANS = "direct_response"
"""What the system message of a request for a plan names."""
Strategy = Literal["react", "planned", "chat"]
Stage = Literal["act", "plan", "respond", "chat"]
BLOCK = '**SUGGESTED_VALUES:** [{"label": "A", "value": "a"}]'
"""Of the strategy `chat`: hidden. Its marker is cut by the first calls, where there are any."""
_CUT = 6
COLUMN = "Name"
"""The column of the rows that are proposed."""
_FAILURES = (Say(status=503), Say(status=429, headers={"retry-after": "3"}))
_SCRIPT = re.compile(r"SCRIPT ([A-Za-z0-9+/=]+) END")


def written(script: Any) -> str:
    """A question with a script, as JSON in base64."""
    return f"SCRIPT {base64.b64encode(json.dumps(asdict(script)).encode()).decode()} END"


def newest(text: str) -> dict[str, Any] | None:
    """The fields of the last script in a text; several may have been merged into one message."""
    found = _SCRIPT.findall(text)
    return json.loads(base64.b64decode(found[-1])) if found else None


def text_of(message: dict[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


@dataclass(frozen=True)
class Plan:
    """What a run will do.

    Attributes:
        strategy: of the run.
        turns: the tools called in each turn before the answer; several at once as a plan of parallel calls. With the
            strategy `planned`, all of them are the calls of one plan, and each later one takes what the one before it
            has returned. None: a direct response.
        wrong: a template that the last call of a plan has instead, for which the plan is rejected.
        deadline_s: of the run; 0: the deployment's.
        agent: that of the run; the storms' agent `writes` has its plans as JSON.
        call_ms: how long each call takes.
        tokens: words of the answer.
        pace_ms: between two pieces of a reply.
        delay_ms: before the first piece of a reply.
        fails: how many of its first requests the provider refuses: with 503, then with a pause that it asks for. With
            the strategy `planned`, of those for the plan and of those for the answer.
        adds: rows that the answer of the strategy `chat` proposes, each named by the question.
        nth: makes the question unique.
    """

    strategy: Strategy = "react"
    turns: tuple[tuple[str, ...], ...] = ()
    call_ms: int = 0
    tokens: int = 5
    pace_ms: int = 0
    delay_ms: int = 0
    fails: int = 0
    wrong: str = ""
    deadline_s: int = 0
    adds: int = 0
    agent: str = "default"
    nth: str = "0"

    @property
    def query(self) -> str:
        return written(self)

    @property
    def request(self) -> dict[str, Any]:
        """What is asked for beside the question."""
        named = {"strategy": self.strategy, "agent": self.agent}
        return named | ({"limits": {"deadline_s": self.deadline_s}} if self.deadline_s else {})

    @property
    def answer(self) -> str:
        """What the run ends with."""
        if self.strategy == "chat":
            return "".join(f" {self._words(turn)}" for turn in range(len(self.turns) + 1)).strip()
        return words(self.tokens)

    def _words(self, turn: int) -> str:
        return f"Part {turn}: {words(self.tokens)}."

    @property
    def names(self) -> list[str]:
        """Of the rows that it proposes, in their order."""
        return [f"{self.nth}-{number}" for number in range(self.adds)]

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The calls of the plan, in their order."""
        tools = [tool for turn in self.turns for tool in turn]
        after = ["", *(f"${index}.output.did" for index in range(len(tools)))][: len(tools)]
        if self.wrong and tools:
            after[-1] = self.wrong
        return [
            {"tool_name": tool, "arguments": {"ms": self.call_ms} | ({"after": template} if template else {})}
            for tool, template in zip(tools, after, strict=True)
        ]

    @classmethod
    def read(cls, text: str) -> "Plan | None":
        """The newest plan in a conversation."""
        found = newest(text)
        return cls(**{**found, "turns": tuple(map(tuple, found["turns"]))}) if found is not None else None

    def reply(self, turn: int, stage: Stage = "act") -> Say:
        """What the model says to a request for this, when it has spoken `turn` times."""
        return replace(self._said(turn, stage), pause_s=self.pace_ms / 1000, delay_s=self.delay_ms / 1000)

    def _said(self, turn: int, stage: Stage) -> Say:
        if stage == "chat":
            cut = _CUT if self.turns else len(BLOCK)
            hidden = (BLOCK[cut:] if turn == 1 else "", BLOCK[:cut] if turn == 0 else "")
            tools = self.turns[turn] if turn < len(self.turns) else ()
            named = [{"name": tool, "arguments": json.dumps({"ms": self.call_ms})} for tool in tools]
            rows = [{"action": "add", "data": {COLUMN: name}} for name in self.names]
            block = f"\nDATA_PROPOSAL: {json.dumps({'operations': rows})}" if rows and not named else ""
            return Say(text=f"{hidden[0]} {self._words(turn)}{hidden[1]}{block}", tool_calls=named)
        if stage == "respond":
            return Say(text=self.answer)
        if stage == "plan":
            direct = {"type": "direct_response", "content": self.answer}
            calls = {"type": "tool_calls", "reasoning": "as asked", "calls": self.calls}
            plan = json.dumps(calls if self.turns else direct)
            return Say(text=plan) if self.agent == WRITES else Say(tool_calls=[{"name": PLANNING, "arguments": plan}])
        return answer(self.answer) if turn >= len(self.turns) else self._call(self.turns[turn])

    def _call(self, tools: tuple[str, ...]) -> Say:
        args = {"ms": self.call_ms}
        if len(tools) == 1:
            return action(tools[0], **args)
        return action("plan", steps=[{"node": tool, "args": args} for tool in tools])


def stage_of(body: dict[str, Any]) -> Stage:
    """What a request asks for: an action of the strategy `react`, a plan, the answer from what came of it, a part."""
    offered = [tool["function"]["name"] for tool in body.get("tools") or []]
    if offered:
        return "plan" if PLANNING in offered else "chat"
    if "response_format" not in body:
        return "respond"
    return "plan" if _PLANS in json.dumps(body["messages"][0]) else "act"


class PlannedModel(ModelServer):
    """The provider on loopback. `ledger` holds every request, and whether its client went before the end."""

    def reply_to(self, seen: Seen) -> Say:
        """Follow the newest script, those of earlier questions being there too; without one, do as `say` was told."""
        plan, turn = None, 0
        for message in seen.body.get("messages", []):
            if message["role"] == "assistant":
                turn += 1
            elif message["role"] == "user" and (found := Plan.read(text_of(message))) is not None:
                plan, turn = found, 0
        if plan is None:
            return super().reply_to(seen)
        stage = stage_of(seen.body)
        before = len(self.asked(plan, stage)) if plan.fails else 0
        self.ledger.append(seen)
        return _FAILURES[before] if before < plan.fails else plan.reply(turn, stage)

    def asked(self, plan: Plan, stage: Stage | None = None) -> list[Seen]:
        """The requests of runs with this very question; those for this, unless it is None."""
        return [seen for seen in list(self.ledger) if plan.query in seen.text and stage in {None, stage_of(seen.body)}]

    def requests(self) -> dict[str, Counter[Stage]]:
        """How many requests there were, by the `nth` of their scripts and by what they ask for."""
        found: dict[str, Counter[Stage]] = defaultdict(Counter)
        for seen in list(self.ledger):
            plan = Plan.read(seen.text)
            if plan is not None:
                found[plan.nth][stage_of(seen.body)] += 1
        return found

    @property
    def env(self) -> dict[str, str]:
        return {
            "RUNWIRE_MODEL": "openai/scripted",
            "OPENAI_API_BASE": self.url,
            "OPENAI_BASE_URL": self.url,
            "OPENAI_API_KEY": "none",
        }
