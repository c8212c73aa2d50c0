"""The client of a gateway, and the shapes that its methods take and return."""

from types import ModuleType as _Module

from contracts.artifacts import ImageInput as ImageInput
from contracts.runs.decisions import PlanReport as PlanReport
from contracts.runs.pauses import OpenPause as OpenPause
from contracts.runs.requests import AgentModels as AgentModels
from contracts.runs.requests import RunStatus as RunStatus
from contracts.sessions.proposals import ProposalEntry as ProposalEntry
from contracts.sessions.proposals import ProposalView as ProposalView
from contracts.sessions.records import SessionEntry as SessionEntry
from contracts.sessions.records import SessionStatus as SessionStatus
from contracts.sessions.schedules import ScheduleCreated as ScheduleCreated
from contracts.sessions.schedules import ScheduleView as ScheduleView
from contracts.sessions.tasks import GroupView as GroupView
from contracts.sessions.tasks import TaskView as TaskView
from contracts.tools.messages import RefusedTool as RefusedTool
from contracts.tools.messages import ToolSpec as ToolSpec
from runwire.client.background import webhook_headers as webhook_headers
from runwire.client.client import Client as Client
from runwire.client.event_stream import RunStream as RunStream
from runwire.client.event_stream import SessionStream as SessionStream
from runwire.client.options import LimitOptions as LimitOptions
from runwire.client.options import MemoryOptions as MemoryOptions
from runwire.client.options import MessageOption as MessageOption
from runwire.client.options import RunOptions as RunOptions
from runwire.client.tools import CallOptions as CallOptions

# For `help()` and `import *`; type checkers read the imports.
globals()["__all__"] = [name for name, value in globals().items() if name[0] != "_" and not isinstance(value, _Module)]
