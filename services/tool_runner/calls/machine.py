"""One call of a tool, as a state machine: an event and the time in, commands out. No I/O, no clock, no transport.

Rule 1: a request that may have reached the tool is repeated only if the tool is idempotent. Before the repetition all
instances are asked which of them works on the call; if one does, it continues. A call is lost only after the time by
which an instance may begin it: one that was stopped may have the request unread in its socket.
Rule 2: silence and "no responders" count only while NATS is connected, and not shortly after a reconnect: tools
reconnect too, and replies sent meanwhile are lost. So after a reconnect the instances are first asked which of them
works on the call.
Rule 3: before each request the status of the call is checked again when the last check is older than a second, because
this process may have been suspended.
Rule 4: a tool that announces its heartbeat interval is missed after three of them; of any other tool `timeout_s` is the
longest silence. A tool that has not replied yet is asked early whether it works on the call: where instances receive
that question and none replies, the call is lost.
Rule 5: in each quarter of a second of silence NATS is asked whether the instance is still connected; after a missed
heartbeat, where the instance is unknown, whether any is. If not, its process was probably killed: the call is lost
unless an instance replies within `_RECONNECT_S`. A process that only lacks CPU stays connected, so rule 4 decides.
Rule 6: a round of a call ends once, with an outcome or a pause. An event that is not legal in the current phase
(`TRANSITIONS`) changes nothing.

All times are seconds of one monotonic clock.
"""

import math
from typing import assert_never

from services.tool_runner import errors

from . import commands, events
from .commands import Command
from .events import Event
from .state import TRANSITIONS, CallRules, CallState, SearchReason

_STATUS_WAIT_S = 0.3
"""How long instances have to answer that they work on a call."""
_SLOW_STATUS_WAIT_S = 1.0
"""The same wait for an instance that sent a heartbeat a moment ago: it may lack CPU and not be dead."""
_RECONNECT_S, _RECONNECT_WAIT_S = 0.4, 0.2
"""How long an instance that is not connected has to reconnect and answer, and how often it is asked meanwhile. The SDK
tries to reconnect at once."""
_PROBE_EVERY_S = 0.25
_LATE_HEARTBEATS, _LATE_HEARTBEAT_SLACK_S = 1.2, 0.05
"""Intervals, and seconds, of silence after which NATS is asked whether the instance is connected."""
_MAX_CHECK_AGE_S = 1.0
_ALONE_S = 1.0
"""Seconds after its begin in which no other tool runner gets the call, since a planner waits longer for the reply."""
_DELAY_S, _MAX_DELAY_S = 0.1, 0.5
_FIRST_BUSY_DELAY_S = 0.02
"""The delay after an instance was too busy, doubled each time: another instance may be free."""
_MAX_MISSED_HEARTBEATS = 3
_HEARTBEAT_SLACK_S = 1.0
_FIRST_QUERY_S = 2.5
"""Silence after which a tool without a heartbeat interval is asked whether it works on the call."""
_MIN_START_S = 10.0
"""Seconds in which a tool may begin a call that does not say how soon it replies, since clocks of machines differ."""
_MAX_TIMES_LATE = 10
"""An instance whose clock is ahead declines one request, and corrects its clock by the repetition."""


