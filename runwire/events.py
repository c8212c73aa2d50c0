"""The events of a run and of a session, as `Client.follow` and `session_events` yield them, and the values inside.

`RunEvent` and `SessionEvent` are the unions; `event.type` or a `match` on the class tells events apart. A type that
this version does not know arrives as `UnknownEvent`. Nothing follows an event of a run whose type is in `TERMINAL`.
"""

from contracts.artifacts import ArtifactRef as ArtifactRef
from contracts.runs.events import TERMINAL as TERMINAL
from contracts.runs.events import ArtifactChunk as ArtifactChunk
from contracts.runs.events import ArtifactStored as ArtifactStored
from contracts.runs.events import Asked as Asked
from contracts.runs.events import Attached as Attached
from contracts.runs.events import BlockStarted as BlockStarted
from contracts.runs.events import Called as Called
from contracts.runs.events import CallStarted as CallStarted
from contracts.runs.events import Cancelled as Cancelled
from contracts.runs.events import Chunk as Chunk
from contracts.runs.events import Compacted as Compacted
from contracts.runs.events import ControlAnswered as ControlAnswered
from contracts.runs.events import Deleted as Deleted
from contracts.runs.events import Done as Done
from contracts.runs.events import Error as Error
from contracts.runs.events import InputAdded as InputAdded
from contracts.runs.events import ModelFailed as ModelFailed
from contracts.runs.events import Observed as Observed
from contracts.runs.events import Paused as Paused
from contracts.runs.events import PayloadProposed as PayloadProposed
from contracts.runs.events import PlannedCall as PlannedCall
from contracts.runs.events import Queued as Queued
from contracts.runs.events import Redelivered as Redelivered
from contracts.runs.events import Repaired as Repaired
from contracts.runs.events import Resumed as Resumed
from contracts.runs.events import RunEvent as RunEvent
from contracts.runs.events import RunStarted as RunStarted
from contracts.runs.events import Step as Step
from contracts.runs.events import Stopping as Stopping
from contracts.runs.events import TaskSettled as TaskSettled
from contracts.runs.events import TasksPaused as TasksPaused
from contracts.runs.events import Thinking as Thinking
from contracts.runs.events import ToolProgress as ToolProgress
from contracts.runs.events import ToppedUp as ToppedUp
from contracts.runs.events import Triaged as Triaged
from contracts.runs.events import UnknownEvent as UnknownEvent
from contracts.runs.pauses import OpenPause as OpenPause
from contracts.runs.pauses import Yielded as Yielded
from contracts.runs.payload import FinalPayload as FinalPayload
from contracts.runs.payload import Source as Source
from contracts.runs.payload import SuggestedAction as SuggestedAction
from contracts.runs.payload import Usage as Usage
from contracts.sessions.proposals import ProposalApplied as ProposalApplied
from contracts.sessions.proposals import ProposalApplying as ProposalApplying
from contracts.sessions.proposals import ProposalDismissed as ProposalDismissed
from contracts.sessions.proposals import ProposalPending as ProposalPending
from contracts.sessions.proposals import ProposalReleased as ProposalReleased
from contracts.sessions.proposals import ProposalReport as ProposalReport
from contracts.sessions.proposals import ProposalSuperseded as ProposalSuperseded
from contracts.sessions.proposals import Verdict as Verdict
from contracts.sessions.records import ApprovedForSession as ApprovedForSession
from contracts.sessions.records import Checkpoint as Checkpoint
from contracts.sessions.records import ContextSet as ContextSet
from contracts.sessions.records import InputForwarded as InputForwarded
from contracts.sessions.records import InputMissed as InputMissed
from contracts.sessions.records import RunBegun as RunBegun
from contracts.sessions.records import RunEnded as RunEnded
from contracts.sessions.records import RunMergedInto as RunMergedInto
from contracts.sessions.records import RunQueued as RunQueued
from contracts.sessions.records import RunRefusedBySession as RunRefusedBySession
from contracts.sessions.records import RunsForgotten as RunsForgotten
from contracts.sessions.records import RunWaits as RunWaits
from contracts.sessions.records import RunYielded as RunYielded
from contracts.sessions.records import SessionDeleted as SessionDeleted
from contracts.sessions.records import SessionDeleting as SessionDeleting
from contracts.sessions.records import SessionEvent as SessionEvent
from contracts.sessions.records import SessionStarted as SessionStarted
from contracts.sessions.records import Summarised as Summarised
from contracts.sessions.tasks import GroupEnded as GroupEnded
from contracts.sessions.tasks import GroupOpened as GroupOpened
from contracts.sessions.tasks import GroupSealed as GroupSealed
from contracts.sessions.tasks import Reported as Reported
from contracts.sessions.tasks import ResultsMerged as ResultsMerged
from contracts.sessions.tasks import ResultsRejected as ResultsRejected
from contracts.sessions.tasks import SpawnRefused as SpawnRefused
from contracts.sessions.tasks import TaskControlDone as TaskControlDone
from contracts.sessions.tasks import TaskControlRefused as TaskControlRefused
from contracts.sessions.tasks import TaskEnded as TaskEnded
from contracts.sessions.tasks import TasksCancelled as TasksCancelled
from contracts.sessions.tasks import TaskSpawned as TaskSpawned
from contracts.sessions.tasks import WaiterAdded as WaiterAdded
from contracts.sessions.tasks import WaiterReleased as WaiterReleased
from contracts.wire.faults import Fault as Fault

# For `help()` and `import *`; type checkers read the imports.
globals()["__all__"] = [name for name in dir() if name[0] != "_"]
