"""The tools that are present."""

from collections.abc import Callable, Mapping

from fastapi import APIRouter
from pydantic import BaseModel, Field

from contracts.tools.messages import RefusedTool, ToolSpec
from services.gateway.edge.routing import new_router
from services.messaging.connection import Bus
from services.shared.tools.catalogue import refused_tools


class ToolList(BaseModel):
    """The tools that are present now."""

    tools: list[ToolSpec]
    refused: list[RefusedTool] = Field(
        default_factory=list, description="those that announce what cannot be used or is not accepted, with the reason"
    )


class ToolRoutes:
    """The route of tools. `live`: returns the present tools by name."""

    def __init__(self, bus: Bus, live: Callable[[], Mapping[str, ToolSpec]]) -> None:
        self._bus = bus
        self._live = live

    def router(self) -> APIRouter:
        """Return the route."""
        router = new_router("tools")
        router.get("/v1/tools")(self.list_tools)
        return router

    async def list_tools(self) -> ToolList:
        """List the present tools, and the refused ones with the reason."""
        tools = self._live()
        return ToolList(tools=[tools[name] for name in sorted(tools)], refused=await refused_tools(self._bus))
