"""Marks the calls that are made directly, in the record that announces them. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from contracts.runs.events import Called, Paused, PlannedCall, Step
from services.planner.run.state.run import Event, Run
from services.shared.tools.builtin import OF_PLANNER


@dataclass(frozen=True, slots=True)
class DirectRules:
    """Which calls may be made directly now."""

    instance: str
    """The instance of tool_runner that is called."""
    slow: frozenset[str] = frozenset()
    """Tools that are not called directly."""

    def marked(self, run: Run, events: Sequence[Event]) -> list[Event]:
        """Return the events of a record with its direct calls marked.

        Calls beyond `max_parallel` and those that wait for an approval are marked when they are called. A call that its
        tool has paused before goes through CALLS, so that no two of its rounds are mistaken for each other.
        """
        held = {event.call_id for event in events if isinstance(event, Paused)}
        return [self._marked(run, event, held) for event in events]

    def _marked(self, run: Run, event: Event, held: Collection[str | None]) -> Event:
        match event:
            case Step(status="started", calls=[_, *_]):
                places = run.limits.max_parallel
                calls = [*(self._marked_call(call, held) for call in event.calls[:places]), *event.calls[places:]]
            case Called():
                calls = [self._marked_call(call, held) for call in event.calls]
            case _:
                return event
        return event.model_copy(update={"calls": calls})

    def _marked_call(self, call: PlannedCall, held: Collection[str | None]) -> PlannedCall:
        if call.tool in self.slow or call.tool in OF_PLANNER or call.round or call.call_id in held:
            return call
        return call.model_copy(update={"direct": self.instance})
