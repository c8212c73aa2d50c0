"""Execute a call: find out what is known about it, call its tool, and build its outcome.

Rule 1: the last record of the log is read before every call: an ended run causes no further effects.
Rule 2: a call that needs a person's approval is not made without one for exactly this call, on whatever path it comes.
Rule 3: a call that may have been handled before is checked in the inbox, then in the log. For a non-idempotent tool,
the start is recorded before the call (`calls.history`).
"""

import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import closing
from typing import NamedTuple

import structlog

from contracts.tools.messages import CallRequested, ToolSpec
from contracts.wire.faults import Fault
from contracts.wire.names import unix_ms
from services.messaging.connection import Bus
from services.messaging.pull_consumer import Delivery
from services.shared import metrics
from services.shared.images.cleaner import ImageCleaner
from services.shared.redaction.json_values import wire_size
from services.shared.tools.approvals import is_allowed
from services.shared.tools.builtin import READ_ARTIFACT_DIGEST, READ_ARTIFACT_SPEC
from services.shared.tools.catalogue import Catalogue
from services.tool_runner.artifacts.access import StoreAccess, check_arguments, read_artifact, resolve
from services.tool_runner.call_consumers import Concurrency, Runners
from services.tool_runner.calls.commands import Pause
from services.tool_runner.calls.history import RunWatch, RunWatches

from . import errors
from .artifacts.store import CallArtifacts, StoredResult
from .calls import history
from .calls.progress import CallProgress
from .results import outcomes
from .results.outcomes import RoundEnd, elapsed_ms, in_thread_if_large, paused, read_pause
from .settings import ToolRunnerSettings
from .transports.driver import Dropped, PreparedCall, ToolCaller

logger = structlog.get_logger(__name__)

_READING = frozenset({"none", "read"})
"""Side effects of a tool that may be read by."""
_RECONNECT_WINDOW_S = 10.0
"""After a reconnect, how long a first delivery may be a redelivery of a server that has lost its counts."""


class Start(NamedTuple):
    """The first start of a call."""

    may_have_begun: bool
    """Another handling may have called the tool."""
    at: float
    """By the monotonic clock."""


