"""The events of a run, as a stream of Server-Sent Events."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response

from services.gateway.artifacts.inlining import Form, Inliner
from services.gateway.edge.open_streams import OpenStreams
from services.gateway.edge.routing import RequestCaller, new_router
from services.gateway.errors import BadCursor
from services.gateway.protocols.events.encoder import CURSOR, Cursor
from services.gateway.protocols.events.stream import RUN_HEADER, EventStream
from services.gateway.runs.reader import RunReader
from services.gateway.runs.stored_run import StoredRun
from services.messaging.connection import Bus
from services.shared.runs.run_follower import RunFollower

EVENT_STREAM: dict[str, Any] = {
    "description": "The run's events, as docs/http.md says.",
    "content": {"text/event-stream": {}},
}
EVENT_ID: dict[str, Any] = {"pattern": f"^({CURSOR})?$", "description": "the id of an event of this run"}


class EventRoutes:
    """Routes of events."""

    def __init__(self, bus: Bus, runs: RunReader, inliner: Inliner, streams: OpenStreams, heartbeat_s: float) -> None:
        self._bus = bus
        self._runs = runs
        self._inliner = inliner
        self._streams = streams
        self._heartbeat_s = heartbeat_s

    def router(self) -> APIRouter:
        """Return the routes."""
        router = new_router("runs")
        responses: dict[int | str, dict[str, Any]] = {
            200: EVENT_STREAM,
            204: {"description": "The cursor stands at the end: nothing more will come."},
        }
        router.get("/v1/runs/{run_id}/events", responses=responses, response_model=None)(self.run_events)
        return router

    def stream(self, tenant: str, run: str, follower: RunFollower, artifacts: Form, *, may_wait: bool) -> EventStream:
        """Return the stream of what a follower of the run gives.

        `artifacts`: their form in the last event. `may_wait`: see `EventStream`.
        """
        finish = partial(self._inliner.record, tenant) if artifacts == "values" else None
        return EventStream(follower, self._streams, self._heartbeat_s, tenant, run, finish, may_wait=may_wait)

    async def run_events(
        self,
        run_id: str,
        caller: RequestCaller,
        last_event_id: Annotated[str | None, Header(json_schema_extra=EVENT_ID)] = None,
        after: Annotated[str | None, Query(alias="last_event_id", json_schema_extra=EVENT_ID)] = None,
        artifacts: Form = "values",
    ) -> Response:
        """Stream a run: what happened so far, then live, until it ends.

        `Last-Event-ID` resumes; 204 when nothing more will come.
        """
        self._streams.check(caller.tenant)
        found = await self._runs.get(caller, run_id)
        cursor = _cursor(last_event_id or after)
        if not await self._has_reached(caller.tenant, found, cursor):
            # Another gateway has shown more than this replica of the log holds, or the id is invented.
            found = await self._runs.current(caller, run_id)
            if not await self._has_reached(caller.tenant, found, cursor):
                raise BadCursor
        if found.has_ended and cursor.log == found.last_sequence:
            return Response(status_code=204, headers={RUN_HEADER: run_id})
        follower = RunFollower(self._bus, caller.tenant, run_id, log_after=cursor.log, stream_after=cursor.stream)
        return self.stream(caller.tenant, run_id, follower, artifacts, may_wait=found.waits_for_planner)

    async def _has_reached(self, tenant: str, found: StoredRun, cursor: Cursor) -> bool:
        if cursor.log > found.last_sequence:
            return False
        return await self._runs.is_position_of(tenant, found, cursor.log, cursor.stream)


def _cursor(text: str | None) -> Cursor:
    try:
        return Cursor.parse(text) if text else Cursor()
    except ValueError as error:
        raise BadCursor from error
