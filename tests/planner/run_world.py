"""A run and the handlings of its messages, carried out command by command without a server."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from contracts.runs.events import RunStarted
from contracts.runs.inbox import CallFinished
from contracts.runs.payload import Usage
from contracts.runs.requests import RunLimits, RunRequested
from services.planner.run.commands import (
    Abandon,
    Ack,
    Append,
    Ask,
    Rules,
)
from services.planner.run.state.fold import fold
from services.planner.run.state.run import Run
from services.planner.run.turn.decision import Calls, Decision, Final
from services.planner.strategies.react.strategy import React
from tests.planner.handlings import Attempt, advance, attempt

REACT = React(native_reasoning=True, idle_s=1, total_s=1)
RULES = Rules(strategy=REACT)
RUN = "0192f0c1a2b37c4d8e5f60718293a4b5"


def started(**limits: object) -> RunStarted:
    """What opening a run records."""
    request = RunRequested(run_id=RUN, tenant="default", requested_at=1000, trace_id="t" * 32, query="what?")
    return RunStarted(
        run_id=RUN,
        tenant="default",
        request=request,
        limits=RunLimits.model_validate(limits),
        tools={"work": "d" * 24},
        deadline_at=61_000,
    )


def calls(count: int = 1) -> Calls:
    return Calls(
        node="work" if count == 1 else "plan",
        calls=(("work", {"n": 1}),) * count,
        usage=Usage(model_calls=1, cost_usd=0.5),
    )


def final(text: str = "done") -> Final:
    return Final(args={"answer": text}, usage=Usage(model_calls=1, prompt_tokens=10, cost_usd=0.5))


@dataclass
class World:
    """A log, and handlings of messages that may crash between any two commands."""

    rules: Rules = RULES
    run: Run = field(default_factory=Run)
    written: list[list[Any]] = field(default_factory=list)

    def handling(self, owner: str, kind: str = "request", holder: str = "h", now: int = 2000, **fields: Any) -> Attempt:
        return attempt(owner, kind, holder, now, **fields)

    def write(self, handling: Attempt, events: Sequence[Any]) -> None:
        self.written.append([*events])
        fold(self.run, len(self.written), handling.now, events, lambda _: self.rules.strategy)
        handling.wrote(events)

    def play(self, handling: Attempt, *replies: Decision) -> list[object]:
        """Handle a message to its end, with these replies of the model. Returns the moves that were no appends."""
        moves: list[object] = []
        waiting = list(replies)
        while True:
            command = advance(self.run, handling, self.rules)
            match command:
                case Append(events):
                    self.write(handling, events)
                    continue
                case Ask():
                    moves.append(command)
                    if not waiting:
                        return moves  # The process dies here.
                    handling.decision = waiting.pop(0)
                    continue
            handling.carry_out(command)
            moves.append(command)
            if isinstance(command, Ack | Abandon):
                return moves

    def types(self) -> list[str]:
        return [event.type for events in self.written for event in events]


def finished(call_id: str, **fields: object) -> CallFinished:
    return CallFinished.model_validate(
        {"call_id": call_id, "tool": "work", "status": "succeeded", "observation": {"answer": "41"}, **fields}
    )
