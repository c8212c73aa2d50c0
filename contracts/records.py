"""How events are stored: a record holds all events of one transition, in order.

A record of an unknown version is refused; an unknown field or event never is.
"""

from typing import Literal

from pydantic import Field

from .base import Message
from .events import RunEvent
from .ids import new_id, unix_ms

VERSION: Literal[1] = 1
EVENTS_HEADER = "Runwire-Events"
"""Names the types of a record's events, so that a reader may skip it unparsed."""


class Record(Message):
    """One message on a run's log or stream."""

    v: Literal[1] = VERSION
    id: str = Field(
        default_factory=new_id, description="made by the writer; settles whether an unsure write was stored"
    )
    at: int = Field(default_factory=unix_ms, description="the writer's clock, Unix ms; for people")
    events: list[RunEvent] = Field(min_length=1)

    def types(self) -> str:
        """The value of the header `Runwire-Events`."""
        return ",".join(event.type for event in self.events)
