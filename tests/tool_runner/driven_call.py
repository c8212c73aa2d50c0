"""A machine of a tool call with its commands and its clock, which tests drive."""

from collections.abc import Sequence
from typing import Any

from contracts.tools.messages import ToolFailure
from contracts.wire.faults import Fault
from services.tool_runner.calls import commands, events
from services.tool_runner.calls.commands import Command
from services.tool_runner.calls.events import Event
from services.tool_runner.calls.machine import CallMachine
from services.tool_runner.calls.state import CallRules, Phase

DEADLINE = 100.0
CANCEL = commands.Cancel()
REPLIES: Sequence[Event] = (
    events.Heartbeat(),
    events.Heartbeat(0.5),
    events.Heartbeat(1000.0),
    events.Progress(b"{}"),
    events.Piece(b"{}"),
    events.BytesWanted(b"{}"),
    events.Content("a text"),
    events.Part(1, b"12"),
    events.Result(1, b"1"),
    events.Result(1, b"", parts=2),
    events.Failure(ToolFailure(reason="no paper")),
    events.Pause(b"{}"),
)


class Call:
    """A machine, its commands so far, and its clock."""

    def __init__(self, *, heartbeat_s: float | None = None, connected_since: float = -10.0, **rules: Any) -> None:
        self.machine = CallMachine(
            CallRules(
                **{
                    "tool": "draw",
                    "idempotent": False,
                    "timeout_s": 30.0,
                    "deadline": DEADLINE,
                    "settling_s": 2.0,
                    "unavailable_s": 5.0,
                    "max_attempts": 3,
                    "max_result_bytes": 10,
                    **rules,
                }
            ),
            connected_since=connected_since,
            heartbeat_s=heartbeat_s,
        )
        self.connected_since: float | None = connected_since
        self.now = 0.0
        self.commands: list[Command] = []

    @property
    def phase(self) -> Phase:
        return self.machine.state.phase

    def start(self, *, may_have_begun: bool = False) -> "Call":
        """Start the call at the time 0, with a fresh check."""
        self.receive(events.Started(may_have_begun, self.now))
        return self

    def receive(self, event: Event) -> list[Command]:
        given = self.machine.receive(event, self.now)
        self.commands += given
        return given

    def at(self, now: float, event: Event) -> list[Command]:
        self.now = now
        return self.receive(event)

    def wait(self) -> list[Command]:
        return self.at(max(self.now, self.machine.alarm_at), events.Tick(self.connected_since))

    def wait_for(self, phase: Phase) -> list[Command]:
        """Let time pass until the machine is in a phase, and return what it last commanded. Checks succeed."""
        given: list[Command] = []
        while self.phase != phase:
            given = self.receive(events.StatusConfirmed(self.now)) if self.phase == "checking" else self.wait()
        return given

    def fault(self) -> Fault:
        """Return the failure with which the call has ended."""
        last = self.commands[-1]
        assert isinstance(last, commands.Fail)
        return last.failure.fault()

    def sent(self) -> int:
        return sum(isinstance(command, commands.Send) for command in self.commands)
