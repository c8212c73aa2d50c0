"""A run and the handlings of its messages, carried out command by command without a server."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from contracts.runs.events import PlannedCall, RunStarted
from contracts.runs.inbox import CallFinished, RunResumed, TimerFired
from contracts.runs.payload import Usage
from contracts.runs.requests import RunLimits, RunRequested
from services.planner.run import commands
from services.planner.run.commands import Append, Ask, Command, Received, Rules
from services.planner.run.state.fold import fold
from services.planner.run.state.run import Run
from services.planner.run.turn.decision import Calls, Decision, Final
from services.planner.strategies.react.strategy import React
from tests.planner.handlings import Attempt, advance, attempt, later_token

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


def finished(call_id: str, **fields: object) -> CallFinished:
    return CallFinished.model_validate(
        {"call_id": call_id, "tool": "work", "status": "succeeded", "observation": {"answer": "41"}, **fields}
    )


@dataclass
class World:
    """A log, and handlings of messages that may crash between any two commands."""

    rules: Rules = RULES
    run: Run = field(default_factory=Run)
    written: list[list[Any]] = field(default_factory=list)

    def handling(
        self, owner: str, message: Received | str = "request", holder: str = "h", now: int = 2000, **fields: Any
    ) -> Attempt:
        return attempt(owner, message, holder, now, **fields)

    def write(self, handling: Attempt, events: Sequence[Any]) -> None:
        self.written.append([*events])
        fold(self.run, len(self.written), handling.now, events, lambda _: self.rules.strategy)
        handling.wrote(events)

    def next_reply(self, waiting: list[Decision]) -> Decision | None:
        """What the model says; None: the process dies before."""
        return waiting.pop(0) if waiting else None

    def carry_out(self, handling: Attempt, command: Command) -> None:
        handling.carry_out(command)

    def handle(self, handling: Attempt, *replies: Decision, until: type[Command] | None = None) -> list[Command]:
        """Handle a message to its end, with these replies of the model. Returns the commands.

        It ends as well before a request to the model without a reply, and before a command of the kind `until`.
        """
        moves: list[Command] = []
        waiting = list(replies)
        while True:
            command = advance(self.run, handling, self.rules)
            moves.append(command)
            if until is not None and isinstance(command, until):
                return moves
            match command:
                case Append(events):
                    self.write(handling, events)
                case Ask() if (decision := self.next_reply(waiting)) is not None:
                    handling.decision = decision
                case Ask() | commands.Ack() | commands.Abandon():
                    return moves
                case _:
                    self.carry_out(handling, command)

    def play(self, handling: Attempt, *replies: Decision) -> list[Command]:
        """The same; returns the commands that are no appends."""
        return [move for move in self.handle(handling, *replies) if not isinstance(move, Append)]

    def of(self, kind: Any) -> list[Any]:
        """The events of this kind, or union of kinds, in the log."""
        return [event for events in self.written for event in events if isinstance(event, kind)]

    def types(self) -> list[str]:
        return [event.type for events in self.written for event in events]


class Storm:
    """Handlings of messages that go on, crash and are redelivered at random, until the run ends."""

    crashes = 0.1

    def __init__(self, seed: int, opened: RunStarted, rules: Rules = RULES, **fields: Any) -> None:
        """`fields`: of the progress of each handling."""
        self.rng = random.Random(seed)
        self.now = 2000
        self.world = World(rules)
        self.fields = fields
        self.handlings = [self.world.handling("REQUESTS:1", started=opened, **fields)]
        self.delivered = {"REQUESTS:1"}
        self.asked: Counter[tuple[int, int]] = Counter()

    def reply(self, turn: int) -> Decision:
        raise NotImplementedError

    def send(self, call: PlannedCall, *, again: bool) -> None:
        """A call is sent, and ends. `again`: it may have been sent before."""
        del again
        self.deliver(f"INBOX:{call.call_id}", finished(call.call_id))

    def set_timer(self, timer: TimerFired) -> None:
        """A timer is set. It fires at once, unless a storm keeps it."""
        self.deliver(f"INBOX:{timer.timer}-{timer.at}", timer)

    def outside(self) -> None:
        """What people and timers do meanwhile."""

    def deliver(self, owner: str, message: Received | str, now: int | None = None) -> None:
        """A message arrives, once."""
        if owner not in self.delivered:
            self.delivered.add(owner)
            now = self.now if now is None else now
            self.handlings.append(self.world.handling(owner, message, later_token(), now, **self.fields))

    def step(self) -> None:
        """Let one handling carry out its next command, or crash."""
        handling = self.rng.choice(self.handlings)
        if self.rng.random() < self.crashes:
            self.crash(handling)
        else:
            self.carry_out(handling)
        self.outside()

    def crash(self, handling: Attempt) -> None:
        self.handlings[self.handlings.index(handling)] = handling.again(later_token())

    def write(self, handling: Attempt, events: Sequence[Any]) -> None:
        self.world.write(handling, events)

    def carry_out(self, handling: Attempt) -> Command:
        """Carry out the next command. Before a record another one may come."""
        match command := advance(self.world.run, handling, self.world.rules):
            case Append(events):
                if self.rng.random() < 0.9:
                    self.write(handling, events)
            case Ask(asked):
                self.asked[asked.turn, asked.attempt] += 1
                handling.decision = self.reply(asked.turn)
            case _:
                handling.carry_out(command)
        match command:
            case commands.Say(asked, _):
                self.asked[asked.turn, asked.attempt] += 1
            case commands.Dispatch(sent, again):
                for call in sent:
                    self.send(call, again=call.call_id in again)
            case commands.SetTimer(name, at):
                self.set_timer(TimerFired(timer=name, at=at))
            case commands.Wake(at):
                self.deliver(f"INBOX:{handling.owner}", RunResumed(at=at))
        return command

    def play(self) -> None:
        """Let the run end."""
        for _ in range(20_000):
            self.step()
            if self.world.run.terminal is not None:
                return
        raise AssertionError(self.world.types())
