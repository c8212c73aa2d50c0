"""Runs with calls that wait for people, without a server."""

from collections.abc import Sequence
from typing import Any

from contracts.runs.events import Paused, RunStarted
from contracts.runs.inbox import CallPaused, ResumeRequested, TimerFired
from contracts.runs.pauses import ApprovalRule
from contracts.tools.messages import ToolSpec
from services.planner.run.commands import Abandon, Ack, Answer, Append, Ask, Dispatch, SetTimer
from services.planner.run.state.run import Begun
from services.planner.run.turn.decision import Calls, Decision
from tests.planner.handlings import Attempt, advance
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

    def begin(self, opened: RunStarted, *replies: Decision) -> list[object]:
        """Open the run with these replies of the model."""
        begun = self.handling("REQUESTS:1", started=opened, now=self.now, place=Begun(1))
        return self.play(begun, *replies)

    def next_handling(self, kind: str, **fields: Any) -> Attempt:
        """A message that was not handled before."""
        self.messages += 1
        return self.handling(f"INBOX:{self.messages}", kind, now=self.now, specs=SPECS, **fields)

    def handle(self, attempt: Attempt, *replies: Decision) -> list[object]:
        """Handle a message to its end; returns the commands, appends too."""
        moves: list[object] = []
        waiting = list(replies)
        while True:
            command = advance(self.run, attempt, self.rules)
            moves.append(command)
            match command:
                case Append(events):
                    self.write(attempt, events)
                case Ask() if waiting:
                    attempt.decision = waiting.pop(0)
                case Ask() | Ack() | Abandon():
                    return moves
                case _:
                    attempt.carry_out(command)

    def decide(self, pause: Paused, decision: str, request_id: str = "", **fields: Any) -> list[object]:
        given = {"id": request_id or f"request-{self.messages}", "pause_id": pause.pause_id, "token": pause.token}
        request = ResumeRequested.model_validate({**given, "decision": decision, **fields})
        return self.handle(self.next_handling("decision", given=request))

    def wake(self, *replies: Decision) -> list[object]:
        """The message that goes on."""
        return self.handle(self.next_handling("resumed"), *replies)

    def fire(self, timer: str, at: int) -> list[object]:
        """A timer fires at its time."""
        self.now = max(self.now, at)
        fired = TimerFired.model_validate({"timer": timer, "at": at})
        return self.handle(self.next_handling("timer", timer=fired))

    def pause_call(self, call_id: str, round_: int = 0, **fields: Any) -> list[object]:
        given = {"call_id": call_id, "tool": "work", "round": round_, "number": round_, "reason": "input"}
        message = CallPaused.model_validate({**given, "expires_in_s": 60, **fields})
        return self.handle(self.next_handling("call_paused", given=message))

    @property
    def pauses(self) -> list[Paused]:
        return [*self.run.pauses.values()]


def answers(moves: Sequence[object]) -> list[str | None]:
    return [move.code for move in moves if isinstance(move, Answer)]


def sent(moves: Sequence[object]) -> list[str]:
    return [call.call_id for move in moves if isinstance(move, Dispatch) for call in move.calls]


def timers(moves: Sequence[object]) -> list[tuple[str, int]]:
    return [(move.name, move.at) for move in moves if isinstance(move, SetTimer)]
