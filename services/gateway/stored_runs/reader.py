"""Read a run: its request from the stream REQUESTS, and its log.

Rule 1: REQUESTS is read before the log. A planner writes the log before it removes the request, so a run is always in
one of them, and an accepted run is never reported as unknown.
Rule 2: direct gets may be answered by a replica that lags behind. So a run counts as unknown only after the leaders of
the streams were asked.
Rule 3: messages that are no valid record or request are ignored: they hide neither the beginning nor the end of a run.
"""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson
from nats.aio.msg import Msg
from pydantic import BaseModel, ValidationError

from contracts import subjects
from contracts.events import TERMINAL, Done, Paused, RunStarted, Terminal
from contracts.ids import InvalidName, checked_id
from contracts.payload import FinalPayload
from contracts.records import Record
from contracts.runs import RunRequested, RunStatus
from services.gateway.errors import NotFound
from services.messaging.connection import Bus
from services.messaging.direct_get import checked, sequence_of
from services.messaging.errors import NOT_FOUND, Refused, Unavailable
from services.shared.run_follower import RunFollower
from services.shared.run_status import status_of

from .deletions import Deletions

Model = TypeVar("Model", bound=BaseModel)
_READ_TIMEOUT_S = 2.0
_LOG_READ_ATTEMPTS = 3

_Stored = tuple[int, bytes]
_Get = Callable[[str, dict[str, Any]], Awaitable[_Stored | None]]


@dataclass(frozen=True, slots=True)
class StoredRun:
    """What is stored of a run. `queued`: its request, until a planner has opened the run. The rest is of its log.

    `request_sequence`: of the queued request in REQUESTS, while the run has no log.
    """

    run_id: str
    queued: RunRequested | None
    request_sequence: int | None = None
    first: Record | None = None
    last: Record | None = None
    first_sequence: int = 0
    last_sequence: int = 0

    @property
    def has_ended(self) -> bool:
        """Whether its log is complete."""
        return self.last is not None and self.last.events[-1].type in TERMINAL

    def request(self) -> RunRequested | None:
        """Return its request; None when it was cancelled before the request arrived."""
        if self.queued is not None:
            return self.queued
        first = self.first.events[0] if self.first else None
        return first.request if isinstance(first, RunStarted) else None

    def status(self) -> RunStatus:
        """Return its status, with the payload of an ended run."""
        request, first, last = self.request(), self.first, self.last
        event = last.events[-1] if last else None
        end = event if isinstance(event, Terminal) else None
        status = status_of(
            self.run_id,
            request,
            end,
            is_open=first is not None,
            started_at=first.at if first and isinstance(first.events[0], RunStarted) else None,
            ended_at=last.at if last and end else None,
        )
        more: dict[str, Any] = {"payload": _payload_of(end) if end else None}
        if isinstance(event, Paused):
            more["paused"] = event.budget
        if request is None and first is not None:
            more["requested_at"] = first.at
        return status.model_copy(update=more)


def _payload_of(end: Terminal) -> FinalPayload:
    if isinstance(end, Done):
        return FinalPayload.model_construct(**{name: getattr(end, name) for name in FinalPayload.model_fields})
    return end.payload


def _parsed(model: type[Model], data: bytes) -> Model | None:
    try:
        return model.model_validate_json(data)
    except (ValidationError, RecursionError):
        return None


