"""The client of a gateway, and the shapes that its methods take and return."""

from contracts.images import ImageInput
from contracts.pauses import OpenPause
from contracts.plans import PlanReport
from contracts.runs import AgentModels, RunStatus
from contracts.schedules import ScheduleCreated, ScheduleView
from contracts.sessions import SessionEntry, SessionStatus
from contracts.tasks import GroupView, TaskView
from contracts.tools import RefusedTool, ToolSpec
from runwire.client.client import Client
from runwire.client.event_stream import RunStream, SessionStream
from runwire.client.options import LimitOptions, MemoryOptions, MessageOption, RunOptions
from runwire.client.schedules import webhook_headers

__all__ = [
    "AgentModels",
    "Client",
    "GroupView",
    "ImageInput",
    "LimitOptions",
    "MemoryOptions",
    "MessageOption",
    "OpenPause",
    "PlanReport",
    "RefusedTool",
    "RunOptions",
    "RunStatus",
    "RunStream",
    "ScheduleCreated",
    "ScheduleView",
    "SessionEntry",
    "SessionStatus",
    "SessionStream",
    "TaskView",
    "ToolSpec",
    "webhook_headers",
]
