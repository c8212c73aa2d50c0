"""The two paths of a call to tool_runner: a direct request (contracts/tools/messages.py), or the tool's queue in CALLS.

Rule 1: the record that announces a call names the instance. It is stored before the call is made, and is its intent.
Rule 2: the planner keeps its message while it waits for the outcome, 1.2 s at most. A call that takes longer continues,
and is sent through CALLS; its outcome comes through INBOX.
Rule 3: an instance says `begun` before it calls the tool, on the same connection. If it has not said so within 3 s, it
was killed or stopped, and will never begin the call. The call is then sent through CALLS as a new one.
Rule 4: while a begun call lasts, NATS is asked whether the instance is still connected. Nobody answers for a process
that was killed, so its call continues through CALLS at once. A slow or stopped process stays connected.
Rule 5: a tool whose call took longer is called through CALLS for 30 s. So is every tool while half of the planner's
slots wait for direct calls, while no instance has announced itself lately, and while the planner stops.
Rule 6: no tenant fills a tool's queue. It holds calls in order of arrival, and `concurrency` of them run at a time. A
tenant may have at most `concurrency` calls in it, or three quarters of that while several tenants call the tool.
Further calls wait in the handling that recorded them, at the cost of a run that waits for a model.
Rule 7: the NATS server knows the number of queued calls. It is asked while calls wait; in between, this planner counts
the calls that it sends and the outcomes that it receives. Several planners together may exceed the limit by a few.
"""

import asyncio
import random
import time
from functools import partial
from typing import Literal

import structlog
from nats.aio.msg import Msg
from pydantic import ValidationError

from contracts.runs.inbox import CallFinished
from contracts.tools.messages import DIRECT_HEADER, CallRequested, ReceivedAnswer, ReceivedQuestion, RunnerAnnouncement
from contracts.wire import names, subjects
from services.messaging.connection import Bus
from services.messaging.errors import BusError, NoResponders
from services.messaging.fairness import FairSemaphore
from services.messaging.nats_connection import Subscription
from services.planner.run.calls.starting import DirectRules
from services.runtime.tasks import Later

logger = structlog.get_logger(__name__)

START_WITHIN_S = 1.0
"""tool_runner may begin a call until so long after its record, by its own clock. A planner waits longer before it sends
the call through CALLS: a tool_runner that was stopped meanwhile must not begin it when it continues."""
_ANSWER_WITHIN_S = 1.2
"""tool_runner answers within a second."""
_PROBE_EVERY_S = 0.25
"""How often NATS is asked whether the instance is connected."""
_BEGIN_WITHIN_S = 3.0
"""How long to wait for `begun`: `START_WITHIN_S`, and time for clocks that differ and for a busy tool_runner."""
_MAX_CATCH_UP_S = 5.0
"""How long to wait for replies that have arrived and are not handled yet."""
_STATUS_WITHIN_S = 0.5
_MAX_SILENCE_S = 3.5
"""An instance that has not announced itself for so long is not called."""
_SLOW_FOR_S = 30.0
_DECLINED_FOR_S = 1.0


class DirectCalls:
    """The instances of tool_runner that take direct calls, and the tools that are called directly."""

    def __init__(self, bus: Bus, *, max_waiting: int) -> None:
        """`max_waiting`: how many direct calls may wait for their replies at once."""
        self._bus = bus
        self._max_waiting = max_waiting
        self._waiting = 0
        self._is_stopped = False
        self._instances: dict[str, float] = {}
        """Instance -> when it announced itself."""
        self._slow: dict[str, float] = {}
        """Tool -> until when it is not called directly."""
        self._subscription: Subscription | None = None

    async def start(self) -> "DirectCalls":
        """Listen for the announcements of tool_runner."""
        self._subscription = await self._bus.subscribe(subjects.runner(), self._on_announcement)
        return self

    async def stop(self) -> None:
        """Make no more direct calls. Those that wait go on."""
        self._is_stopped = True
        if self._subscription is not None:
            await self._subscription.stop()

    def rules(self) -> DirectRules | None:
        """Return which calls may be made directly now; None: no call."""
        if self._is_stopped or self._waiting >= self._max_waiting or not self._bus.is_connected:
            return None
        now = time.monotonic()
        self._instances = {instance: at for instance, at in self._instances.items() if now - at < _MAX_SILENCE_S}
        if not self._instances:
            return None
        if self._slow:
            self._slow = {tool: until for tool, until in self._slow.items() if until > now}
        instances = [*self._instances]
        instance = instances[int(random.random() * len(instances))]  # noqa: S311, a spread, not a secret
        return DirectRules(instance, frozenset(self._slow))

    async def call(self, instance: str, call: CallRequested) -> CallFinished | Literal["declined", "unfinished"]:
        """Return the outcome of a call. `declined`: it certainly was not begun; `unfinished`: it may have begun."""
        self._waiting += 1
        request = _Request(self._bus, instance)
        try:
            reply = await request.reply(call)
        except NoResponders:
            self._instances.pop(instance, None)
            return "declined"
        except BusError as error:
            logger.info("direct_call_unanswered", call_id=call.call_id, tool=call.tool, reason=str(error))
            self._slow[call.tool] = time.monotonic() + _SLOW_FOR_S
            return "unfinished"
        finally:
            self._waiting -= 1
        if reply is None and not request.has_begun:
            self._instances.pop(instance, None)  # It is not called until it announces itself again.
            logger.info("direct_call_not_begun", call_id=call.call_id, tool=call.tool)
            return "declined"
        match (reply.headers or {}).get(DIRECT_HEADER) if reply is not None else "unfinished":
            case "finished" if reply is not None:
                return CallFinished.model_validate_json(reply.data)
            case "declined":
                self._slow[call.tool] = time.monotonic() + _DECLINED_FOR_S
                return "declined"
            case _:
                self._slow[call.tool] = time.monotonic() + _SLOW_FOR_S
                return "unfinished"

    async def was_received(self, instance: str, idempotency_key: str, age_s: float) -> bool:
        """Whether an instance may have received a call that another handling announced. If not, it will never begin it.

        An instance that does not answer may have received it.
        """
        question = ReceivedQuestion(idempotency_key=idempotency_key, age_s=age_s)
        try:
            reply = await self._bus.request(subjects.direct_status(instance), question, _STATUS_WITHIN_S)
            return ReceivedAnswer.model_validate_json(reply.data).received
        except (BusError, ValidationError):
            return True

    async def _on_announcement(self, message: Msg) -> None:
        try:
            announced = RunnerAnnouncement.model_validate_json(message.data)
        except ValidationError:
            return
        if announced.leaving:
            self._instances.pop(announced.instance, None)
        else:
            self._instances[announced.instance] = time.monotonic()