class CallMachine:
    """Decides what to do in one call. After an Ending it is done."""

    def __init__(self, rules: CallRules, *, connected_since: float, heartbeat_s: float | None) -> None:
        self.rules = rules
        is_usable = heartbeat_s is not None and heartbeat_s <= rules.timeout_s
        self.state = CallState(connected_since, heartbeat_s if is_usable else None)

    @property
    def alarm_at(self) -> float:
        """When the transport must send a Tick if no other event comes before; infinite: never."""
        state = self.state
        match state.phase:
            case "delayed":
                return min(state.wake_at, self.rules.deadline)
            case "waiting":
                return min(self._silent_at, self._probe_at, state.query_at, self.rules.deadline)
            case "searching":
                return state.wake_at
            case "new" | "checking" | "ended":
                return math.inf
            case _:
                assert_never(state.phase)

    @property
    def _silent_at(self) -> float:
        """When the silence of the tool will have been too long."""
        return max(self.state.last_event_at + self._silence_limit_s, self._trusted_at)

    @property
    def _probe_at(self) -> float:
        """When the silence will be a reason to ask whether the instance is connected."""
        state = self.state
        if state.heartbeat_s is None:
            return math.inf
        late_s = _PROBE_EVERY_S if state.instance else _LATE_HEARTBEATS * state.heartbeat_s + _LATE_HEARTBEAT_SLACK_S
        return max(state.last_event_at + late_s, state.probed_at + late_s, self._trusted_at)

    @property
    def _trusted_at(self) -> float:
        """When silence will mean something, unless the connection is lost again."""
        return self.state.connected_since + max(self.rules.settling_s, _DELAY_S)

    @property
    def _silence_limit_s(self) -> float:
        state, timeout_s = self.state, self.rules.timeout_s
        if state.heartbeat_s is None:
            return timeout_s if state.no_status else min(_FIRST_QUERY_S, timeout_s)
        limit_s = _MAX_MISSED_HEARTBEATS * state.heartbeat_s + _HEARTBEAT_SLACK_S
        return limit_s if state.has_heartbeat else min(limit_s, timeout_s)

    @property
    def _start_s(self) -> float:
        """In how many seconds after a request an instance may begin the call, unless it has replied by then."""
        least_s = _MIN_START_S if self.state.heartbeat_s is None else 0.0
        return max(self._silence_limit_s, least_s)

    def receive(self, event: Event, now: float) -> list[Command]:
        """Return what to do about an event, in this order. Nothing for an event that is not legal now."""
        state = self.state
        if state.phase not in TRANSITIONS[type(event)]:
            return []
        if isinstance(event, events.RunEnded):
            return [commands.Cancel(), self._end(commands.Abandon(run_ended=True))]
        if now >= self.rules.deadline and state.phase in {"delayed", "waiting"}:
            return self._fail(_deadline_passed("could be asked" if state.phase == "delayed" else "answered"))
        match event:
            case events.Started() | events.StatusConfirmed() | events.AlreadyCompleted():
                return self._on_status(event, now)
            case events.NotSent() | events.Declined():
                return self._on_not_begun(event, now) if event.request == state.unreceived else []
            case events.NoResponders() | events.Lost():
                return self._on_absent(event, now)
            case events.Flood():
                return self._fail(errors.ResultTooLarge(f"{self.rules.tool} sent more than can be handled"))
            case events.Reconnected():
                return self._on_reconnected(now)
            case events.Tick(connected_since):
                return self._on_tick(connected_since, now)
            case _:
                return self._on_reply(event, now)

    def _on_status(
        self, event: events.Started | events.StatusConfirmed | events.AlreadyCompleted, now: float
    ) -> list[Command]:
        if isinstance(event, events.AlreadyCompleted):
            return [self._end(commands.Abandon(run_ended=False))]
        self.state.checked_at = event.checked_at
        self.state.began_at = min(self.state.began_at, now)
        if isinstance(event, events.Started):
            self.state.may_be_unread = event.may_be_unread or event.may_have_begun
            if event.may_have_begun:
                self.state.may_begin_until = now + self._start_s  # Another tool runner has just sent it, perhaps.
                return self._search("may_have_begun", now)
        return self._send(now)

    def _send(self, now: float) -> list[Command]:
        """Send the call, after a check of its status if the last one is not recent."""
        state, deadline = self.state, self.rules.deadline
        if now - state.checked_at > _MAX_CHECK_AGE_S:
            state.phase = "checking"
            return [commands.CheckStatus()]
        if now >= deadline:
            return self._fail(_deadline_passed("could be asked"))
        state.phase, state.last_event_at = "waiting", now
        state.attempts += 1
        state.requests += 1
        state.unreceived = state.sent = state.requests
        state.may_begin_until = min(deadline, now + self._start_s)
        repeats, state.repeats = state.repeats, None
        return [commands.Send(state.requests, state.may_begin_until, repeats)]

    def _repeat(self, now: float) -> list[Command]:
        """Send the call again if that is safe. The tool was called, and no instance works on the call any more."""
        state, tool = self.state, self.rules.tool
        if not self.rules.idempotent:
            return self._fail(errors.OutcomeUnknown(tool))
        if state.attempts >= self.rules.max_attempts:
            return self._fail(
                errors.ToolUnavailable(f"{tool} stopped in the middle of this call {state.attempts} times")
            )
        state.has_heartbeat, state.no_status, state.may_be_unread = False, False, True
        state.instance = state.content = state.absent_since = None
        state.repeats = state.attempts
        state.checked_at = -math.inf  # Another tool runner may have completed the call during the search.
        return self._send(now)

    def _on_not_begun(self, event: events.NotSent | events.Declined, now: float) -> list[Command]:
        state = self.state
        if isinstance(event, events.NotSent):
            return self._delay(_DELAY_S, now)
        state.absent_since = None
        if event.is_busy:
            state.times_busy += 1
            return self._delay(min(_MAX_DELAY_S, _FIRST_BUSY_DELAY_S * 2 ** min(state.times_busy, 10)), now)
        state.times_late += 1
        if state.times_late >= _MAX_TIMES_LATE:
            late = f"{self.rules.tool} received this call {state.times_late} times too late to start it"
            return self._fail(errors.ToolUnavailable(f"{late}: its process was stopped, or its clock is wrong"))
        return self._delay(_DELAY_S, now)

    def _on_absent(self, event: events.NoResponders | events.Lost, now: float) -> list[Command]:
        state, request = self.state, event.request
        if isinstance(event, events.Lost):
            return self._repeat(now) if request == state.sent else []
        if state.phase == "searching" and request == state.query:
            return self._on_not_found(now, nobody_subscribes=True) if self._has_searched(now) else []
        if state.phase == "waiting" and request == state.probe:
            return self._search("disconnected", now) if self._is_settled(now) else []
        if state.phase == "waiting" and request == state.query:
            if not self._is_settled(now):  # This process may have reconnected before the tool's.
                state.query_at = now + _DELAY_S
            return []
        if request != state.unreceived:
            return []
        if state.absent_since is None:
            state.absent_since = now
        absent_s = now - state.absent_since
        if self._is_settled(now) and absent_s >= self.rules.unavailable_s:
            died = state.attempts - 1  # The last one was not received.
            times = {1: "once", 2: "twice"}.get(died, f"{died} times")
            how = f"its process died {times} in this call, and " if died else ""
            return self._fail(
                errors.ToolUnavailable(f"no service for tool {self.rules.tool}: {how}none is connected now")
            )
        state.checked_at = -math.inf  # Another tool runner may have completed the call meanwhile.
        return self._delay(min(_MAX_DELAY_S, _DELAY_S + absent_s / 2), now)

    def _delay(self, seconds: float, now: float) -> list[Command]:
        """Send again later. The last request began nothing, so it does not count."""
        state = self.state
        state.attempts -= 1
        state.unreceived, state.may_begin_until = None, -math.inf
        if self.rules.may_decline and state.attempts == 0:
            return [self._end(commands.Decline())]
        state.phase, state.wake_at, state.query_at = "delayed", now + seconds, math.inf
        return []

    def _on_reconnected(self, now: float) -> list[Command]:
        state = self.state
        state.connected_since = state.last_event_at = now
        if state.phase == "searching":
            return self._search(state.search_reason, now)
        if state.phase == "waiting":
            # Replies of the meantime are lost; the instance that works on the call sends them again.
            return self._query_status()
        return []

    def _query_status(self) -> list[Command]:
        state = self.state
        state.requests += 1
        state.query, state.query_at = state.requests, math.inf
        return [commands.QueryStatus(state.requests)]

    def _on_tick(self, connected_since: float | None, now: float) -> list[Command]:
        state = self.state
        state.connected_since = now if connected_since is None else connected_since
        if now < self.alarm_at:
            return []
        match state.phase:
            case "delayed":
                return self._send(now)
            case "waiting" if now >= min(self._silent_at, self.rules.deadline):
                return self._search("silence", now)
            case "waiting" if now >= state.query_at:
                return self._query_status()
            case "waiting":
                # Ask whether the instance is connected; if it is unknown, whether any instance is.
                state.requests += 1
                state.probe, state.probed_at = state.requests, now
                if state.instance is None:
                    return [commands.QueryStatus(state.requests)]
                return [commands.PingInstance(state.requests, state.instance)]
            case "searching" if self._has_searched(now):
                return self._on_not_found(now, nobody_subscribes=False)
            case "searching":
                return self._search(state.search_reason, now)
            case _:
                return []

    def _has_searched(self, now: float) -> bool:
        """Whether an instance that works on the call would have answered the search by now."""
        if self.state.search_reason == "disconnected" and now < self.state.searched_since + _RECONNECT_S:
            return False
        return self._is_settled(now) or now >= self.rules.deadline

    def _is_settled(self, now: float) -> bool:
        """Whether the tools have had time to reconnect."""
        return now - self.state.connected_since > self.rules.settling_s

    def _search(self, reason: SearchReason, now: float) -> list[Command]:
        """Ask all instances which of them works on the call. Any reply of an instance ends the search."""
        state = self.state
        wait_s = _SLOW_STATUS_WAIT_S if reason == "silence" and state.has_heartbeat else _STATUS_WAIT_S
        if reason == "disconnected":
            wait_s = _RECONNECT_WAIT_S
        if state.phase != "searching":
            state.searched_since = now
        state.phase, state.search_reason, state.asked_at, state.wake_at = "searching", reason, now, now + wait_s
        return self._query_status()

    def _on_not_found(self, now: float, *, nobody_subscribes: bool) -> list[Command]:
        """End a search in which no instance has replied."""
        state, rules = self.state, self.rules
        if state.search_reason == "parts_lost":
            return self._lose_parts(now)
        if state.search_reason == "may_have_begun" or not nobody_subscribes or state.heartbeat_s is not None:
            # An instance that begins the call in the last moment answers a question after that.
            if now < rules.deadline and state.asked_at < state.may_begin_until:
                return [] if nobody_subscribes else self._search(state.search_reason, now)
            return self._repeat(now)
        # No instance subscribes to the query, so `timeout_s` is the longest silence.
        state.phase, state.no_status = "waiting", True
        if now - state.last_event_at < rules.timeout_s:
            return []
        unknown = "" if rules.idempotent else " Whether the call took effect is unknown."
        late = f"{rules.tool} timed out: it did not answer within {rules.timeout_s:g} s."
        return self._fail(errors.ToolTimedOut(late + unknown))

    def _on_reply(self, event: events.Reply, now: float) -> list[Command]:
        state = self.state
        state.phase, state.last_event_at, state.query_at = "waiting", now, math.inf
        state.unreceived, state.absent_since, state.may_begin_until = None, None, -math.inf
        state.times_busy, state.probe = 0, None
        match event:
            case events.Heartbeat(every_s, instance):
                state.instance = instance or state.instance
                if every_s is not None and every_s <= self.rules.timeout_s:
                    state.has_heartbeat, state.heartbeat_s = True, every_s
                    return [commands.RememberHeartbeat(every_s)]
                return []
            case events.Progress() | events.Piece() | events.BytesWanted():
                return [commands.PassOn(event)]
            case events.Content(text):
                state.content = event if text else None
                return []
            case events.Part(request, data):
                count, size = state.parts.get(request, (0, 0))
                state.parts[request] = (count + 1, size + len(data))
                return self._too_large(size + len(data), now) or [commands.KeepPart(request, data)]
            case events.Result():
                return self._on_result(event, now)
            case events.Failure(failure):
                return self._complete(commands.Fail(errors.ToolReported(failure)), now)
            case events.Pause(data):
                return self._complete(commands.Pause(data), now)
            case _:
                assert_never(event)

    def _on_result(self, event: events.Result, now: float) -> list[Command]:
        state = self.state
        if event.parts is None:
            ending = commands.Succeed(event.data, state.content)
            return self._too_large(len(event.data), now) or self._complete(ending, now)
        if state.parts.get(event.request, (0, 0))[0] == event.parts:
            return self._complete(commands.SucceedInParts(event.request, state.content), now)
        # Parts were lost: the instance that has the result sends it again, once.
        if state.has_searched_parts:
            return self._lose_parts(now)
        state.has_searched_parts = True
        return self._search("parts_lost", now)

    def _lose_parts(self, now: float) -> list[Command]:
        return self._complete(
            commands.Fail(errors.InvalidResult(f"parts of the result of {self.rules.tool} were lost on the way")), now
        )

    def _too_large(self, size: int, now: float) -> list[Command]:
        if size <= self.rules.max_result_bytes:
            return []
        limit = f"above {self.rules.max_result_bytes} bytes; ask for less, or for a part of it"
        return self._complete(commands.Fail(errors.ResultTooLarge(f"the result of {self.rules.tool} is {limit}")), now)

    def _complete(self, ending: commands.Ending, now: float) -> list[Command]:
        """End a call that the tool has ended. Only requests that an instance may still read are cancelled."""
        may_be_unread = self.state.may_be_unread or now - self.state.began_at > _ALONE_S
        return [*([commands.Cancel()] if may_be_unread else []), self._end(ending)]

    def _fail(self, failure: errors.CallFailed) -> list[Command]:
        """End a call that an instance may still work on."""
        return [commands.Cancel(), self._end(commands.Fail(failure))]

    def _end(self, ending: commands.Ending) -> commands.Ending:
        self.state.phase = "ended"
        return ending


def _deadline_passed(before: str) -> errors.DeadlinePassed:
    return errors.DeadlinePassed(f"the time for this call was over before the tool {before}")
