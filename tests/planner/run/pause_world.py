"""Runs with calls that wait for people, without a server."""

from collections.abc import Sequence
from typing import Any

from contracts.runs.events import Paused, RunStarted
from contracts.runs.inbox import CallPaused, ResumeRequested, TimerFired
from contracts.runs.pauses import ApprovalRule
from contracts.tools.messages import ToolSpec
from services.planner.run.commands import Answer, Command, Dispatch, Received, SetTimer
from services.planner.run.state.run import Begun
from services.planner.run.turn.decision import Calls, Decision
from tests.planner.handlings import Attempt
from tests.planner.run_world import World, started

DAY_MS = 86_400_000
SPECS = {
    "pay": ToolSpec(name="pay", input_schema={"properties": {"n": {"type": "integer"}}, "required": ["n"]}),
    "work": ToolSpec(name="work"),
}
TOOLS = {name: spec.digest() for name, spec in SPECS.items()}


def opening(*rules: ApprovalRule, session_id: str | None = None, **limits: object) -> RunStarted:
    """A run in which each call of `pay` needs an approval, with these rules beside."""
    begun = started(**limits)
    request = begun.request.model_copy(update={"session_id": session_id})
    facts = {"approvals": ["pay"], "approval_rules": [*rules], "tools": TOOLS, "request": request}
    return begun.model_copy(update=facts)


def plan(*tools: str) -> Calls:
    """A decision to call these tools at once."""
    return Calls(node="plan", calls=tuple((tool, {"n": number}) for number, tool in enumerate(tools, 1)))


class PauseWorld(World):
    """A run whose messages are handled one after another."""

    now = 2000
    messages = 100

    def begin(self, opened: RunStarted, *replies: Decision) -> list[Command]:
        """Open the run with these replies of the model."""
        begun = self.handling("REQUESTS:1", started=opened, now=self.now, place=Begun(1))
        return self.play(begun, *replies)

    def next_handling(self, message: Received | str) -> Attempt:
        """A message that was not handled before."""
        self.messages += 1
        return self.handling(f"INBOX:{self.messages}", message, now=self.now, specs=SPECS)

    def decide(self, pause: Paused, decision: str, request_id: str = "", **fields: Any) -> list[Command]:
        given = {"id": request_id or f"request-{self.messages}", "pause_id": pause.pause_id, "token": pause.token}
        request = ResumeRequested.model_validate({**given, "decision": decision, **fields})
        return self.handle(self.next_handling(request))

    def wake(self, *replies: Decision) -> list[Command]:
        """The message that goes on."""
        return self.handle(self.next_handling("resumed"), *replies)

    def fire(self, timer: str, at: int) -> list[Command]:
        """A timer fires at its time."""
        self.now = max(self.now, at)
        fired = TimerFired.model_validate({"timer": timer, "at": at})
        return self.handle(self.next_handling(fired))

    def pause_call(self, call_id: str, round_: int = 0, **fields: Any) -> list[Command]:
        given = {"call_id": call_id, "tool": "work", "round": round_, "number": round_, "reason": "input"}
        message = CallPaused.model_validate({**given, "expires_in_s": 60, **fields})
        return self.handle(self.next_handling(message))

    @property
    def pauses(self) -> list[Paused]:
        return [*self.run.pauses.values()]


def answers(moves: Sequence[object]) -> list[str | None]:
    return [move.code for move in moves if isinstance(move, Answer)]


def sent(moves: Sequence[object]) -> list[str]:
    return [call.call_id for move in moves if isinstance(move, Dispatch) for call in move.calls]


def timers(moves: Sequence[object]) -> list[tuple[str, int]]:
    return [(move.name, move.at) for move in moves if isinstance(move, SetTimer)]
