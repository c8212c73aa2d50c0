"""A run without a server: the rules, the fold, the prompt, the parser and the text of the records, and nothing else.

What is left of a planner's work once the bus is taken away, to set beside planners that keep a run in memory.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from contracts.runs.events import RunStarted
from contracts.runs.inbox import CallFinished
from contracts.runs.payload import Usage
from contracts.runs.requests import RunLimits, RunRequested
from contracts.tools.messages import ToolSpec
from contracts.wire.records import Record
from services.planner.agents import Agent
from services.planner.models.types import Reply
from services.planner.run.advance import advance
from services.planner.run.commands import (
    Ack,
    Append,
    Ask,
    Close,
    Dispatch,
    Handling,
    Incoming,
    Open,
    Opening,
    Progress,
    Rules,
)
from services.planner.run.ending import terminal
from services.planner.run.state.fold import fold
from services.planner.run.state.run import Run
from services.planner.run.turn.decision import Decision
from services.planner.strategies.react.strategy import React

SPEC = ToolSpec(
    name="instant",
    description="Return at once; may be repeated.",
    input_schema={"type": "object", "properties": {"at": {"type": "integer"}}, "required": ["at"]},
)
_RUN = "0" * 32


class Alone:
    """One run. `moments` holds what `clock` said whenever the model was asked."""

    def __init__(self, calls: int, clock: Callable[[], float] = time.process_time) -> None:
        self.moments: list[float] = []
        self.run = Run()
        self._calls = calls
        self._clock = clock
        self._react = React(native_reasoning=True, idle_s=60, total_s=60)
        self._rules = Rules(strategy=self._react, max_characters=1 << 40)
        self._waiting: list[Handling] = []

    def play(self) -> list[float]:
        """Seconds of each step: from a question to the model to the next one."""
        request = RunRequested(run_id=_RUN, tenant="default", requested_at=0, trace_id=_RUN, query="a question")
        limits = RunLimits(max_steps=self._calls + 10, deadline_s=None)
        started = RunStarted(run_id=_RUN, tenant="default", request=request, limits=limits, tools={SPEC.name: "d" * 24})
        opening = Progress(0, opening=Opening(started))
        self._waiting.append(Handling(Incoming("REQUESTS:1", "h", request), opening))
        while self._waiting:
            self._handle(self._waiting.pop())
        if self.run.terminal is None:
            raise RuntimeError("the run did not end")
        return [after - before for before, after in zip(self.moments, self.moments[1:], strict=False)]

    def _handle(self, handling: Handling) -> None:
        progress = handling.progress
        while True:
            match advance(self.run, Handling(handling.incoming, progress), self._rules):
                case Append(events):
                    record, _ = terminal.fitting(Record(at=progress.now, events=[*events]))
                    fold(self.run, self.run.seq + 1, progress.now, record.events)
                    progress = progress.wrote(events)
                case Ask():
                    progress = replace(progress, decision=self._decision())
                case Dispatch(calls, _):
                    progress = replace(progress, dispatched=frozenset(call.call_id for call in calls))
                    for call in calls:
                        finished = CallFinished(
                            call_id=call.call_id, tool=call.tool, status="succeeded", observation=call.args
                        )
                        incoming = Incoming(f"INBOX:{call.call_id}", "h", finished)
                        self._waiting.append(Handling(incoming, Progress(0)))
                case Open():
                    progress = replace(progress, opened=True)
                case Close():
                    progress = replace(progress, closed=True)
                case Ack():
                    return
                case move:
                    raise RuntimeError(f"no such move is expected here: {move}")

    def _decision(self) -> Decision:
        self._react.request(self.run, [SPEC], Agent())
        self.moments.append(self._clock())
        if len(self.moments) <= self._calls:
            text = f'{{"next_node": "instant", "args": {{"at": {len(self.moments)}}}}}'
        else:
            text = '{"next_node": "final_response", "args": {"answer": "done"}}'
        reading = self._react.read(self.run, [SPEC])
        reading.feed(text)
        return reading.decide(Reply(text=text, usage=Usage(model_calls=1)))