class _GivenUp(Exception):
    """The reply is not waited for any longer."""


class _Request:
    """One request for a direct call."""

    def __init__(self, bus: Bus, instance: str) -> None:
        self._bus = bus
        self._instance = instance
        self.has_begun = False

    async def reply(self, call: CallRequested) -> Msg | None:
        """Return the last reply, or None if it does not come in time. `has_begun` is right then.

        Raises NoResponders; Unavailable when the connection was lost, after which `has_begun` may be wrong.
        """
        answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        watching = Later(_PROBE_EVERY_S, partial(self._watch, call, answer, time.monotonic() + _ANSWER_WITHIN_S))
        subject, longest_s = subjects.direct_call(self._instance), _BEGIN_WITHIN_S + _MAX_CATCH_UP_S
        try:
            return await self._bus.request(subject, call, longest_s, interim=self._is_begun, answer=answer)
        except _GivenUp:
            return None
        finally:
            watching.cancel()

    async def _watch(self, call: CallRequested, answer: "asyncio.Future[Msg]", until: float) -> None:
        """Give the request up when its instance is gone, and when it was not begun or answered in time."""
        key = names.round_key(call.run_id, call.call_id, call.round)
        question, status = ReceivedQuestion(idempotency_key=key, age_s=0), subjects.direct_status(self._instance)
        error: Exception = _GivenUp()
        try:
            while (left_s := until - time.monotonic()) > 0:
                if self.has_begun and await self._bus.has_nobody(status, question, _PROBE_EVERY_S):
                    break  # The connection of the instance has ended.
                await asyncio.sleep(min(left_s, _PROBE_EVERY_S))
            if not self.has_begun:
                await asyncio.sleep(_BEGIN_WITHIN_S - _ANSWER_WITHIN_S)
                # This process may have been stopped: what arrived meanwhile is handled first.
                await self._bus.last(subjects.RUNS, "barrier", attempts=1)
        except BusError as unavailable:
            error = unavailable
        if not answer.done():
            answer.set_exception(error)

    def _is_begun(self, message: Msg) -> bool:
        is_begun = (message.headers or {}).get(DIRECT_HEADER) == "begun"
        self.has_begun = self.has_begun or is_begun
        return is_begun


COUNT_EVERY_S = 0.25
SHARING_WINDOW_S = 60.0
"""Tenants that called a tool within this time share its queue."""
MAX_QUEUES = 10_000
PLACE_WAIT_S = 10.0
"""After this wait for a free place, a call is checked again: its run may have ended."""


class CallPlaces:
    """Gives tenants places in the queues of tools."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._places: FairSemaphore[tuple[str, str]] = FairSemaphore()
        self._counting: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._seen: dict[str, dict[str, float]] = {}
        """Tool -> tenant -> time of its last call, on the monotonic clock."""

    def take_now(self, tenant: str, tool: str, concurrency: int) -> bool:
        """Take a place if one is free. Otherwise call `wait`."""
        if len(self._places) >= MAX_QUEUES:
            self._places.forget_taken()
        now = time.monotonic()
        seen = {each: at for each, at in self._seen.get(tool, {}).items() if now - at < SHARING_WINDOW_S}
        self._seen[tool] = seen
        seen[tenant] = now
        limit = max(1, concurrency * 3 // 4) if len(seen) > 1 else concurrency
        return self._places.take_now((tenant, tool), limit)

    async def wait(self, tenant: str, tool: str) -> bool:
        """Wait for a place. Returns whether one became free within `PLACE_WAIT_S`."""
        key = (tenant, tool)
        if key not in self._counting:
            self._counting[key] = asyncio.create_task(self._count(key))
        return await self._places.wait(key, PLACE_WAIT_S)

    def give_back(self, tenant: str, tool: str) -> None:
        """Free the place of a call that has ended or was not sent."""
        self._places.give_back((tenant, tool))

    async def _count(self, key: tuple[str, str]) -> None:
        """Ask the server while calls wait."""
        try:
            while self._places.is_waited_for(key):
                try:
                    info = {"subjects_filter": subjects.call.pattern(tenant=key[0], tool=key[1])}
                    state = (await self._bus.api(f"STREAM.INFO.{subjects.CALLS}", info))["state"]
                except BusError as error:
                    logger.debug("calls_not_counted", reason=str(error))
                else:
                    self._places.correct(key, sum((state.get("subjects") or {}).values()))
                await asyncio.sleep(COUNT_EVERY_S)
        finally:
            del self._counting[key]
