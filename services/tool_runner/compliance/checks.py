"""Check tools for operators: gather what there is to know of a tool, and answer with the checklist.

Rule 1: any instance of tool_runner receives a request, and answers it. Until then it says every second that it works
on it, so an operator who waits notices its end.
Rule 2: replies go to the inbox of an operator and nowhere else. What does not ask from there is dropped.
Rule 3: a tool that requires approval or has effects is called only if the operator has confirmed it.
"""

import asyncio
import time
from collections.abc import Callable

import structlog
from nats.aio.msg import Msg
from pydantic import ValidationError

from contracts.tools.checks import CheckTool, Finding, ToolChecked
from contracts.tools.messages import REPLY_HEADER, ToolSpec
from contracts.wire import subjects
from contracts.wire.base import Message
from contracts.wire.faults import Fault, describe
from contracts.wire.rights import OPERATOR
from contracts.wire.subject import TOOL_RUNNER
from services.messaging.connection import Bus
from services.messaging.nats_connection import Subscription
from services.runtime.tasks import cancelled, code_locations
from services.shared.tools.catalogue import Catalogue, refused_tools
from services.tool_runner.discovery.announcements import Announcement, choose
from services.tool_runner.errors import InvalidArguments
from services.tool_runner.results.forms import artifact_type_of
from services.tool_runner.transports.driver import ToolCaller

from .announced import Announced, announcement_findings
from .answered import answer_findings, repetition_finding
from .calling import CheckedCall
from .findings import NAMES, lines_of

logger = structlog.get_logger(__name__)

_HEARTBEAT_S = 1.0
_APPEARS_WITHIN_S = 5.0
"""A tool that has just started is found in the next round of discovery."""
_LOOK_S = 0.1
_AT_ONCE = 4
_INBOX = f"{subjects.replies_to(OPERATOR)}."
_EFFECTS = frozenset({"write", "external"})


class ToolChecks:
    """The checks of this instance. `announcements`: what its tools file declares and instances announce now."""

    def __init__(
        self, bus: Bus, announcements: Callable[[], list[Announcement]], catalogue: Catalogue, tools: ToolCaller
    ) -> None:
        self._bus = bus
        self._announcements = announcements
        self._catalogue = catalogue
        self._tools = tools
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._checking: set[asyncio.Task[None]] = set()
        self._subscription: Subscription | None = None

    async def start(self) -> "ToolChecks":
        """Take requests."""
        self._subscription = await self._bus.subscribe(subjects.tool_check(), self._on_request, TOOL_RUNNER)
        return self

    async def stop(self) -> None:
        """Take no more requests, and leave those that are under way: their operators notice it."""
        if self._subscription is not None:
            await self._subscription.stop()
        await cancelled(*self._checking)

    async def _on_request(self, message: Msg) -> None:
        if message.reply.startswith(_INBOX) and "Nats-Subject" not in (message.headers or {}):
            checking = asyncio.create_task(self._answer(message))
            self._checking.add(checking)
            checking.add_done_callback(self._checking.discard)

    async def _answer(self, message: Msg) -> None:
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
        facts = await self._announced(request.tool)
        findings = announcement_findings(facts)
        if facts.spec is not None and request.args is not None:
            findings += await self._called(facts.spec, request)
        logger.info("tool_checked", tool=request.tool, failed=[one.name for one in findings if one.status == "failed"])
        return ToolChecked(tool=request.tool, digest=facts.digest or None, findings=findings)

    async def _announced(self, tool: str) -> Announced:
        """Return what is known of a tool, once something is."""
        until = time.monotonic() + _APPEARS_WITHIN_S
        while True:
            found = [each for each in self._announcements() if each.spec.name == tool]
            refused = {each.name: each.reason for each in await refused_tools(self._bus)}.get(tool)
            live = self._catalogue.live().get(tool)
            if refused is not None or (found and live is not None) or time.monotonic() >= until:
                break
            await asyncio.sleep(_LOOK_S)
        if not found:
            return Announced(tool, refused=refused)
        chosen = choose(found)
        return Announced(
            tool,
            chosen.spec,
            chosen.digest,
            chosen.version,
            instances=len({each.instance for each in found if each.instance}),
            digests=frozenset(each.digest for each in found),
            is_offered=live is not None and live.digest() == chosen.digest,
            refused=refused,
            artifact_type=artifact_type_of(dict.fromkeys(NAMES), chosen.spec.output_schema),
        )

    async def _called(self, spec: ToolSpec, request: CheckTool) -> list[Finding]:
        reasons = ["requires approval"] if spec.requires_approval else []
        if spec.side_effects in _EFFECTS:
            reasons.append(f"has side effects ({spec.side_effects})")
        if reasons and not request.confirmed:
            not_made = f"not made: the tool {' and '.join(reasons)}"
            return lines_of([("call", "failed", True, not_made, "give --yes to call it all the same")])
        checked = CheckedCall(self._bus, self._tools, spec, request)
        try:
            checked.check_arguments()
        except InvalidArguments as error:
            return lines_of([("arguments", "failed", True, str(error), "give arguments that fit the input schema")])
        first = await checked.answer()
        findings = answer_findings(checked.sent, first)
        if first.failure is None and first.complaint is None:
            again = await checked.answer(is_repeated=True)
            findings.append(repetition_finding(first, again, is_idempotent=spec.idempotent))
        return findings
