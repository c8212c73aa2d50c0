"""Requests for runs that no caller asks for: of a session, of a schedule."""

from contracts.runs.requests import RunRequested
from contracts.wire import subjects
from services.messaging.connection import Bus
from services.messaging.errors import Refused


async def request_run(bus: Bus, request: RunRequested) -> None:
    """Store the request of a run, unless it is stored. Idempotent, also beyond the window of message ids.

    Raises Refused when the queue of new runs is full.
    """
    body, run = request.model_dump_json().encode(), request.run_id
    try:
        await bus.publish_surely(subjects.request(request.tenant, run), body, run)
    except Refused as refusal:
        if not refusal.is_second_of_subject:
            raise
