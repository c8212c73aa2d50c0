"""The state of one tool call: its rules, what is known about it, and which events are legal when."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from . import events
from .events import Event

Phase = Literal["new", "checking", "delayed", "waiting", "searching", "ended"]
"""`checking`: the status is checked before a request. `delayed`: a request began nothing and is sent again soon.
`waiting`: an instance may work on the call. `searching`: all instances are asked which of them does."""

SearchReason = Literal["may_have_begun", "silence", "disconnected", "parts_lost"]
"""`disconnected`: the instance that worked on the call is no longer connected to NATS."""

_TO_WAITING: Mapping[Phase, frozenset[Phase]] = {
    "checking": frozenset({"waiting"}),
    "delayed": frozenset({"waiting", "ended"}),
    "waiting": frozenset({"waiting", "ended"}),
    "searching": frozenset({"waiting"}),
}
_TO_END: Mapping[Phase, frozenset[Phase]] = dict.fromkeys(_TO_WAITING, frozenset[Phase]({"ended"}))

TRANSITIONS: Mapping[type[Event], Mapping[Phase, frozenset[Phase]]] = {
    events.Started: {"new": frozenset({"checking", "waiting", "searching", "ended"})},
    events.StatusConfirmed: {"checking": frozenset({"checking", "waiting", "ended"})},
    events.AlreadyCompleted: {"checking": frozenset({"ended"})},
    events.RunEnded: {"new": frozenset({"ended"}), **_TO_END},
    events.NotSent: {"waiting": frozenset({"waiting", "delayed", "ended"})},
    events.Declined: {
        "waiting": frozenset({"waiting", "delayed", "ended"}),
        "searching": frozenset({"searching", "delayed", "ended"}),
    },
    events.NoResponders: {
        "waiting": frozenset({"waiting", "delayed", "searching", "ended"}),
        "searching": frozenset({"searching", "waiting", "checking", "delayed", "ended"}),
    },
    events.Lost: {
        "waiting": frozenset({"waiting", "checking", "ended"}),
        "searching": frozenset({"searching", "checking", "ended"}),
    },
    events.Heartbeat: _TO_WAITING,
    events.Progress: _TO_WAITING,
    events.Piece: _TO_WAITING,
    events.Content: _TO_WAITING,
    events.BytesWanted: _TO_WAITING,
    events.Part: dict.fromkeys(_TO_WAITING, frozenset[Phase]({"waiting", "ended"})),
    events.Result: dict.fromkeys(_TO_WAITING, frozenset[Phase]({"searching", "ended"})),
    events.Failure: _TO_END,
    events.Pause: _TO_END,
    events.Flood: _TO_END,
    events.Reconnected: {
        "checking": frozenset({"checking"}),
        "delayed": frozenset({"delayed", "ended"}),
        "waiting": frozenset({"waiting", "ended"}),
        "searching": frozenset({"searching"}),
    },
    events.Tick: {
        "delayed": frozenset({"delayed", "checking", "waiting", "ended"}),
        "waiting": frozenset({"waiting", "searching", "ended"}),
        "searching": frozenset({"searching", "checking", "ended"}),
    },
}
"""Event -> phase in which it is legal -> phases that may follow. After the deadline any event ends a call that waits or
is delayed."""


@dataclass(frozen=True, slots=True)
class CallRules:
    """What the specification, the request and the settings say about one call."""

    tool: str
    idempotent: bool
    timeout_s: float
    deadline: float
    settling_s: float
    """How long after a reconnect silence and "no responders" do not count, since tools reconnect too."""
    unavailable_s: float
    max_result_bytes: int
    max_attempts: int = 3
    """Of an idempotent call whose tool process dies in the middle."""
    may_decline: bool = False
    """A call that nobody could begin at once ends with `Decline`, in place of a delay."""


@dataclass(slots=True)
class CallState:
    """What is known about one call. Only its machine changes it."""

    connected_since: float
    """Since then NATS has been connected, as far as is known."""
    heartbeat_s: float | None
    """The tool's heartbeat interval, announced by its specification or by an instance."""
    phase: Phase = "new"
    began_at: float = math.inf
    checked_at: float = -math.inf
    last_event_at: float = -math.inf
    wake_at: float = math.inf
    """When a delay or a round of a search is over."""
    requests: int = 0
    """The number of the last request."""
    sent: int = 0
    """The number of the last `Send`; 0: there was none."""
    unreceived: int | None = None
    """The number of the last `Send`, until an instance replies to the call."""
    may_begin_until: float = -math.inf
    """By when an instance that has not replied may begin the call."""
    query: int | None = None
    """The number of the last status query."""
    query_at: float = math.inf
    """While waiting: when the status query after a reconnect is sent again, if the tool had not subscribed yet."""
    instance: str | None = None
    """The instance that works on the call, where it says so."""
    probe: int | None = None
    """The number of the last request that asked whether that instance is connected."""
    probed_at: float = -math.inf
    search_reason: SearchReason = "silence"
    searched_since: float = math.inf
    asked_at: float = -math.inf
    """When a search has asked all instances last."""
    attempts: int = 0
    """Requests that may have reached an instance."""
    repeats: int | None = None
    """The attempts before a repetition that is not sent yet."""
    may_be_unread: bool = False
    """A suspended instance may have an unread request of this call."""
    has_heartbeat: bool = False
    """The instance that works on the call has sent its interval."""
    no_status: bool = False
    """Nobody subscribes to the status queries of the tool."""
    times_busy: int = 0
    """How often in a row an instance was too busy for the call."""
    times_late: int = 0
    """How often an instance received the call too late to start it."""
    absent_since: float | None = None
    """Since when nobody has subscribed to the tool."""
    parts: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Request -> number and bytes of the parts of its result."""
    has_searched_parts: bool = False
    content: events.Content | None = None
    """The last text of the function that runs now."""
