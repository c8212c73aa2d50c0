"""Direct calls: the planner calls one instance of tool_runner by a request, without the stored queue CALLS.

The `step` or `called` record that announces a call names the instance (`PlannedCall.direct`) and is the intent of the
call. The request is a `tools.CallRequested` with `start_by`. The header `Runwire-Direct` of the reply says what became
of it.
"""

from typing import Literal

from pydantic import Field

from ..wire.base import Message

DIRECT_HEADER = "Runwire-Direct"
DirectReply = Literal["begun", "finished", "declined", "unfinished"]
"""`begun`: the tool is called next, and another reply follows. `finished`: the body is the CallFinished.
`declined`: the tool was not called for this request and will not be; send the call to CALLS. `unfinished`: the tool was
called and has paused the call or has not ended in time, or may have been called; send it to CALLS as one that may have
begun."""


class RunnerAnnouncement(Message):
    """An instance of tool_runner takes direct calls. Repeated every second."""

    instance: str
    leaving: bool = Field(default=False, description="it takes none: it is starting or stopping")


class ReceivedQuestion(Message):
    """Whether an instance of tool_runner has received a direct call. If not, it declines the call from then on."""

    idempotency_key: str = Field(description="of a later round than the first: `names.round_key`")
    age_s: float = Field(description="seconds since the record that announces the call")


class ReceivedAnswer(Message):
    """The answer: false only if the call was certainly not received. It will be declined if it comes."""

    received: bool
