"""Prepares model calls: the run's agent, its pinned tool specifications, its strategy, the model."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace

import structlog

from contracts.runs.events import RunStarted
from contracts.runs.payload import Usage
from contracts.runs.requests import RunRequested
from contracts.tools.messages import ToolSpec
from contracts.wire.faults import Fault
from services.messaging.connection import Bus
from services.planner.conversation import triage_critique
from services.planner.conversation.encoding import Message, Messages
from services.planner.effects.image_loader import ImageLoader
from services.planner.models.errors import ModelFailed
from services.planner.models.model_table import cost_usd
from services.planner.models.types import Delta, Model, ModelRequest, Reply
from services.planner.models.wire import estimate
from services.planner.page_views import view_of
from services.planner.resolution import Deployment
from services.planner.run.commands import Opening
from services.planner.run.people.input_rules import ADMITTED, Checked, check
from services.planner.run.state.run import Run
from services.planner.run.turn.decision import Critique, Triage
from services.planner.strategies.base import Reading, Strategy
from services.shared.runs.causes import CAUSES
from services.shared.runs.pages.registry import OF_PAGES, Pages, UnknownPlace
from services.shared.tools.catalogue import Catalogue

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
        messages = triage_critique.triage_messages(run.inputs.question(started.request.query), started.models)
        text, usage = await self._short_call(started.triage_model or run.model, messages)
        return triage_critique.read_triage(text, started.models, usage)

    async def critique(self, run: Run, answer: str, within_s: float = JUDGEMENT_TIMEOUT_S) -> Critique:
        """Score an answer, in `within_s` seconds at most. Never raises; a failure gives no score."""
        reflection, question = run.opened.reflection, run.inputs.question(run.opened.request.query)
        model = (reflection.model if reflection else None) or run.model
        messages = triage_critique.critique_messages(question, answer, run.last_observation)
        return triage_critique.read_critique(
            *await self._short_call(model, messages, min(within_s, JUDGEMENT_TIMEOUT_S))
        )

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
