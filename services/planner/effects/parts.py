"""What the handlings of all messages share. Built once, in `app.py`."""

from dataclasses import dataclass

from services.messaging.connection import Bus
from services.planner.effects.call_paths import CallPlaces, DirectCalls
from services.planner.effects.chunk_publisher import ChunkWriter
from services.planner.effects.model_requests import ModelRequests
from services.planner.effects.sessions import Sessions
from services.planner.logs.run_log import RunLogs
from services.planner.run.commands import Rules
from services.shared.budgets.spending import KeySpending


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a planner."""

    bus: Bus
    rules: Rules
    logs: RunLogs
    sessions: Sessions
    model_requests: ModelRequests
    direct_calls: DirectCalls
    chunks: ChunkWriter
    call_places: CallPlaces
    key_spending: KeySpending
