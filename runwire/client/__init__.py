"""The client of a gateway, and the shapes that its methods take and return."""

from contracts.artifacts import ImageInput
from contracts.runs.decisions import PlanReport
from contracts.runs.pauses import OpenPause
from contracts.runs.requests import AgentModels, RunStatus
from contracts.sessions.proposals import ProposalEntry, ProposalView
from contracts.sessions.records import SessionEntry, SessionStatus
from contracts.sessions.schedules import ScheduleCreated, ScheduleView
from contracts.sessions.tasks import GroupView, TaskView
from contracts.tools.messages import RefusedTool, ToolSpec
from runwire.client.background import webhook_headers
from runwire.client.client import Client
from runwire.client.event_stream import RunStream, SessionStream
from runwire.client.options import LimitOptions, MemoryOptions, MessageOption, RunOptions
from runwire.client.tools import CallOptions

__all__ = [
    "AgentModels",
    "CallOptions",
    "Client",
    "GroupView",
    "ImageInput",
    "LimitOptions",
    "MemoryOptions",
    "MessageOption",
    "OpenPause",
    "PlanReport",
    "ProposalEntry",
    "ProposalView",
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
