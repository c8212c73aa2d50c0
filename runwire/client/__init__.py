"""The client of a gateway, and the shapes that its methods take and return."""

from contracts.images import ImageInput
from contracts.runs import AgentModels, RunStatus
from contracts.tools import RefusedTool, ToolSpec
from runwire.client.client import Client
from runwire.client.options import LimitOptions, RunOptions
from runwire.client.run_stream import RunStream

__all__ = [
    "AgentModels",
    "Client",
    "ImageInput",
    "LimitOptions",
    "RefusedTool",
    "RunOptions",
    "RunStatus",
    "RunStream",
    "ToolSpec",
]
