"""The agents that a request may name."""

from fastapi import APIRouter
from pydantic import BaseModel

from contracts.runs.requests import AgentModels
from services.gateway.catalogue.models import ModelProfiles
from services.gateway.edge.routing import new_router


class AgentList(BaseModel):
    """The agents of the planners that run now."""

    agents: list[AgentModels]


class AgentRoutes:
    """The route of agents."""

    def __init__(self, models: ModelProfiles) -> None:
        self._models = models

    def router(self) -> APIRouter:
        """Return the route."""
        router = new_router("agents")
        router.get("/v1/agents")(self.list_agents)
        return router

    async def list_agents(self) -> AgentList:
        """List the agents, each with the models that answer its runs. Without a planner there are none."""
        found = await self._models.of_agents()
        return AgentList(agents=[AgentModels(name=name, models=models) for name, models in found.items()])
