"""Records: a record is one message in the log or stream of a run. It holds all events of one transition, in order.

A record of an unknown version is refused; unknown fields and events are accepted.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from ..runs.events import RunEvent
from .base import Message
from .names import new_id, unix_ms

VERSION: Literal[1] = 1
EVENTS_HEADER = "Runwire-Events"
"""The types of a record's events, so that a reader can skip it without parsing."""

EXPIRES = {"Nats-TTL": "3600"}
"""On chunks, thoughts and progress: seconds after which the server removes them. The answer stays in the log."""

PAUSES_HEADER = "Runwire-Open-Pauses"
"""On a record of a log after which pauses with a `pause_id` are open: how many. Absent: none."""

VERSION_HEADER = "Runwire-Version"
"""On a record of a log: the version of the planner that wrote it."""


class Record(Message):
    """All events of one transition."""

    v: Literal[1] = VERSION
    id: str = Field(
        default_factory=new_id, description="made by the writer; it shows whether a write without an answer was stored"
    )
    at: int = Field(default_factory=unix_ms, description="the writer's clock, Unix ms; for people")
    events: list[RunEvent] = Field(min_length=1)

    def types(self) -> str:
        """The value of the header `Runwire-Events`."""
        return ",".join(event.type for event in self.events)


def types_in(headers: Mapping[str, str] | None) -> list[str]:
    """Return the types of a record's events, as its headers name them."""
    return (headers or {}).get(EVENTS_HEADER, "").split(",")
