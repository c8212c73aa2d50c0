"""Marks the calls that are made directly, in the record that announces them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from contracts.events import Called, PlannedCall, Step
from services.planner.run.state import Event, Run


@dataclass(frozen=True, slots=True)
class DirectRules:
    """Which calls may be made directly now."""

    instance: str
    """The instance of tool_runner that is called."""
    slow: frozenset[str] = frozenset()
    """Tools that are not called directly."""

    def marked(self, run: Run, events: Sequence[Event]) -> list[Event]:
        """Return the events of a record with its direct calls marked. Calls beyond `max_parallel` are marked later."""
        return [self._marked(run, event) for event in events]

    def _marked(self, run: Run, event: Event) -> Event:
        match event:
            case Step(status="started", calls=[_, *_]):
                places = run.limits.max_parallel
                calls = [*map(self._marked_call, event.calls[:places]), *event.calls[places:]]
            case Called():
                calls = [self._marked_call(call) for call in event.calls]
            case _:
                return event
        return event.model_copy(update={"calls": calls})

    def _marked_call(self, call: PlannedCall) -> PlannedCall:
        return call if call.tool in self.slow else call.model_copy(update={"direct": self.instance})