class RunReader:
    """Reads runs of any tenant."""

    def __init__(self, bus: Bus, deletions: Deletions) -> None:
        self._bus = bus
        self._deletions = deletions

    async def find(self, tenant: str, run: str) -> StoredRun | None:
        """Return what is stored of a run; None for one that never existed, was deleted or purged.

        Raises BusError and InvalidName.
        """
        if await self.is_deleted(tenant, run):
            return None
        return await self._read(tenant, run, self._from_replica) or await self._read(tenant, run, self._from_leader)

    async def get(self, tenant: str, run: str) -> StoredRun:
        """Return what is stored of a run. Raises NotFound, also for an impossible id, and BusError."""
        try:
            found = await self.find(tenant, checked_id(run))
        except InvalidName as error:
            raise NotFound from error
        if found is None:
            raise NotFound
        return found

    async def current(self, tenant: str, run: str) -> StoredRun:
        """Return what `get` returns, but as the leaders of the streams have it: a replica may lag behind."""
        if (found := await self._read(tenant, run, self._from_leader)) is None:
            raise NotFound
        return found

    async def is_deleted(self, tenant: str, run: str) -> bool:
        """Return whether the run was deleted in the last day. Raises BusError."""
        return bool(await self._deletions.among(tenant, [run]))

    async def is_position_of(self, tenant: str, found: StoredRun, log: int, stream: int) -> bool:
        """Return whether a listener can have reached these sequences of a run's log and stream; 0 is the beginning.

        The sequence of an expired chunk, which cannot be read, counts when it lies within the run. Raises BusError.
        """
        if log and await self._subject_at(log) != subjects.log(tenant, found.run_id):
            return False
        if not stream or (subject := await self._subject_at(stream)) == subjects.stream(tenant, found.run_id):
            return True
        if subject is not None or found.last_sequence == 0 or stream < found.first_sequence:
            return False
        if found.has_ended:
            return stream <= found.last_sequence
        return stream <= int((await self._bus.api(f"STREAM.INFO.{subjects.RUNS}", {}))["state"]["last_seq"])

    async def wait_for_result(self, tenant: str, run: str, follower: RunFollower) -> FinalPayload:
        """Return the payload of an accepted run once it has ended, however long that takes. NATS may be unavailable.

        Raises NotFound for a run that was deleted.
        """
        while True:
            last = b""
            try:
                async with aclosing(follower.records()) as batches:
                    async for records in batches:
                        last = records[-1].data
                end = record.events[-1] if (record := _parsed(Record, last)) is not None else None
                if isinstance(end, Terminal):
                    return _payload_of(end)
                if (payload := (await self.get(tenant, run)).status().payload) is not None:
                    return payload
            except Unavailable:
                pass
            await self._bus.retry_pause(3)
            follower = RunFollower(self._bus, tenant, run)

    async def _read(self, tenant: str, run: str, get: _Get) -> StoredRun | None:
        log = subjects.log(tenant, run)
        stored = await get(subjects.REQUESTS, {"last_by_subj": subjects.request(tenant, run)})
        queued = _parsed(RunRequested, stored[1]) if stored else None
        last = await get(subjects.RUNS, {"last_by_subj": log})
        if last is None:
            return StoredRun(run, queued, stored[0]) if stored and queued else None
        first = await get(subjects.RUNS, {"seq": 1, "next_by_subj": log})
        if first is None:
            return None  # The log was purged between the two reads.
        begin, end = _parsed(Record, first[1]), _parsed(Record, last[1])
        if begin is None or end is None:
            return await self._search(run, queued, log)
        return StoredRun(run, queued, None, begin, end, first[0], last[0])

    async def _search(self, run: str, queued: RunRequested | None, log: str) -> StoredRun | None:
        """Find the first and the last valid record of a log with invalid ones; a terminal record is the last."""
        found: list[tuple[int, Record]] = []
        for sequence, data in await (await self._bus.reader(subjects.RUNS)).read(log, attempts=_LOG_READ_ATTEMPTS):
            if (record := _parsed(Record, data)) is not None:
                found.append((sequence, record))
                if record.events[-1].type in TERMINAL:
                    break
        if not found:
            return StoredRun(run, queued) if queued else None
        (first_sequence, first), (last_sequence, last) = found[0], found[-1]
        return StoredRun(run, queued, None, first, last, first_sequence, last_sequence)

    async def _direct_get(self, stream: str, query: dict[str, Any]) -> Msg:
        return await self._bus.request(subjects.direct_get(stream), orjson.dumps(query), _READ_TIMEOUT_S)

    async def _subject_at(self, sequence: int) -> str | None:
        """Return the subject of a stored message; None when there is none with this sequence."""
        answer = await self._direct_get(subjects.RUNS, {"seq": sequence})
        if (subject := (answer.headers or {}).get("Nats-Subject")) is not None:
            return subject
        try:  # A replica may lag behind.
            asked = await self._bus.api(f"STREAM.MSG.GET.{subjects.RUNS}", {"seq": sequence}, _READ_TIMEOUT_S)
        except Refused as error:
            if error.code in NOT_FOUND:
                return None
            raise
        return str(asked["message"]["subject"])

    async def _from_replica(self, stream: str, query: dict[str, Any]) -> _Stored | None:
        answer = await self._direct_get(stream, query)
        if answer.headers is None or "Nats-Sequence" not in answer.headers:
            return None
        return sequence_of(answer), checked(answer).data

    async def _from_leader(self, stream: str, query: dict[str, Any]) -> _Stored | None:
        return await self._bus.get_from_leader(stream, query, _READ_TIMEOUT_S)
