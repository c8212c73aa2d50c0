"""Put together what a model call needs: the run's agent, its pinned tools, the dialect, the model."""

from collections.abc import AsyncGenerator, Mapping

from contracts.events import RunStarted
from contracts.runs import RunLimits, RunRequested
from contracts.tools import ToolSpec
from services.runtime.catalogue import Catalogue

from . import opening
from .agents import DEFAULT_AGENT, Agent
from .model import Delta, Model, Reply
from .run import Run
from .strategies.base import Reading, Strategy


class Thinker:
    """Everything between a run and its model."""

    def __init__(
        self, *, model: Model, default_model: str, agents: Mapping[str, Agent], catalogue: Catalogue, strategies: Mapping[str, Strategy]
    ) -> None:
        self._model = model
        self._default_model = default_model
        self._agents = agents
        self._catalogue = catalogue
        self._strategies = strategies

    def open(self, request: RunRequested) -> RunStarted:
        """What opening the run records. Raises CannotOpen."""
        return opening.open_run(request, self._agents, self._catalogue.live(), self._default_model)

    def open_bare(self, request: RunRequested) -> RunStarted:
        """What is recorded of a run that cannot be opened, before its error."""
        return RunStarted(run_id=request.run_id, tenant=request.tenant, request=request, limits=RunLimits())

    async def think(self, run: Run) -> tuple[AsyncGenerator[Delta | Reply, None], Reading]:
        """Start asking for the run's next decision."""
        assert run.started is not None  # noqa: S101, `asked` follows `run_started` in every log
        request = run.started.request
        # An agent that has left the agents file meanwhile leaves its runs to the default one.
        agent = self._agents.get(request.agent) or self._agents[DEFAULT_AGENT]
        tools = list((await self.specs(run.started)).values())
        strategy = self._strategies[request.strategy or agent.strategy]
        return self._model.stream(strategy.request(run, tools, agent)), strategy.reading(run, tools)

    async def specs(self, started: RunStarted) -> dict[str, ToolSpec]:
        """The tools that the run pinned when it was opened, by name."""
        specs = [await self._catalogue.spec(digest) for digest in started.tools.values()]
        return {spec.name: spec for spec in specs if spec is not None}
