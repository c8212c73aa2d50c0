"""Make the call of a check, and the same call once more, as every call is made but for no run. Nothing is stored.

Rule 1: progress and pieces that the tool sends are dropped: no run shows them.
Rule 2: the repetition is what a tool runner does that takes a call over: the instances are asked which of them has it,
and the call is sent again only if it is idempotent. So a check causes the effects of a tool once.
"""

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from contracts.tools.checks import CheckTool
from contracts.tools.messages import CallRequested, ToolSpec
from contracts.wire.ids import new_id, unix_ms
from services.messaging.connection import Bus
from services.tool_runner.artifacts.arguments import check_arguments
from services.tool_runner.calls.commands import Pause
from services.tool_runner.calls.run_watch import RunWatches
from services.tool_runner.errors import CallFailed, Declined, InvalidResult, RunEnded
from services.tool_runner.results.forms import BARE, artifact_type_of, form_of, skill_id_of
from services.tool_runner.results.outcomes import elapsed_ms
from services.tool_runner.results.reading import in_thread_if_large, read_result
from services.tool_runner.transports.driver import PreparedCall, ResultBody, ToolCaller

from .answered import Answered, Sent, time_name

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
        self.sent = Sent(
            tool=spec.name,
            context_id=self.call.session_id or run,
            request_id=self.call.request_id or run,
            trace_id=self.call.trace_id or "",
            user_id=CHECKER,
            at=time.time(),
            skill_id=skill if isinstance(skill, str) and skill.strip() else None,
            takes_skill="skill_id" in (spec.input_schema.get("properties") or {}),
        )

    def check_arguments(self) -> None:
        """Raise InvalidArguments if the arguments do not fit the input schema."""
        check_arguments(self.call, self.call.args, self._spec)

    async def answer(self, *, is_repeated: bool = False) -> Answered:
        """Call the tool, or ask for the answer of the call again, and return how it ended."""
        began = time.monotonic()
        prepared = PreparedCall(
            self.call, self._spec, self.call.args, is_repeated, began, may_be_unread=is_repeated, has_run=False
        )
        try:
            with self._watches.watch(self.call.tenant, self.call.run_id) as watch:
                result = await self._tools.call(prepared, _Dropped(), watch)
        except CallFailed as failure:
            return self._failed(f"{failure.fault().code}: {failure}", began)
        except (Declined, RunEnded):
            return self._failed("the call was not made", began)
        if isinstance(result, Pause):
            return self._failed("the tool asks a person, and a check has nobody to ask: try other arguments", began)
        try:
            return await in_thread_if_large(result.size, lambda: self._answered(result, began))
        finally:
            result.close()

    def _failed(self, reason: str, began: float) -> Answered:
        return Answered(at=time.time(), latency_ms=elapsed_ms(began), failure=reason)

    def _answered(self, result: ResultBody, began: float) -> Answered:
        content = result.content.text if result.content is not None else None
        found = Answered(at=time.time(), latency_ms=elapsed_ms(began), size=result.size, content=content)
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


class _Dropped:
    """What a tool sends during a check is not shown."""

    async def on_progress(self, data: bytes) -> None:
        """Drop it."""

    async def on_piece(self, data: bytes) -> None:
        """Drop it."""


def _executed_at(value: Any) -> float | None:
    """Return the time in `_metadata`, in Unix seconds; None unless it is written in UTC with Z."""
    metadata = value.get("_metadata") if isinstance(value, dict) else None
    text = metadata.get(time_name(metadata)) if isinstance(metadata, dict) else None
    if not isinstance(text, str) or not text.isascii() or not text.endswith("Z") or "T" not in text:
        return None
    try:
        at = datetime.fromisoformat(text.removesuffix("Z"))
    except ValueError:
        return None
    return at.replace(tzinfo=UTC).timestamp() if at.tzinfo is None else None
