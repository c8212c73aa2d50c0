"""Handle a call: call the tool, and write the one outcome into the run's inbox.

Rule 1: each handling is counted (`messaging.handlings`) before the message is parsed, since parsing may be what kills
the process.
Rule 2: the last record of the log is read before every call: an ended run causes no further effects.
Rule 3: a call that may have been handled before is checked in the inbox, then in the log. For a non-idempotent tool,
the start is recorded before the call (`call_history`).
Rule 4: the outcome is stored before the call is acknowledged.
"""

import time

import structlog
from pydantic import ValidationError

from contracts import names, subjects
from contracts.faults import Fault
from contracts.names import InvalidName
from contracts.subjects import Address
from contracts.tools import CallRequested, ToolSpec
from services.messaging import dead_letters, handlings
from services.messaging.connection import Bus
from services.messaging.pull_consumer import Delivery
from services.shared.builtin_tools import READ_ARTIFACT_DIGEST, READ_ARTIFACT_SPEC
from services.shared.redaction import wire_size
from services.shared.tool_catalogue import Catalogue
from services.tool_runner import call_history
from services.tool_runner.artifacts import CallArtifacts, StoredResult
from services.tool_runner.progress import CallProgress
from services.tool_runner.read_artifact import read_artifact
from services.tool_runner.run_watch import RunWatches
from services.tool_runner.transports.nats import NatsTools, PreparedCall

from .errors import AlreadySettled, ApprovalUnavailable, CallFailed, Poisoned, RunEnded, UnknownTool
from .results import OutcomeBuilder, check_arguments, failed, in_thread_if_large, succeeded
from .settings import ToolRunnerSettings

logger = structlog.get_logger(__name__)

_AFTER_RECONNECT_S = 10.0
_MESSAGE_ID = "Nats-Msg-Id"


class NotACall(ValueError):
    """The message is not a valid call; the text says why."""