class CallExecutor:
    """Executes calls of all tools. Waits for the artifact store up to its patience or the run's deadline."""

    def __init__(
        self, bus: Bus, settings: ToolRunnerSettings, catalogue: Catalogue, tools: ToolCaller, runners: Runners
    ) -> None:
        self._bus = bus
        self._settings = settings
        self._catalogue = catalogue
        self._tools = tools
        self._run_watches = RunWatches(bus)
        self._runners = runners
        self._cleaner = ImageCleaner(settings)
        self._outcomes = outcomes.OutcomeBuilder(settings.artifact_patience_s)
        self._concurrency = Concurrency()
        self._reconnected_at = float("-inf")

        def on_reconnect() -> None:
            self._reconnected_at = time.monotonic()

        bus.on_reconnect.append(on_reconnect)

    async def outcome(self, delivery: Delivery, call: CallRequested) -> RoundEnd:
        """Return how the round of the call has ended. Raises RunEnded or AlreadyCompleted when no outcome is needed."""
        began = time.monotonic()
        if await history.run_ended(self._bus, call):
            raise errors.RunEnded
        if call.start_by is not None and delivery.stored_ns > call.start_by * 1_000_000:
            call = call.model_copy(update={"again": True})  # As from a planner that was stopped before it sent it.
        is_repeated = delivery.number > 1 or call.again
        # The delivery count is an estimate: a server crash may reset it. And a call that has waited long may have been
        # redelivered, as while this process was suspended. Half of the acknowledgement time leaves room for clock
        # differences.
        has_waited = _ago(delivery.stored_ns) > self._settings.ack_wait_s / 2
        is_doubtful = is_repeated or began - self._reconnected_at < _RECONNECT_WINDOW_S or has_waited
        if is_doubtful and await history.is_completed(self._bus, call):
            raise errors.AlreadyCompleted
        # A call that is taken over is timed from its first start. If that was not recorded, it began soon after it was
        # sent.
        started = Start(is_repeated, began - _ago(delivery.stored_ns) if is_repeated else began)

        async def begin(spec: ToolSpec, watch: RunWatch) -> Start:
            await watch.unless_ended(self._concurrency.take(call.tool, spec.concurrency))
            if spec.idempotent:
                return started
            try:
                return await self._claim(delivery, call, began, is_doubtful=is_doubtful)
            except BaseException:
                self._concurrency.give_back(call.tool)
                raise

        progress = CallProgress(self._bus, call, may_have_published=is_doubtful or call.round > 0)
        return await self._outcome(call, progress, started, began, begin, may_be_unread=is_doubtful)

    async def direct_outcome(self, call: CallRequested, on_begin: Callable[[], Awaitable[bool]]) -> RoundEnd | None:
        """Return how a direct call has ended, or None if no instance of the tool has begun it.

        Its planner has recorded it in the log of a run that went on, so nothing is read here. `on_begin` is called just
        before the tool is; if it returns false, the tool is not. Raises RunEnded.
        """
        began = time.monotonic()
        started = Start(may_have_begun=False, at=began)

        async def begin(spec: ToolSpec, _watch: RunWatch) -> Start:
            direct_limit = self._runners.direct_limit(spec)
            if not self._concurrency.take_directly(call.tool, spec.concurrency, direct_limit):
                raise errors.Declined
            if call.start_by is None or unix_ms() > call.start_by or not await on_begin():
                self._concurrency.give_back(call.tool, direct=True)
                raise errors.Declined
            return started

        progress = CallProgress(self._bus, call, may_have_published=call.round > 0)
        try:
            return await self._outcome(call, progress, started, began, begin, direct=True)
        except errors.Declined:
            return None

    async def read(self, call: CallRequested) -> bytes:
        """Return the outcome of a call that changes nothing and belongs to no run. Nothing is stored."""
        began = time.monotonic()
        try:
            answer = await self._read(call, began)
        except errors.CallFailed as failure:
            fault = failure.fault()
        except errors.Declined:
            fault = Fault(code="tool_unavailable", reason=f"every instance of {call.tool} is busy", retryable=True)
        else:
            _count(call.tool, "ok", began)
            return answer
        _count(call.tool, fault.code, began)
        logger.info("read_failed", tool=call.tool, code=fault.code, seconds=round(time.monotonic() - began, 3))
        return outcomes.failed(call.call_id, call.tool, fault, elapsed_ms(began))

    async def _read(self, call: CallRequested, began: float) -> bytes:
        spec = self._catalogue.live().get(call.tool)
        if spec is None:
            raise errors.UnknownTool(f"there is no tool {call.tool}")
        if not (spec.idempotent and spec.side_effects in _READING) or spec.requires_approval:
            raise errors.ReadRefused(call.tool)
        call = call.model_copy(update={"spec": spec.digest()})
        await in_thread_if_large(wire_size(call.args), lambda: check_arguments(call, call.args, spec))
        # Nobody looks for this call at another instance, so each of several may make one at least.
        if not self._concurrency.take_directly(call.tool, spec.concurrency, self._runners.direct_limit(spec) or 1):
            raise errors.Declined
        try:
            prepared = PreparedCall(
                call, spec, call.args, may_have_begun=False, checked_at=began, may_decline=True, has_run=False
            )
            with self._run_watches.watch(call.tenant, call.run_id) as watch:
                result = await self._tools.call(prepared, Dropped(), watch)
        finally:
            self._concurrency.give_back(call.tool, direct=True)
        if isinstance(result, Pause):
            raise errors.ReadRefused(call.tool)
        with closing(result):
            return await self._outcomes.read(call, spec, result, began)

    async def _outcome(
        self,
        call: CallRequested,
        progress: CallProgress,
        started: Start,
        checked_at: float,
        begin: Callable[[ToolSpec, RunWatch], Awaitable[Start]],
        *,
        may_be_unread: bool = False,
        direct: bool = False,
    ) -> RoundEnd:
        """Call the tool, and build the outcome or the message of its pause.

        `begin`: takes a permit among the tool's calls, just before it is called. Returns when the call first started.
        """
        with self._run_watches.watch(call.tenant, call.run_id) as watch:
            access = StoreAccess(self._bus, call, watch)
            try:
                spec = await self._spec(call)
                args = await resolve(access, spec, self._settings.artifact_patience_s)
                await in_thread_if_large(wire_size(args), lambda: check_arguments(call, args, spec))
                if spec is READ_ARTIFACT_SPEC:
                    until = time.monotonic() + self._settings.artifact_patience_s
                    part = await read_artifact(access, self._settings.read_artifact_max_bytes, until)
                    kept = StoredResult(part, {})
                    return RoundEnd(outcomes.succeeded(call, kept, [], [], elapsed_ms(started.at)))
                started = await begin(spec, watch)
                try:
                    prepared = PreparedCall(
                        call, spec, args, started.may_have_begun, checked_at, may_be_unread, may_decline=direct
                    )
                    result = await self._tools.call(prepared, progress, watch)
                finally:
                    self._concurrency.give_back(call.tool, direct=direct)
                artifacts = CallArtifacts(access, self._settings, self._cleaner)
                if isinstance(result, Pause):
                    data = result.data
                    pause = await in_thread_if_large(len(data), lambda: read_pause(call, data))
                    until = time.monotonic() + self._settings.artifact_patience_s
                    body = paused(call, pause, await artifacts.store_payload(pause.payload, until))
                    logger.info("call_paused", reason=pause.reason, round=call.round)
                    return RoundEnd(body, is_pause=True)
                with closing(result):
                    built = await self._outcomes.build(call, spec, result, progress, artifacts, started.at)
                _count(call.tool, "ok", checked_at)
                return RoundEnd(built)
            except errors.CallFailed as failure:
                fault = failure.fault()
                if isinstance(failure, errors.InvalidResult | errors.ResultTooLarge | errors.InvalidPause):
                    await self._tools.reject(call, spec, fault)
                _count(call.tool, fault.code, checked_at)
                logger.info("call_failed", code=fault.code, seconds=round(time.monotonic() - checked_at, 3))
                return RoundEnd(
                    outcomes.failed(call.call_id, call.tool, fault, elapsed_ms(started.at), progress.warnings())
                )

    async def _claim(self, delivery: Delivery, call: CallRequested, began: float, *, is_doubtful: bool) -> Start:
        """Record the start of a non-idempotent call. Raises AlreadyCompleted."""
        begun_at = await history.claim(self._bus, delivery, call)
        if begun_at is None:
            return Start(may_have_begun=False, at=began)
        if not is_doubtful and await history.is_completed(self._bus, call):
            raise errors.AlreadyCompleted
        return Start(may_have_begun=True, at=began - _ago(begun_at * 1_000_000))

    async def _spec(self, call: CallRequested) -> ToolSpec:
        """Return the specification that the run has pinned, or the live one for the digest of another planner version.

        Raises UnknownTool, and ApprovalMissing for a call that must not be made.
        """
        if call.spec == READ_ARTIFACT_DIGEST:
            return READ_ARTIFACT_SPEC
        spec = await self._catalogue.spec(call.spec) or self._catalogue.live().get(call.tool)
        if spec is None or spec.name != call.tool:
            raise errors.UnknownTool(f"there is no tool {call.tool}")
        # A tool that requires approval by now may not be called by an older specification either.
        known = [spec, self._catalogue.live().get(call.tool, spec)]
        is_checked = call.approval is not None or call.approval_rules
        await in_thread_if_large(wire_size(call.args) if is_checked else 0, lambda: check_approval(call, known))
        return spec


def _ago(at_ns: int) -> float:
    """Return the seconds since a moment in Unix ns."""
    return max(0.0, unix_ms() / 1e3 - at_ns / 1e9)


def check_approval(call: CallRequested, specs: Iterable[ToolSpec]) -> None:
    """Raise ApprovalMissing if one of the specifications, or a rule of the run, asks for an approval that is not there.

    The planner sends no such call: this is the second check, by another process.
    """
    try:
        allowed = all(is_allowed(call, spec) for spec in specs)
    except (ValueError, RecursionError):  # The arguments have no canonical JSON, so no approval can be theirs.
        allowed = False
    if not allowed:
        raise errors.ApprovalMissing(call.tool)


def _count(tool: str, code: str, began: float) -> None:
    """Count a call that has ended. A tool may choose its codes."""
    label = metrics.named("tool", tool)
    metrics.labelled(metrics.CALLS_ENDED, label, metrics.named("code", code)).inc()
    metrics.labelled(metrics.CALL_SECONDS, label).observe(time.monotonic() - began)
