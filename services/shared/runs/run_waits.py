"""Whether a run does nothing but wait for people, from the facts of its log. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from contracts.runs.events import TERMINAL, Asked, Called, Observed, Paused, Resumed, RunEvent, RunStarted, Step


def waits_for_person(events: Iterable[RunEvent]) -> bool:
    """Return whether a run waits for people or for a top-up, and no model is called and no tool works meanwhile.

    `events`: all of the run's log.
    """
    run = _Run()
    for event in events:
        run.take(event)
    return run.waits


@dataclass(slots=True)
class _Run:
    held: dict[str | None, str | None] = field(default_factory=dict)
    """Open pause -> the call that waits for it. The wait for a budget has no id."""
    calls: set[str] = field(default_factory=set)
    """Calls without an outcome."""
    decides: bool = False
    """Whether a model is called, or is about to be."""

    @property
    def waits(self) -> bool:
        return bool(self.held) and not self.decides and self.calls <= set(self.held.values())

    def take(self, event: RunEvent) -> None:
        match event:
            case RunStarted() | Asked():
                self.decides = True
                self.held.pop(None, None)
            case Step() | Called():
                self.decides = self.decides and isinstance(event, Called)
                self.calls |= {call.call_id for call in event.calls}
            case Observed():
                self.calls.discard(event.call_id)
            case Paused():
                self.held[event.pause_id] = event.call_id
                if event.call_id is None:
                    self.decides = False
                else:
                    self.calls.add(event.call_id)
            case Resumed():
                # Without a call, the model is called next.
                self.decides = self.held.pop(event.pause_id, None) is None or self.decides
            case _ if event.type in TERMINAL:
                self.held.clear()
