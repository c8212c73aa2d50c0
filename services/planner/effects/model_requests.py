"""Prepares model calls: the run's agent, its pinned tool specifications, its strategy, its page, the model.

Rule 1: a page is resolved once, when its run opens. Pages read by tools, with the tenant and the API key's tools of the
run, as any caller does. Nothing of it fails a run: what cannot be read is named in what the model reads, and as a
warning.
Rule 2: a prompt is rendered again, for people who look inside a run, by the code that asks models. The log is folded up
to the record that asks, apart from the runs in work. Nothing is written, and no model is asked.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import Any

import structlog
from nats.aio.msg import Msg

from contracts.runs.events import RunStarted
from contracts.runs.inbox import Prompt, PromptRendered, PromptRequested
from contracts.runs.pages import Page, PageView
from contracts.runs.payload import Usage
from contracts.runs.requests import RunRequested
from contracts.tools.messages import ReadRequested, ToolSpec
from contracts.wire import subjects
from contracts.wire.base import parsed
from contracts.wire.faults import Fault
from contracts.wire.records import VERSION_HEADER
from services.messaging.connection import Answerer, Bus
from services.messaging.errors import Unavailable
from services.planner.conversation import rendering
from services.planner.conversation.encoding import Message, Messages, merged
from services.planner.effects.image_loader import ImageLoader
from services.planner.logs.ownership_watch import Address
from services.planner.logs.run_log import RunLogs
from services.planner.models.errors import ModelFailed
from services.planner.models.providers import cost_usd
from services.planner.models.types import Delta, Model, ModelRequest, Reply
from services.planner.models.wire import estimate
from services.planner.resolution import Deployment
from services.planner.run.commands import Opening
from services.planner.run.people.input_rules import ADMITTED, Checked, check
from services.planner.run.state.run import Run
from services.planner.run.turn.decision import Critique, Triage
from services.planner.strategies.base import Reading, Strategy
from services.runtime.health import VERSION
from services.shared.runs.causes import CAUSES
from services.shared.runs.pages.page_types import Read, Shown, help_text
from services.shared.runs.pages.registry import OF_PAGES, Pages, UnknownPlace
from services.shared.tools.catalogue import Catalogue, read

logger = structlog.get_logger(__name__)

ABSENT_TOOLS_WAIT_S = 5.0
"""A run waits this long for tools that its agent or request names and that may be restarting."""
JUDGEMENT_TIMEOUT_S = 30.0
"""Limit of a triage or a critique. A run whose triage or critique takes longer continues without it."""


@dataclass(frozen=True, slots=True)
class ModelRequests:
    """Opens runs and starts their model calls."""

    model: Model
    deployment: Deployment
    catalogue: Catalogue
    image_loader: ImageLoader
    bus: Bus
    pages: Pages

    def open(self, request: RunRequested) -> Opening:
        """Return the fact that opens the run, and a fault if the request is refused."""
        return self.deployment.opening(request, self.catalogue.live())

    async def with_page(self, found: Opening) -> Opening:
        """Return the opening with the view of its page: a read of the page, if the request names one."""
        started, page = found.started, found.started.request.page
        if page is None or found.refusal is not None or started.strategy != OF_PAGES:
            return found
        try:
            view, warnings = await view_of(self.bus, self.pages, page, started)
        except UnknownPlace as error:
            return replace(found, refusal=Fault(code="bad_request", reason=f"page.{error.field}: {error}"))
        update = {"page_view": view, "warnings": [*started.warnings, *warnings]}
        return replace(found, started=started.model_copy(update=update))

    async def check_texts(self, started: RunStarted, texts: Sequence[str]) -> Checked:
        """Return what the rules of the run's agent say of texts of its user. Never raises."""
        rules = self.deployment.agent(started).input_rules if CAUSES[started.request.cause].is_callers_choice else []
        return await asyncio.to_thread(check, rules, texts) if rules else ADMITTED

    def refused_images(self, run: Run) -> Fault | None:
        """Return why the run's model is not shown images of an input; None if it takes them."""
        model = run.calling or run.model
        if self.deployment.vision_support.takes_images(model):
            return None
        return Fault(code="vision_unsupported", reason=f"{model} does not take images")

    def lacks_tools(self, request: RunRequested) -> bool:
        """Whether a tool that the request or the run's agent names is unavailable, and may be restarting."""
        return self.catalogue.may_return(self.deployment.absent(request, self.catalogue.live()))

    async def await_tools(self, request: RunRequested) -> None:
        """Wait until the named tools are available, at most some seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ABSENT_TOOLS_WAIT_S):
                while self.lacks_tools(request):
                    await self.catalogue.change()

    def strategy(self, started: RunStarted | None) -> Strategy:
        """Return the strategy of a run; the default one for a run that is not open, or was refused."""
        return self.deployment.strategies.of(started)

    async def think(
        self, run: Run, now: int, warn: Callable[[list[str]], object] = lambda _: None
    ) -> tuple[AsyncGenerator[Delta | Reply, None], Reading]:
        """Start one request of the model call, at `now` (Unix ms). `warn` receives the images that were left out."""
        started = run.opened
        agent, strategy = self.deployment.agent(started), self.strategy(started)
        tools = list((await self.specs(started)).values())
        asked = strategy.request(run, tools, agent)
        if run.failed and asked.total_s is not None:
            # `total_s` limits all requests of a model call. A last request gets at least the idle limit.
            left_s = asked.total_s - (now - run.call_at) / 1000
            asked = replace(asked, total_s=max(left_s, asked.timeout_s))
        stream = self._with_images(asked, run, started, warn) if run.has_images else self.model.stream(asked)
        return stream, strategy.read(run, tools)

    async def _with_images(
        self, asked: ModelRequest, run: Run, started: RunStarted, warn: Callable[[list[str]], object]
    ) -> AsyncGenerator[Delta | Reply, None]:
        messages, warnings = await self.image_loader.filled(
            started.tenant,
            started.run_id,
            started.request.session_id,
            asked.messages,
            run.pause_decisions.removed_images,
        )
        warn(warnings)
        async with aclosing(self.model.stream(replace(asked, messages=messages))) as pieces:
            async for piece in pieces:
                yield piece

    async def specs(self, started: RunStarted) -> dict[str, ToolSpec]:
        """Return the specifications that the run pinned when it was opened, by name of the tool."""
        pinned, spec = self.catalogue.pinned, self.catalogue.spec
        specs = [pinned.get(digest) or await spec(digest) for digest in started.tools.values()]
        return {spec.name: spec for spec in specs if spec is not None}

    async def concurrency(self, run: Run, tool: str) -> int:
        """How many calls of a tool are done at once."""
        digest = run.started.tools.get(tool) if run.started else None
        spec = await self.catalogue.spec(digest) if digest else None
        return spec.concurrency if spec else 1

    async def rendered(self, run: Run, started: RunStarted) -> ModelRequest:
        """Return the request of the model call that the run is in."""
        tools, agent = list((await self.specs(started)).values()), self.deployment.agent(started)
        return self.strategy(started).request(run, tools, agent)

    async def unfinished(self, run: Run, shown: str) -> Usage:
        """Estimate what a request cost that never ended: no provider tells. `shown`: what is stored of its answer."""
        asked = run.asked or run.interrupted
        if run.started is None or (asked is None and run.stopping is None) or (asked and asked.cause == "restated"):
            return Usage(cost_usd=0.0)
        request = await self.rendered(run, run.started)
        usage = estimate(request.messages, shown, "")
        return usage.model_copy(update={"cost_usd": cost_usd(request.model, usage)})

    async def triage(self, run: Run) -> Triage:
        """Let a cheap model call choose the effort. Never raises: a failed call means `medium`."""
        started = run.opened
        messages = rendering.triage_messages(run.inputs.question(started.request.query), started.models)
        text, usage = await self._short_call(started.triage_model or run.model, messages)
        return rendering.read_triage(text, started.models, usage)

    async def critique(self, run: Run, answer: str, within_s: float = JUDGEMENT_TIMEOUT_S) -> Critique:
        """Score an answer, in `within_s` seconds at most. Never raises; a failure gives no score."""
        reflection, question = run.opened.reflection, run.inputs.question(run.opened.request.query)
        model = (reflection.model if reflection else None) or run.model
        messages = rendering.critique_messages(question, answer, run.last_observation)
        return rendering.read_critique(*await self._short_call(model, messages, min(within_s, JUDGEMENT_TIMEOUT_S)))

    async def _short_call(
        self, model: str, messages: list[Message], within_s: float = JUDGEMENT_TIMEOUT_S
    ) -> tuple[str, Usage]:
        if within_s <= 0:
            return "", Usage(cost_usd=0.0)
        request = ModelRequest(
            model=model,
            messages=Messages.of(messages),
            response_format={"type": "json_object"},
            timeout_s=within_s,
            total_s=within_s,
        )
        stream = self.model.stream(request)
        try:
            async for piece in stream:
                if isinstance(piece, Reply):
                    return piece.text, piece.usage
        except ModelFailed as error:
            logger.info("judgement_failed", code=error.fault.code)
        finally:
            await stream.aclose()
        return "", Usage(cost_usd=0.0)


PAGE_WAIT_S = 6.0
"""How long each read of a page may take. All of them are made at once."""
MAX_CONTEXT_CHARACTERS = 64 << 10


async def view_of(bus: Bus, pages: Pages, page: Page, started: RunStarted) -> tuple[PageView, list[str]]:
    """Return what the model of a run reads about its page, and warnings. Raises UnknownPlace."""
    parts, kind = pages.parts(page), pages.pages[page.name]
    lost: list[str] = []
    try:
        reads = kind.reads_of(page)
        results = await asyncio.gather(*(_read(bus, started, each) for each in reads))
        found = zip(reads, results, strict=True)
        lost = [f"{read.tool}: {each.reason}" for read, each in found if isinstance(each, Fault)]
        shown = kind.shown(page, [None if isinstance(each, Fault) else each for each in results])
        # Raises for what no record can hold.
        PageView(page=page, context=shown.text, **_of_table(shown)).model_dump_json()
    except Exception as error:  # noqa: BLE001, a plug-in may raise anything
        logger.warning("page_not_shown", page=page.name, error=repr(error)[:500])
        shown, lost = Shown(""), [*lost, "the page cannot be shown; the log of the planner says why"]
    lines = [shown.text[:MAX_CONTEXT_CHARACTERS], *(f"Not available now: {each}" for each in lost)]
    view = PageView(
        page=page,
        role=started.request.role,
        persona="\n\n".join(filter(None, (part.persona for part in parts))),
        context="\n".join(filter(None, lines)),
        payloads=pages.payloads(page),
        client_actions=pages.actions(page),
        tools=[name for name in started.tools if pages.offers(page, name)],
        help=help_text(pages.topics, page.name, started.request.role),
        **_of_table(shown),
    )
    return view, [f"page_incomplete: {each}" for each in lost]


def _of_table(shown: Shown) -> dict[str, Any]:
    return {"base_version": shown.base_version, "columns": shown.columns}


async def _read(bus: Bus, started: RunStarted, call: Read) -> Any:
    """Return what a tool says, or the fault."""
    request = started.request
    if request.key_tools is not None and call.tool not in request.key_tools:
        return Fault(code="unknown_tool", reason="the API key does not allow this tool")
    asked = ReadRequested(
        tenant=started.tenant,
        tool=call.tool,
        args=call.args,
        user_id=request.user_id,
        request_id=request.request_id,
        trace_id=request.trace_id,
    )
    try:
        found = await read(bus, asked, PAGE_WAIT_S)
    except Unavailable:
        return Fault(code="tool_unavailable", reason="no answer in time", retryable=True)
    if found.status == "failed":
        return found.failure or Fault(code="internal", reason="the tool failed and did not say why")
    return found.observation


MAX_WAITING = 16
"""Requests of one planner that wait; further ones are not answered, and are asked again."""


class Prompts(Answerer):
    """Renders prompts again, for requests: one at a time, since a long run holds up this process."""

    def __init__(self, bus: Bus, logs: RunLogs, requests: ModelRequests) -> None:
        super().__init__(bus, subjects.prompt, subjects.prompt.writes)
        self._logs = logs
        self._requests = requests
        self._lock = asyncio.Lock()

    async def answer(self, message: Msg) -> None:
        """Render a prompt, and send it. What is no request of this version is not answered; it stops waiting."""
        if len(self._answering) > MAX_WAITING or (asked := parsed(PromptRequested, message.data)) is None:
            return
        async with self._lock:
            prompt = await self.rendered(asked)
        answer = PromptRendered(prompt=prompt, problem=None if prompt else "no_such_call")
        reply = answer.model_dump_json().encode()
        if len(reply) > self._bus.nc.max_payload:
            reply = PromptRendered(problem="too_large").model_dump_json().encode()
        await self._bus.send(message.reply, reply)

    async def rendered(self, wanted: PromptRequested) -> Prompt | None:
        """Return a prompt; None if the log has no such model call."""
        address, place = Address(wanted.tenant, wanted.run_id), (wanted.turn, wanted.part, wanted.attempt)
        found = await self._logs.as_asked(address, place)
        if found is None or found.run.started is None:
            return None
        request = await self._requests.rendered(found.run, found.run.started)
        return Prompt(
            model=request.model,
            messages=[each for each in merged(request.messages.objects()) if isinstance(each, dict)],
            tools=request.tools,
            tool_choice=request.tool_choice,
            response_format=request.response_format,
            reasoning_effort=request.reasoning_effort,
            tokens=request.messages.tokens,
            rendered_by=VERSION,
            asked_by=(found.headers or {}).get(VERSION_HEADER, ""),
        )
