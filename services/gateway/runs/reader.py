"""Read a run: its request from the stream REQUESTS, and its log.

Rule 1: REQUESTS is read before the log. A planner writes the log before it removes the request, so a run is always in
one of them, and an accepted run is never reported as unknown.
Rule 2: direct gets may be answered by a replica that lags behind. So a run counts as unknown only after the leaders of
the streams were asked.
Rule 3: a caller whose key is pinned to a user finds that user's runs only.
Rule 4: messages that are no valid record or request are ignored: they hide neither the beginning nor the end of a run.
Rule 5: a deletion is an entry of the bucket of runs; it stays until nothing of the run can come back. From then on the
gateway does not show the run, and planners remove what is stored of it.
"""

import re
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson
import structlog
from nats.aio.msg import Msg

from contracts.runs.events import TERMINAL, Done, Paused, Queued, RunEvent, RunStarted, TasksPaused, Terminal, Yielded
from contracts.runs.pauses import OpenPause
from contracts.runs.payload import FinalPayload
from contracts.runs.requests import RunDeletion, RunRequested, RunStatus
from contracts.wire import keys, subjects
from contracts.wire.base import parsed
from contracts.wire.names import InvalidName, checked_id, own_session_id, unix_ms
from contracts.wire.records import PAUSES_HEADER, Record
from services.gateway.auth.caller import Caller
from services.gateway.errors import NotFound, TryAgain
from services.messaging.connection import Bus
from services.messaging.errors import NOT_FOUND, Refused, Unavailable, Unsure
from services.messaging.kv import Bucket
from services.messaging.reads import checked, sequence_of
from services.shared.runs.run_follower import RunFollower
from services.shared.runs.waiting import Waiting, status_of, waiting_after, without

logger = structlog.get_logger(__name__)

_PAUSED = re.compile(rb'"type":"(tasks_)?paused"')
_READ_TIMEOUT_S = 2.0
_LOG_READ_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class StoredRun:
    """What is stored of a run. `queued`: its request, until a planner has opened the run. The rest is of its log.

    `started`: the record that began it; None while it waits for its turn in a session, or was cancelled before.
    """

    run_id: str
    queued: RunRequested | None
    first: Record | None = None
    last: Record | None = None
    first_sequence: int = 0
    last_sequence: int = 0
    started: Record | None = None
    waiting: Waiting = field(default_factory=Waiting)
    """What it waits for. Empty while no pause can be open."""

    @property
    def pauses(self) -> list[OpenPause]:
        """Its open pauses, as people see them."""
        return self.waiting.views(self.run_id)

    @property
    def has_ended(self) -> bool:
        """Whether its log is complete."""
        return self.last is not None and self.last.events[-1].type in TERMINAL

    @property
    def waits_for_planner(self) -> bool:
        """Whether no planner has opened it."""
        return self.first is None

    @property
    def waits_for_turn(self) -> bool:
        """Whether another run of its session has the turn."""
        return self.first is not None and isinstance(self.first.events[0], Queued | Yielded) and self.started is None

    @property
    def session_id(self) -> str:
        """The session that it belongs to."""
        request = self.request()
        return (request.session_id if request else None) or own_session_id(self.run_id)

    def request(self) -> RunRequested | None:
        """Return its request; None when it was cancelled before the request arrived."""
        if self.queued is not None:
            return self.queued
        events = [record.events[0] for record in (self.first, self.started) if record is not None]
        return next((event.request for event in events if isinstance(event, RunStarted | Queued)), None)

    def status(self) -> RunStatus:
        """Return its status, with the payload of an ended run."""
        request, first, last = self.request(), self.first, self.last
        event = last.events[-1] if last else None
        end = event if isinstance(event, Terminal) else None
        paused = event.budget if isinstance(event, Paused) and event.pause_id is None else None
        status = status_of(
            self.run_id,
            request,
            end,
            state="queued" if first is None or self.waits_for_turn else "running",
            waits="waiting" if self.pauses else "paused" if paused is not None else None,
            started_at=self.started.at if self.started else None,
            ended_at=last.at if last and end else None,
        )
        more: dict[str, Any] = {"payload": payload_of(end) if end else None, "pauses": self.pauses, "paused": paused}
        if request is None and first is not None:
            more["requested_at"] = first.at
        return status.model_copy(update=more)


def begins(record: Record) -> bool:
    """Return whether a record is the one that begins a run."""
    return any(isinstance(event, RunStarted) for event in record.events)


def payload_of(end: Terminal) -> FinalPayload:
    """Return the payload of a run's terminal event."""
    if isinstance(end, Done):
        return FinalPayload.model_construct(**{name: getattr(end, name) for name in FinalPayload.model_fields})
    return end.payload


class _Stored(NamedTuple):
    """A message as it is stored. `may_have_pauses`: whether pauses may be open after this record."""

    sequence: int
    data: bytes
    may_have_pauses: bool


Watch = Callable[[bytes], Awaitable[None]]
_Get = Callable[[str, dict[str, Any]], Awaitable[_Stored | None]]


