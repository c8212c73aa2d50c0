"""Ask a tool, and come back with its result or the one reason why there is none.

Rule 1: a question that may have reached the tool is repeated only if the tool calls that safe (`idempotent`). Before it is repeated all
copies are asked whether one holds the call; the one that does goes on as if nothing had happened.
Rule 2: silence and "nobody listens" count only while we are connected, and for a while after a reconnect do not: the tools reconnect too,
and what they said meanwhile is lost. So after a reconnect the question whether somebody holds the call comes first.
Rule 3: a view of the run that is more than a moment old is taken again before a tool is asked: this process may have been stopped.
Rule 4: a tool that says how often it beats is missed after three beats; of any other tool `timeout_s` is the longest silence. One that
has said nothing yet is asked early on whether it holds the call: where copies listen to that question and none does, the call is lost.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal, NoReturn

import structlog
from pydantic import ValidationError

from contracts import subjects
from contracts.tools import CallQuestion, CallRequested, Heartbeat, ToolCall, ToolSpec
from services.messaging.connection import Bus
from services.tool_runner.errors import (
    CallFailed,
    DeadlinePassed,
    InvalidResult,
    OutcomeUnknown,
    ResultTooLarge,
    RunEnded,
    ToolReported,
    ToolTimedOut,
    ToolUnavailable,
)
from services.tool_runner.progress import Relay
from services.tool_runner.run_watch import RunWatches
from services.tool_runner.settings import ToolRunnerSettings
from services.tool_runner.transports.nats import Conversation, Exchange, Heard
from services.tool_runner.transports.result_parts import Parts, Whole, failure_of

logger = structlog.get_logger(__name__)

_ANSWER_S = 0.3
"""How long all copies have to say that they hold a call."""
_PATIENT_ANSWER_S = 1.0
"""The same for a copy that was beating a moment ago: it may be starved rather than dead."""
_STALE_S = 1.0
_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 0.5
_ALSO_WAITING = 8 << 20
"""Bytes of other replies that may wait to be heard beside a result."""
_BEATS_MISSED = 3
_LATE_S = 1.0
_PROBE_S = 2.5
_MIN_START_S = 10.0
"""Clocks of different machines differ; a tool gets at least so long to start a call."""


class Look:
    """What is known of a call, and since when. `view` raises RunEnded or AlreadySettled when the tool must not be asked any more."""

    def __init__(self, view: Callable[[], Awaitable[None]], taken_at: float) -> None:
        self._view = view
        self._taken_at = taken_at

    def expire(self) -> None:
        """Others may have done something meanwhile."""
        self._taken_at = -math.inf

    async def again(self) -> None:
        """Take the view again if it is not fresh; afterwards it is."""
        while (now := time.monotonic()) - self._taken_at > _STALE_S:
            await self._view()
            self._taken_at = now


class Dispatcher:
    """Calls of all tools by this process. It remembers which tools beat."""

    def __init__(self, bus: Bus, settings: ToolRunnerSettings) -> None:
        self.bus = bus
        self.settings = settings
        self.exchange = Exchange(bus, settings.max_result_bytes + _ALSO_WAITING)
        self.watches = RunWatches(bus)
        self.beats: dict[str, float] = {}

    async def start(self) -> "Dispatcher":
        """Listen for replies."""
        await self.exchange.start()
        return self

    async def call_tool(
        self, call: CallRequested, spec: ToolSpec, args: dict[str, Any], relay: Relay, look: Look, *, find_first: bool
    ) -> Whole:
        """Return the tool's result as it came, JSON still to be read; the caller closes it.

        `find_first`: the tool may have been asked before. Raises CallFailed, RunEnded when the run ended meanwhile, and what `look` raises.
        """
        conversation = self.exchange.open()
        watch = self.watches.watch(call.tenant, call.run_id, lambda: conversation.put(Heard("run_ended")))
        dispatch = Dispatch(self, conversation, call, spec, args, relay, look)
        try:
            return await dispatch.outcome(find_first=find_first)
        finally:
            watch.stop()
            conversation.close()
            dispatch.close()


class Dispatch:
    """One call on its way."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        conversation: Conversation,
        call: CallRequested,
        spec: ToolSpec,
        args: dict[str, Any],
        relay: Relay,
        look: Look,
    ) -> None:
        self._dispatcher = dispatcher
        self._bus, self._settings = dispatcher.bus, dispatcher.settings
        self._conversation = conversation
        self._call, self._spec, self._args, self._relay, self._look = call, spec, args, relay, look
        self._key = f"{call.run_id}.{call.call_id}"
        self._question = CallQuestion(idempotency_key=self._key).model_dump_json().encode()
        ends_at = time.time() + self._settings.max_call_s
        self._deadline = min(ends_at, call.deadline_at / 1000) if call.deadline_at is not None else ends_at
        self._heard_at = time.monotonic()
        promised = spec.heartbeat_s if spec.heartbeat_s is not None and spec.heartbeat_s <= spec.timeout_s else None
        self._every_s = dispatcher.beats.get(call.tool, promised)
        self._beating = self._probed = False
        self._attempts = 0
        self._may_linger = False
        """A copy that was stopped may hold a request of this call unread."""
        self._unserved_since: float | None = None
        self._asked: set[str] = set()
        self._parts = Parts(call.tool, self._settings.max_result_bytes)
        self._asked_for_parts = False

    def close(self) -> None:
        """Let go of what came in vain."""
        self._parts.close()

    async def outcome(self, *, find_first: bool) -> Whole:
        """Ask and listen until there is a result. Raises CallFailed or RunEnded."""
        self._may_linger = find_first
        if not find_first:
            await self._ask()
        elif await self._find(_ANSWER_S) != "held":
            await self._repeat()
        while True:
            heard = await self._hear()
            if heard is None:
                await self._on_silence()
                continue
            self._heard_at = time.monotonic()
            result = await self._on_heard(heard)
            if result is not None:
                await self._call_off()
                return result

    async def _ask(self) -> None:
        """Put the call to whichever copy takes it. Returns once it was sent."""
        self._attempts += 1
        while True:
            await self._look.again()
            now = time.time()
            if now >= self._deadline:
                await self._give_up(DeadlinePassed("the time for this call was over before the tool could be asked"))
            start_by = min(self._deadline, now + max(self._limit_s, _MIN_START_S))
            call = self._call
            request = ToolCall(
                call_id=call.call_id,
                run_id=call.run_id,
                tenant=call.tenant,
                tool=call.tool,
                args=self._args,
                idempotency_key=self._key,
                deadline_at=math.floor(self._deadline * 1000),
                start_by=math.floor(start_by * 1000),
                session_id=call.session_id,
                request_id=call.call_id,
                trace_id=call.trace_id,
                user_id=call.user_id,
                context=call.context,
            )
            self._heard_at = time.monotonic()
            key = await self._conversation.ask(subjects.tool(call.tool), request.model_dump_json().encode())
            if key is not None:
                self._asked.add(key)
                return
            await asyncio.sleep(_PAUSE_S)

    async def _repeat(self) -> None:
        """The tool was asked, and nobody holds the call any more: ask again if that is safe."""
        if not self._spec.idempotent:
            await self._give_up(OutcomeUnknown(self._call.tool))
        if self._attempts >= self._settings.max_attempts:
            await self._give_up(ToolUnavailable(f"{self._call.tool} stopped in the middle of this call {self._attempts} times"))
        logger.info("call_repeated", attempts=self._attempts)
        self._beating, self._probed, self._may_linger = False, False, True
        self._look.expire()  # While all copies were asked who holds the call, another tool runner may have settled it.
        await self._ask()

    @property
    def _limit_s(self) -> float:
        """The longest silence now."""
        if self._every_s is None:
            return self._spec.timeout_s if self._probed else min(_PROBE_S, self._spec.timeout_s)
        missed = _BEATS_MISSED * self._every_s + _LATE_S
        return missed if self._beating else min(missed, self._spec.timeout_s)

    async def _hear(self) -> Heard | None:
        """Return what is heard next, None when the tool has been silent for too long. Raises DeadlinePassed."""
        while True:
            now, left_s = time.monotonic(), self._deadline - time.time()
            if left_s <= 0:
                await self._give_up(DeadlinePassed("the time for this call was over before the tool answered"))
            settled_at = self._bus.up_since + self._settings.settling_s
            silent_until = max(self._heard_at + self._limit_s, settled_at)
            heard = await self._conversation.hear(max(0.0, min(silent_until - now, left_s)))
            if heard is not None:
                return heard
            if not self._bus.is_connected:
                await asyncio.sleep(_PAUSE_S)
            elif time.monotonic() >= max(silent_until, self._bus.up_since + self._settings.settling_s):
                return None

    async def _on_silence(self) -> None:
        found = await self._find(_PATIENT_ANSWER_S if self._beating else _ANSWER_S)
        if found == "held":
            return
        if found == "lost" or self._every_s is not None:
            await self._repeat()
            return
        # Nobody listens to the question: a tool without it, of which `timeout_s` is the longest silence.
        self._probed = True
        if time.monotonic() - self._heard_at >= self._spec.timeout_s:
            unknown = "" if self._spec.idempotent else " Whether the call took effect is unknown."
            await self._give_up(ToolTimedOut(f"{self._call.tool} did not answer within {self._spec.timeout_s:g} s.{unknown}"))

    async def _find(self, wait_s: float) -> Literal["held", "lost", "nobody"]:
        """Ask all copies whether one holds the call: one does, copies are there and none does, or nobody even hears the question.

        Silence counts once everybody had time to reconnect.
        """
        while True:
            await self._conversation.ask(subjects.tool_status(self._call.tool), self._question)
            heard = await self._conversation.hear(wait_s)
            while heard is not None and heard.kind == "reconnected":
                heard = await self._conversation.hear(wait_s)
            if heard is not None and heard.kind != "nobody":
                self._heard_at = time.monotonic()
                self._conversation.put_back(heard)
                return "held"
            settled = self._bus.is_connected and time.monotonic() - self._bus.up_since > self._settings.settling_s
            if settled or time.time() >= self._deadline:
                return "lost" if heard is None else "nobody"
            await asyncio.sleep(_PAUSE_S)

    async def _on_heard(self, heard: Heard) -> Whole | None:
        match heard.kind:
            case "result":
                return await self._on_result(heard)
            case "part":
                self._parts.add(heard)
            case "heartbeat":
                self._on_heartbeat(heard.data)
            case "progress":
                await self._relay.progress(heard.data)
            case "artifact_chunk":
                await self._relay.piece(heard.data)
            case "failure" | "refused":
                await self._call_off()
                raise ToolReported(failure_of(heard))
            case _:
                await self._on_event(heard)
        return None

    async def _on_event(self, heard: Heard) -> None:
        """What no tool said: something happened around the call."""
        match heard.kind:
            case "nobody":
                await self._on_nobody(heard)
            case "reconnected":
                # What was said meanwhile is lost; the copy that holds the call says it again.
                await self._conversation.ask(subjects.tool_status(self._call.tool), self._question)
            case "flood":
                await self._give_up(ResultTooLarge(f"{self._call.tool} sent more than can be handled"))
            case "run_ended":
                await self._cancel()
                raise RunEnded

    async def _on_result(self, heard: Heard) -> Whole | None:
        result = self._parts.whole(heard)
        if result is None and not self._asked_for_parts:
            # Lost on the way: the copy that holds the result sends it again.
            self._asked_for_parts = True
            if await self._find(_ANSWER_S) == "held":
                return None
        if result is None:
            raise InvalidResult(f"parts of the result of {self._call.tool} were lost on the way")
        return result

    def _on_heartbeat(self, data: bytes) -> None:
        try:
            every_s = Heartbeat.model_validate_json(data or b"{}").every_s
        except ValidationError:
            return
        if every_s is not None and every_s <= self._spec.timeout_s:
            self._beating = True
            self._every_s = self._dispatcher.beats[self._call.tool] = every_s

    async def _on_nobody(self, heard: Heard) -> None:
        """Nobody listens on the subject of the question. Whoever was not asked for the call itself changes nothing."""
        if heard.key not in self._asked:
            return
        now = time.monotonic()
        if self._unserved_since is None:
            self._unserved_since = now
        settled = now - self._bus.up_since > self._settings.settling_s
        if settled and now - self._unserved_since >= self._settings.unavailable_s:
            await self._give_up(ToolUnavailable(f"nobody serves {self._call.tool} right now"))
        await asyncio.sleep(min(_LONGEST_PAUSE_S, _PAUSE_S + (now - self._unserved_since) / 2))
        self._attempts -= 1
        self._look.expire()  # Another tool runner that found nobody who holds the call may have settled it meanwhile.
        await self._ask()

    async def _give_up(self, failure: CallFailed) -> NoReturn:
        await self._cancel()
        raise failure

    async def _call_off(self) -> None:
        """The call has its outcome: a copy that finds an older request of it when it wakes up shall not start it any more."""
        if self._may_linger:
            await self._cancel()

    async def _cancel(self) -> None:
        """Tell all copies that nobody waits any more."""
        await self._bus.tell(subjects.tool_cancel(self._call.tool), self._question)
