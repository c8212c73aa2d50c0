"""The events of a run, as `Client.follow` yields them, and the values inside them.

`RunEvent` is the union of all events; `event.type` or a `match` on the class tells them apart. A type that this
version does not know arrives as `UnknownEvent`. Nothing follows an event whose type is in `TERMINAL`.
"""

from contracts.artifacts import ArtifactRef
from contracts.events import (
    TERMINAL,
    ArtifactChunk,
    ArtifactStored,
    Asked,
    Called,
    CallStarted,
    Cancelled,
    Chunk,
    Compacted,
    Deleted,
    Done,
    Error,
    ModelFailed,
    Observed,
    Paused,
    PlannedCall,
    Repaired,
    Resumed,
    RunEvent,
    RunStarted,
    Step,
    Stopping,
    Thinking,
    ToolProgress,
    ToppedUp,
    Triaged,
    UnknownEvent,
)
from contracts.faults import Fault
from contracts.payload import FinalPayload, Source, SuggestedAction, Usage

__all__ = [
    "TERMINAL",
    "ArtifactChunk",
    "ArtifactRef",
    "ArtifactStored",
    "Asked",
    "CallStarted",
    "Called",
    "Cancelled",
    "Chunk",
    "Compacted",
    "Deleted",
    "Done",
    "Error",
    "Fault",
    "FinalPayload",
    "ModelFailed",
    "Observed",
    "Paused",
    "PlannedCall",
    "Repaired",
    "Resumed",
    "RunEvent",
    "RunStarted",
    "Source",
    "Step",
    "Stopping",
    "SuggestedAction",
    "Thinking",
    "ToolProgress",
    "ToppedUp",
    "Triaged",
    "UnknownEvent",
    "Usage",
]