class ToolRunner:
    """Handles calls of all tools. It keeps no durable state: another process may take over at any point."""

    def __init__(
        self, bus: Bus, settings: ToolRunnerSettings, catalogue: Catalogue, tools: NatsTools, run_watches: RunWatches
    ) -> None:
        self._bus = bus
        self._settings = settings
        self._catalogue = catalogue
        self._tools = tools
        self._artifacts = CallArtifacts(bus, run_watches, settings)
        self._outcomes = OutcomeBuilder(self._artifacts, settings.artifact_patience_s)
        self._reconnected_at = float("-inf")
        bus.on_reconnect.append(self._on_reconnect)

    async def _on_reconnect(self) -> None:
        self._reconnected_at = time.monotonic()

    async def on_call(self, delivery: Delivery) -> bool:
        """Handle one call and return True, which acknowledges it. A second handling finds what the first one wrote."""
        if (begun := await handlings.begin(self._bus, delivery)) > self._settings.max_deliveries:
            return await self._dead_letter(delivery, f"its handling was started {begun - 1} times and never finished")
        try:
            call = _read(delivery)
        except NotACall as error:
            return await self._dead_letter(delivery, str(error))
        with structlog.contextvars.bound_contextvars(run_id=call.run_id, call_id=call.call_id, tool=call.tool):
            try:
                body = await self._outcome(delivery, call)
            except RunEnded:
                logger.info("call_dropped", reason="its run has ended")
            except AlreadySettled:
                logger.info("call_dropped", reason="it is settled")
            else:
                await self._finish(call.tenant, call.run_id, call.call_id, body)
        return True

    async def _outcome(self, delivery: Delivery, call: CallRequested) -> bytes:
        """Return the encoded outcome. Raises RunEnded or AlreadySettled when no outcome is needed."""
        began = time.monotonic()
        if await call_history.run_ended(self._bus, call):
            raise RunEnded
        doubtful = delivery.number > 1 or call.again
        # The delivery count is an estimate: a server crash may reset it.
        may_be_old = doubtful or began - self._reconnected_at < _AFTER_RECONNECT_S or self._has_waited(delivery)
        if may_be_old and await call_history.is_settled(self._bus, call):
            raise AlreadySettled
        progress = CallProgress(self._bus, call, may_have_shown=may_be_old)
        # A call that is taken over is timed from its first start. If that was not recorded, it began soon after it was
        # sent.
        since = began - _ago(delivery.stored_ns) if doubtful else began
        try:
            spec = await self._spec(call)
            args = await self._artifacts.resolve(call, self._settings.artifact_patience_s)
            await in_thread_if_large(wire_size(args), lambda: check_arguments(call, args, spec))
            if spec is READ_ARTIFACT_SPEC:
                part = await read_artifact(
                    self._bus, call, self._settings.read_artifact_max_bytes, self._settings.artifact_patience_s
                )
                return succeeded(call, StoredResult(part, {}), [], [], _since(since))
            find_first = doubtful
            if not spec.idempotent:
                begun_at = await call_history.claim(self._bus, delivery, call)
                find_first = begun_at is not None
                since = began if begun_at is None else began - _ago(begun_at * 1_000_000)
                if find_first and not may_be_old and await call_history.is_settled(self._bus, call):
                    raise AlreadySettled
            prepared = PreparedCall(call, spec, args, find_first, began, lambda: self._check_status(call))
            result = await self._tools.call(prepared, progress)
        except CallFailed as failure:
            fault = failure.fault()
            logger.info("call_failed", code=fault.code, seconds=round(time.monotonic() - began, 3))
            return failed(call.call_id, call.tool, fault, _since(since), progress.warnings())
        logger.debug("call_succeeded", size=result.size, seconds=round(time.monotonic() - began, 3))
        return await self._outcomes.build(call, spec, result, progress, since)

    def _has_waited(self, delivery: Delivery) -> bool:
        """Whether the call waited so long that it may have been redelivered elsewhere, as while this process was suspended.

        Half of the acknowledgement time leaves room for clock differences.
        """
        return time.time_ns() - delivery.stored_ns > self._settings.ack_wait_s / 2 * 1e9

    async def _check_status(self, call: CallRequested) -> None:
        if await call_history.run_ended(self._bus, call):
            raise RunEnded
        if await call_history.is_settled(self._bus, call):
            raise AlreadySettled

    async def _spec(self, call: CallRequested) -> ToolSpec:
        """Return the specification that the run has pinned. A planner of another version may use an unknown digest."""
        if call.spec == READ_ARTIFACT_DIGEST:
            return READ_ARTIFACT_SPEC
        spec = await self._catalogue.spec(call.spec) or self._catalogue.live().get(call.tool)
        if spec is None or spec.name != call.tool:
            raise UnknownTool(f"there is no tool {call.tool}")
        live = self._catalogue.live().get(call.tool)
        # The planner sends no such call. A tool that requires approval by now may not be called by an older
        # specification either.
        if spec.requires_approval or (live is not None and live.requires_approval):
            raise ApprovalUnavailable(call.tool)
        return spec

    async def _finish(self, tenant: str, run: str, call_id: str, body: bytes) -> None:
        await self._bus.publish_surely(subjects.inbox(tenant, run, call_id), body, f"{run}.{call_id}")

    async def _dead_letter(self, delivery: Delivery, reason: str) -> bool:
        """Store the message in DEAD. If its subject and id name a call, write a failure so that the run continues."""
        await dead_letters.dead_letter(self._bus, delivery, reason)
        named = _named(delivery)
        if named is not None:
            address, call_id = named
            logger.info("call_failed", run_id=address.run, call_id=call_id, tool=address.name, code="poisoned")
            fault: Fault = Poisoned(f"the call could not be handled: {reason[:200]}").fault()
            await self._finish(address.tenant, address.run, call_id, failed(call_id, address.name, fault))
        return True


def _read(delivery: Delivery) -> CallRequested:
    """Return the call in a message. Raises NotACall."""
    try:
        address = subjects.parse(delivery.subject)
        call = CallRequested.model_validate_json(delivery.data)
        names.checked_message(call.call_id)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise NotACall(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except (InvalidName, RecursionError) as error:
        raise NotACall(str(error)) from error
    if (address.tenant, address.run, address.name) != (call.tenant, call.run_id, call.tool):
        raise NotACall("its body names another run or tool than its subject")
    return call


def _named(delivery: Delivery) -> tuple[Address, str] | None:
    """Return the call that a message is about, from its subject and message id, without parsing the body."""
    try:
        address = subjects.parse(delivery.subject)
        run, _, call_id = delivery.headers.get(_MESSAGE_ID, "").partition(".")
        return (address, names.checked_message(call_id)) if run == address.run else None
    except InvalidName:
        return None


def _ago(at_ns: int) -> float:
    """Return the seconds since a moment in Unix ns."""
    return max(0.0, (time.time_ns() - at_ns) / 1e9)


def _since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)