def _visible(caller: Caller, found: StoredRun | None) -> StoredRun:
    request = found.request() if found is not None else None
    if found is None or not caller.may_see(request.user_id if request is not None else None):
        raise NotFound
    return found


class Deletions:
    """Writes and reads deletions."""

    def __init__(self, bus: Bus) -> None:
        self._bucket = Bucket(bus, keys.RUNS_BUCKET, attempts=1)

    async def delete(self, tenant: str, run: str, requested_at: int | None, session_id: str | None = None) -> None:
        """Mark a run as deleted. Raises TryAgain when that may not be stored; repeating it is harmless."""
        deletion = RunDeletion(at=unix_ms(), requested_at=requested_at, session_id=session_id or own_session_id(run))
        try:
            await self._bucket.put(keys.run_deletion(tenant, run), deletion)
        except (Refused, Unsure) as error:
            raise TryAgain("The message bus does not answer.") from error
        logger.info("run_deletion_requested", run_id=run, tenant=tenant)

    async def among(self, tenant: str, runs: Iterable[str]) -> frozenset[str]:
        """Return those of at most 1,024 runs that are deleted. Raises Unavailable."""
        runs_by_key = {keys.run_deletion(tenant, run): run for run in runs}
        return frozenset(runs_by_key[key] for key in await self._bucket.get_many(list(runs_by_key)))


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

    async def get(self, caller: Caller, run: str) -> StoredRun:
        """Return what is stored of a run that the caller may see. Every route about one run passes here.

        Raises NotFound, also for an impossible id, and BusError.
        """
        try:
            return _visible(caller, await self.find(caller.tenant, checked_id(run)))
        except InvalidName as error:
            raise NotFound from error

    async def get_to_change(self, caller: Caller, run: str) -> StoredRun:
        """Return the same of a run that the caller may change. Every route that changes one passes here.

        Raises NotFound, NotAllowed and BusError.
        """
        found = await self.get(caller, run)
        caller.check_change(found.request())
        return found

    async def current(self, caller: Caller, run: str) -> StoredRun:
        """Return what `get` returns, but as the leaders of the streams have it: a replica may lag behind."""
        return _visible(caller, await self._read(caller.tenant, run, self._from_leader))

    async def is_deleted(self, tenant: str, run: str) -> bool:
        """Return whether the run was deleted in the last day. Raises BusError."""
        return bool(await self._deletions.among(tenant, [run]))

    async def is_position_of(self, tenant: str, found: StoredRun, log: int, stream: int) -> bool:
        """Return whether a listener can have reached these sequences of a run's log and stream; 0 is the beginning.

        The sequence of an expired chunk, which cannot be read, counts when it lies within the run. Raises BusError.
        """
        if log and await self.subject_at(subjects.RUNS, log) != subjects.log(tenant, found.run_id):
            return False
        if not stream or (subject := await self.subject_at(subjects.RUNS, stream)) == subjects.stream(
            tenant, found.run_id
        ):
            return True
        if subject is not None or found.last_sequence == 0 or stream < found.first_sequence:
            return False
        if found.has_ended:
            return stream <= found.last_sequence
        return stream <= int((await self._bus.api(f"STREAM.INFO.{subjects.RUNS}", {}))["state"]["last_seq"])

    async def wait_for_result(
        self, caller: Caller, run: str, follower: RunFollower, watch: Watch | None = None
    ) -> RunStatus:
        """Return how an accepted run has ended, with its payload, however long that takes. NATS may be unavailable.

        The status has no payload where the run does nothing but wait for a person. `watch` is given each record on the
        way, some of them again after NATS was away. Raises NotFound for one that was deleted.
        """
        while True:
            last, has_paused = b"", False
            try:
                async with aclosing(follower.records()) as batches:
                    async for records in batches:
                        last = records[-1].data
                        if watch is not None:
                            for each in records:
                                await watch(each.data)
                        has_paused = has_paused or any(_PAUSED.search(record.data) for record in records)
                        if has_paused and (await self._waiting(caller.tenant, run)).is_for_person:
                            return (await self.get(caller, run)).status()
                end = record.events[-1] if (record := parsed(Record, last)) is not None else None
                if isinstance(end, Terminal):
                    ended = status_of(run, None, end, state="running", started_at=None, ended_at=None)
                    return ended.model_copy(update={"payload": payload_of(end)})
                if (status := (await self.get(caller, run)).status()).payload is not None:
                    return status
            except Unavailable:
                pass
            await self._bus.retry_pause(3)
            follower = RunFollower(self._bus, caller.tenant, run)

    async def facts_of(self, tenant: str, run: str) -> list[RunEvent]:
        """Return all events of a run's log. Raises BusError."""
        reader = await self._bus.reader(subjects.RUNS)
        stored = await reader.read(subjects.log(tenant, run), attempts=_LOG_READ_ATTEMPTS)
        return [event for _, data in stored if (record := parsed(Record, data)) is not None for event in record.events]

    async def pause_of_task(self, tenant: str, run: str, pause_id: str) -> OpenPause | None:
        """Return a pause of a task that a run has waited for, also one that is over. Raises BusError."""
        of_tasks = [event for event in await self.facts_of(tenant, run) if isinstance(event, TasksPaused)]
        return next((each for event in of_tasks for each in event.pauses if each.pause_id == pause_id), None)

    async def _read(self, tenant: str, run: str, get: _Get) -> StoredRun | None:
        log = subjects.log(tenant, run)
        stored = await get(subjects.REQUESTS, {"last_by_subj": subjects.request(tenant, run)})
        queued = parsed(RunRequested, stored.data) if stored else None
        last = await get(subjects.RUNS, {"last_by_subj": log})
        if last is None:
            return StoredRun(run, queued) if queued else None
        first = await get(subjects.RUNS, {"seq": 1, "next_by_subj": log})
        if first is None:
            return None  # The log was purged between the two reads.
        begin, end = parsed(Record, first.data), parsed(Record, last.data)
        # A report whose turn went to another run before it began has that in its log first.
        while begin is not None and isinstance(begin.events[0], Yielded) and first.sequence < last.sequence:
            first = await get(subjects.RUNS, {"seq": first.sequence + 1, "next_by_subj": log}) or last
            begin = parsed(Record, first.data)
        if begin is None or end is None:
            return await self._search(run, queued, log)
        started = await self._started(begin, first.sequence, log, get)
        has_pauses = last.may_have_pauses and end.events[-1].type not in TERMINAL
        waiting = await self._waiting(tenant, run) if has_pauses else Waiting()
        return StoredRun(run, queued, begin, end, first.sequence, last.sequence, started, waiting)

    async def _waiting(self, tenant: str, run: str) -> Waiting:
        """Return what a run waits for; the pauses of its tasks as the logs of their runs have them."""
        waiting = waiting_after(await self.facts_of(tenant, run))
        tasks = {each.run_id for pauses in waiting.of_tasks.values() for each in pauses} - {run}
        open_now = {
            each.pause_id: each
            for task in tasks
            for each in waiting_after(await self.facts_of(tenant, task)).views(task)
        }
        for call, pauses in [*waiting.of_tasks.items()]:
            known = [each if each.run_id == run else open_now.get(each.pause_id) for each in pauses]
            waiting.of_tasks[call] = [each for each in known if each is not None]
        waiting.of_tasks = without(waiting.of_tasks)
        return waiting

    async def _started(self, first: Record, sequence: int, log: str, get: _Get) -> Record | None:
        """Return the record that begins the run: the first one, or a later one if something came before its turn."""
        record: Record | None = first
        while record is not None and not begins(record):
            following = await get(subjects.RUNS, {"seq": sequence + 1, "next_by_subj": log})
            if following is None:
                return None
            sequence, record = following.sequence, parsed(Record, following.data)
        return record

    async def _search(self, run: str, queued: RunRequested | None, log: str) -> StoredRun | None:
        """Find the first and the last valid record of a log with invalid ones; a terminal record is the last."""
        found: list[tuple[int, Record]] = []
        for sequence, data in await (await self._bus.reader(subjects.RUNS)).read(log, attempts=_LOG_READ_ATTEMPTS):
            if (record := parsed(Record, data)) is not None:
                found.append((sequence, record))
                if record.events[-1].type in TERMINAL:
                    break
        if not found:
            return StoredRun(run, queued) if queued else None
        (first_sequence, first), (last_sequence, last) = found[0], found[-1]
        started = next((record for _, record in found if begins(record)), None)
        waiting = waiting_after(event for _, record in found for event in record.events)
        return StoredRun(run, queued, first, last, first_sequence, last_sequence, started, waiting)

    async def _direct_get(self, stream: str, query: dict[str, Any]) -> Msg:
        return await self._bus.request(subjects.direct_get(stream), orjson.dumps(query), _READ_TIMEOUT_S)

    async def subject_at(self, stream: str, sequence: int) -> str | None:
        """Return the subject of a stored message; None when there is none with this sequence. Raises BusError."""
        answer = await self._direct_get(stream, {"seq": sequence})
        if (subject := (answer.headers or {}).get("Nats-Subject")) is not None:
            return subject
        try:  # A replica may lag behind.
            asked = await self._bus.api(f"STREAM.MSG.GET.{stream}", {"seq": sequence}, _READ_TIMEOUT_S)
        except Refused as error:
            if error.code in NOT_FOUND:
                return None
            raise
        return str(asked["message"]["subject"])

    async def _from_replica(self, stream: str, query: dict[str, Any]) -> _Stored | None:
        answer = await self._direct_get(stream, query)
        if answer.headers is None or "Nats-Sequence" not in answer.headers:
            return None
        return _Stored(sequence_of(answer), checked(answer).data, PAUSES_HEADER in answer.headers)

    async def _from_leader(self, stream: str, query: dict[str, Any]) -> _Stored | None:
        found = await self._bus.get_from_leader(stream, query, _READ_TIMEOUT_S)
        return None if found is None else _Stored(*found, may_have_pauses=True)
