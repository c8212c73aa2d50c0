"""A provider whose script is in the query, so that runs do not mix and a repeated request gets the same reply.

The question says which tools to call in which turn, how long they take, how long the answer is and how fast it comes.
The turn is the number of replies that the conversation already holds: nothing is remembered between two requests.
"""

import json
import re
from dataclasses import dataclass, fields

from tests.support.model_server import ModelServer, Say, Seen, action, answer, words

_FAILURES = (Say(status=503), Say(status=429, headers={"retry-after": "3"}))
_LINE = re.compile(r"SCRIPT(?P<script>(?: [a-z_]+=\S*)+)")


@dataclass(frozen=True)
class Plan:
    """What a run will do.

    Attributes:
        turns: the tools called in each turn before the answer; several at once as a plan of parallel calls.
        call_ms: how long each call takes.
        tokens: words of the answer.
        pace_ms: between two pieces of a reply.
        delay_ms: before the first piece of a reply.
        fails: how many of its first requests the provider refuses: with 503, then with a pause that it asks for.
        nth: makes the question unique.
    """

    turns: tuple[tuple[str, ...], ...] = ()
    call_ms: int = 0
    tokens: int = 5
    pace_ms: int = 0
    delay_ms: int = 0
    fails: int = 0
    nth: str = "0"

    @property
    def query(self) -> str:
        """The question that makes the model do this."""
        turns = ",".join("+".join(tools) for tools in self.turns)
        rest = " ".join(f"{each.name}={getattr(self, each.name)}" for each in fields(self) if each.name != "turns")
        return f"SCRIPT turns={turns} {rest} end=1"

    @property
    def answer(self) -> str:
        """What the run ends with."""
        return words(self.tokens)

    @classmethod
    def read(cls, text: str) -> "Plan | None":
        """Find the plan in a conversation."""
        found = _LINE.search(text)
        if found is None:
            return None
        said = dict(part.split("=", 1) for part in found["script"].split())
        turns = tuple(tuple(tools.split("+")) for tools in said["turns"].split(",") if tools)
        numbers = {name: int(said[name]) for name in ("call_ms", "tokens", "pace_ms", "delay_ms", "fails")}
        return cls(turns=turns, nth=said["nth"], **numbers)

    def reply(self, turn: int) -> Say:
        """What the model says when it has spoken `turn` times."""
        said = answer(self.answer) if turn >= len(self.turns) else self._call(self.turns[turn])
        return Say(text=said.text, pause_s=self.pace_ms / 1000, delay_s=self.delay_ms / 1000)

    def _call(self, tools: tuple[str, ...]) -> Say:
        args = {"ms": self.call_ms}
        if len(tools) == 1:
            return action(tools[0], **args)
        return action("plan", steps=[{"node": tool, "args": args} for tool in tools])


class PlannedModel(ModelServer):
    """The provider on loopback. `ledger` holds every request, and whether its client went before the end."""

    def reply_to(self, seen: Seen) -> Say:
        """Read the script; without one, do as `say` was told."""
        plan = Plan.read(seen.text)
        if plan is None:
            return super().reply_to(seen)
        before = len(self.asked(plan)) if plan.fails else 0
        self.ledger.append(seen)
        return _FAILURES[before] if before < plan.fails else plan.reply(seen.turns)

    def asked(self, plan: Plan) -> list[Seen]:
        """The requests of runs with this very question."""
        return [seen for seen in list(self.ledger) if json.dumps(plan.query)[1:-1] in seen.text]

    @property
    def env(self) -> dict[str, str]:
        """What a planner needs to ask this provider."""
        return {
            "RUNWIRE_MODEL": "openai/scripted",
            "OPENAI_API_BASE": self.url,
            "OPENAI_BASE_URL": self.url,
            "OPENAI_API_KEY": "none",
        }
