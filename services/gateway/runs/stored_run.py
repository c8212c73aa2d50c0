"""What is stored of one run, and what follows from it. Pure."""

from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from contracts.runs.events import TERMINAL, Done, Paused, Queued, RunStarted, Terminal
from contracts.runs.pauses import OpenPause
from contracts.runs.payload import FinalPayload
from contracts.runs.requests import RunRequested, RunStatus
from contracts.wire.ids import own_session_id
from contracts.wire.records import Record
from services.shared.runs.run_status import status_of
from services.shared.runs.waiting import Waiting

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class StoredRun:
    """What is stored of a run. `queued`: its request, until a planner has opened the run. The rest is of its log.

    `started`: the record that began it; None while it waits for its turn in a session, or was cancelled before.
    """

    run_id: str
    queued: RunRequested | None
    first: Record | None = None
    last: Record | None = None
    first_sequence: int = 0
    last_sequence: int = 0
    started: Record | None = None
    waiting: Waiting = field(default_factory=Waiting)
    """What it waits for. Empty while no pause can be open."""

    @property
    def pauses(self) -> list[OpenPause]:
        """Its open pauses, as people see them."""
        return self.waiting.views(self.run_id)

    @property
    def has_ended(self) -> bool:
        """Whether its log is complete."""
        return self.last is not None and self.last.events[-1].type in TERMINAL

    @property
    def waits_for_planner(self) -> bool:
        """Whether no planner has opened it."""
        return self.first is None

    @property
    def waits_for_turn(self) -> bool:
        """Whether another run of its session has the turn."""
        return self.first is not None and isinstance(self.first.events[0], Queued) and self.started is None

    @property
    def session_id(self) -> str:
        """The session that it belongs to."""
        request = self.request()
        return (request.session_id if request else None) or own_session_id(self.run_id)

    def request(self) -> RunRequested | None:
        """Return its request; None when it was cancelled before the request arrived."""
        if self.queued is not None:
            return self.queued
        events = [record.events[0] for record in (self.first, self.started) if record is not None]
        return next((event.request for event in events if isinstance(event, RunStarted | Queued)), None)

    def status(self) -> RunStatus:
        """Return its status, with the payload of an ended run."""
        request, first, last = self.request(), self.first, self.last
        event = last.events[-1] if last else None
        end = event if isinstance(event, Terminal) else None
        status = status_of(
            self.run_id,
            request,
            end,
            is_open=first is not None and not self.waits_for_turn,
            started_at=self.started.at if self.started else None,
            ended_at=last.at if last and end else None,
        )
        more: dict[str, Any] = {"payload": payload_of(end) if end else None, "pauses": self.pauses}
        if isinstance(event, Paused) and event.pause_id is None:
            more["paused"] = event.budget
        if request is None and first is not None:
            more["requested_at"] = first.at
        return status.model_copy(update=more)


def begins(record: Record) -> bool:
    """Return whether a record is the one that begins a run."""
    return any(isinstance(event, RunStarted) for event in record.events)


def payload_of(end: Terminal) -> FinalPayload:
    """Return the payload of a run's terminal event."""
    if isinstance(end, Done):
        return FinalPayload.model_construct(**{name: getattr(end, name) for name in FinalPayload.model_fields})
    return end.payload


def parsed(model: type[Model], data: bytes) -> Model | None:
    """Return a stored message; None for one that is not valid."""
    try:
        return model.model_validate_json(data)
    except (ValidationError, RecursionError):
        return None
