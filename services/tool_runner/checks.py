"""Check tools for operators: gather the facts of a tool, call it if asked to, and answer with the checklist.

Rule 1: any instance of tool_runner receives a request, and answers it. Until then it says every second that it works
on it, so an operator who waits notices its end.
Rule 2: a tool that requires approval or has effects is called only if the operator has confirmed it.
Rule 3: the call is made twice, for no run: nothing is stored, and progress and pieces are dropped. The repetition is
what a tool runner does that takes a call over: the instances are asked which of them has it, and the call is sent again
only if it is idempotent. So a check causes the effects of a tool once.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import structlog
from nats.aio.msg import Msg
from pydantic import ValidationError

from contracts.tools.messages import REPLY_HEADER, CallRequested, CheckTool, Finding, ToolChecked, ToolSpec
from contracts.wire import subjects
from contracts.wire.base import Message
from contracts.wire.faults import Fault, describe
from contracts.wire.names import new_id, unix_ms
from contracts.wire.rights import OPERATOR
from services.messaging.connection import Answerer, Bus
from services.runtime.tasks import cancelled, code_locations
from services.shared.tools.catalogue import Catalogue, refused_tools
from services.tool_runner import check_rules
from services.tool_runner.artifacts.access import check_arguments
from services.tool_runner.calls.commands import Pause
from services.tool_runner.calls.history import RunWatches
from services.tool_runner.discovery.announcements import Announcement, choose
from services.tool_runner.errors import CallFailed, Declined, InvalidArguments, InvalidResult, RunEnded
from services.tool_runner.results.forms import BARE, artifact_type_of, form_of, skill_id_of
from services.tool_runner.results.outcomes import elapsed_ms, in_thread_if_large, read_result
from services.tool_runner.transports.driver import Dropped, PreparedCall, ResultBody, ToolCaller

logger = structlog.get_logger(__name__)

MAX_CALL_S = 600.0
"""Longest call of a check."""
CHECKER = "runwire-tools-check"
"""The user for whom a check calls a tool."""


class CheckedCall:
    """One call of a tool for a check."""

    def __init__(self, bus: Bus, tools: ToolCaller, spec: ToolSpec, request: CheckTool) -> None:
        self._tools, self._spec = tools, spec
        self._watches = RunWatches(bus)
        run, args = new_id(), request.args or {}
        self.call = CallRequested(
            call_id="1-0",
            run_id=run,
            tenant="default",
            tool=spec.name,
            args=args,
            spec=spec.digest(),
            step=1,
            deadline_at=unix_ms() + int(MAX_CALL_S * 1000),
            session_id=f"check-session-{run[-12:]}",
            request_id=f"check-request-{run[-12:]}",
            trace_id=f"check-trace-{run[-12:]}",
            user_id=CHECKER,
            context=request.context,
        )
        skill = args.get("skill_id")
        self.sent = check_rules.Sent(
            tool=spec.name,
            context_id=self.call.session_id or run,
            request_id=self.call.request_id or run,
            trace_id=self.call.trace_id or "",
            user_id=CHECKER,
            at=unix_ms() / 1000,
            skill_id=skill if isinstance(skill, str) and skill.strip() else None,
            takes_skill="skill_id" in (spec.input_schema.get("properties") or {}),
            wants_standard=request.standard or check_rules.declares_standard(spec),
        )

    async def answer(self, *, is_repeated: bool = False) -> check_rules.Answered:
        """Call the tool, or ask for the answer of the call again, and return how it ended."""
        began = time.monotonic()
        prepared = PreparedCall(
            self.call, self._spec, self.call.args, is_repeated, began, may_be_unread=is_repeated, has_run=False
        )
        try:
            with self._watches.watch(self.call.tenant, self.call.run_id) as watch:
                result = await self._tools.call(prepared, Dropped(), watch)
        except CallFailed as failure:
            return self._failed(f"{failure.fault().code}: {failure}", began)
        except (Declined, RunEnded):
            return self._failed("the call was not made", began)
        if isinstance(result, Pause):
            return self._failed("the tool asks a person, and a check has nobody to ask: try other arguments", began)
        with closing(result):
            return await in_thread_if_large(result.size, lambda: self._answered(result, began))

    def _failed(self, reason: str, began: float) -> check_rules.Answered:
        return check_rules.Answered(at=unix_ms() / 1000, latency_ms=elapsed_ms(began), failure=reason)

    def _answered(self, result: ResultBody, began: float) -> check_rules.Answered:
        content = result.content.text if result.content is not None else None
        found = check_rules.Answered(
            at=unix_ms() / 1000, latency_ms=elapsed_ms(began), size=result.size, content=content
        )
        try:
            value = read_result(self.call, self._spec, result)
        except InvalidResult as complaint:
            return replace(found, complaint=str(complaint))
        return replace(
            found,
            value=value,
            is_standard=form_of(value) is not BARE,
            skill_id=skill_id_of(value),
            artifact_type=artifact_type_of(value, self._spec.output_schema),
            executed_at=_executed_at(value),
        )


def _executed_at(value: Any) -> float | None:
    """Return the time in `_metadata`, in Unix seconds; None unless it is written in UTC with Z."""
    metadata = value.get("_metadata") if isinstance(value, dict) else None
    text = metadata.get(check_rules.time_name(metadata)) if isinstance(metadata, dict) else None
    if not isinstance(text, str) or not text.isascii() or not text.endswith("Z") or "T" not in text:
        return None
    try:
        at = datetime.fromisoformat(text.removesuffix("Z"))
    except ValueError:
        return None
    return at.replace(tzinfo=UTC).timestamp() if at.tzinfo is None else None


_HEARTBEAT_S = 1.0
_APPEARS_WITHIN_S = 5.0
"""A tool that has just started is found in the next round of discovery."""
_LOOK_S = 0.1
_AT_ONCE = 4
_EFFECTS = frozenset({"write", "external"})


class ToolChecks(Answerer):
    """The checks of this instance. `announcements`: what its tools file declares and instances announce now."""

    def __init__(
        self, bus: Bus, announcements: Callable[[], list[Announcement]], catalogue: Catalogue, tools: ToolCaller
    ) -> None:
        super().__init__(bus, subjects.tool_check, (OPERATOR,))
        self._announcements = announcements
        self._catalogue = catalogue
        self._tools = tools
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def answer(self, message: Msg) -> None:
        """Make a check, and send the checklist."""
        try:
            request = CheckTool.model_validate_json(message.data)
        except ValidationError as error:
            await self._reply(message, "failure", Fault(code="invalid_args", reason=describe(error)))
            return

        async def beat() -> None:
            while True:
                await self._bus.send(message.reply, b"", {REPLY_HEADER: "heartbeat"})
                await asyncio.sleep(_HEARTBEAT_S)

        beating = asyncio.create_task(beat())
        try:
            async with self._slots:
                checked = await self.check(request)
        except Exception as error:  # noqa: BLE001, the operator waits for an answer
            logger.error("check_failed", error=type(error).__name__, places=code_locations(error))  # noqa: TRY400
            await self._reply(message, "failure", Fault(code="internal", reason="the check failed: see the log"))
        else:
            await self._reply(message, "result", checked)
        finally:
            await cancelled(beating)

    async def _reply(self, message: Msg, kind: str, body: Message) -> None:
        await self._bus.send(message.reply, body.model_dump_json().encode(), {REPLY_HEADER: kind})

    async def check(self, request: CheckTool) -> ToolChecked:
        """Return the checklist of a tool. Nothing that a tool does is raised."""
        facts = await self._announced(request)
        findings = check_rules.announcement_findings(facts)
        if facts.spec is not None and request.args is not None:
            findings += await self._called(facts.spec, request)
        logger.info("tool_checked", tool=request.tool, failed=[one.name for one in findings if one.status == "failed"])
        return ToolChecked(tool=request.tool, digest=facts.digest or None, findings=findings)

    async def _announced(self, request: CheckTool) -> check_rules.Announced:
        """Return what is known of a tool, once something is."""
        tool = request.tool
        until = time.monotonic() + _APPEARS_WITHIN_S
        while True:
            found = [each for each in self._announcements() if each.spec.name == tool]
            refused = {each.name: each.reason for each in await refused_tools(self._bus)}.get(tool)
            live = self._catalogue.live().get(tool)
            if refused is not None or (found and live is not None) or time.monotonic() >= until:
                break
            await asyncio.sleep(_LOOK_S)
        if not found:
            return check_rules.Announced(tool, refused=refused)
        chosen = choose(found)
        return check_rules.Announced(
            tool,
            chosen.spec,
            chosen.digest,
            chosen.version,
            instances=len({each.instance for each in found if each.instance}),
            digests=frozenset(each.digest for each in found),
            is_offered=live is not None and live.digest() == chosen.digest,
            refused=refused,
            artifact_type=artifact_type_of(dict.fromkeys(check_rules.NAMES), chosen.spec.output_schema),
            wants_standard=request.standard or check_rules.declares_standard(chosen.spec),
        )

    async def _called(self, spec: ToolSpec, request: CheckTool) -> list[Finding]:
        reasons = ["requires approval"] if spec.requires_approval else []
        if spec.side_effects in _EFFECTS:
            reasons.append(f"has side effects ({spec.side_effects})")
        if reasons and not request.confirmed:
            not_made = f"not made: the tool {' and '.join(reasons)}"
            return check_rules.lines_of([("call", "failed", True, not_made, "give --yes to call it all the same")])
        checked = CheckedCall(self._bus, self._tools, spec, request)
        try:
            check_arguments(checked.call, checked.call.args, spec)
        except InvalidArguments as error:
            return check_rules.lines_of(
                [("arguments", "failed", True, str(error), "give arguments that fit the input schema")]
            )
        first = await checked.answer()
        findings = check_rules.answer_findings(checked.sent, first)
        if first.failure is None and first.complaint is None:
            again = await checked.answer(is_repeated=True)
            findings.append(check_rules.repetition_finding(first, again, is_idempotent=spec.idempotent))
        return findings
