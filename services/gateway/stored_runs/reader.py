"""Where a run stands, read back from REQUESTS and its log.

Rule 1: REQUESTS first, then the log. A planner opens the log before it takes the request away, so a run is always in
one of them, and an accepted run is never unknown.
Rule 2: direct gets may be answered by a copy that lags behind. So "there is no such run" is said only after asking the
leaders.
Rule 3: what is no record of ours, or no request, counts for nothing: it hides neither the run's beginning nor its end.
"""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from contracts import subjects
from contracts.events import TERMINAL, Done, Paused, RunStarted, Terminal
from contracts.payload import FinalPayload
from contracts.records import Record
from contracts.runs import RunRequested, RunStatus
from services.gateway.errors import NotFound
from services.gateway.stored_runs.deletions import Deletions
from services.messaging.connection import Bus
from services.messaging.direct_get import sequence_of
from services.messaging.errors import Unavailable
from services.shared.run_follower import RunFollower
from services.shared.run_status import status_of

M = TypeVar("M", bound=BaseModel)
_WAIT_S = 2.0

_Stored = tuple[int, bytes]
_Get = Callable[[str, dict[str, Any]], Awaitable[_Stored | None]]


@dataclass(frozen=True, slots=True)
class FoundRun:
    """What is stored of a run: its request while no planner has taken it, and the first and last record of its log."""

    run: str
    waiting: RunRequested | None
    first: Record | None
    last: Record | None
    last_sequence: int
    first_sequence: int = 0

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.last is not None and self.last.events[-1].type in TERMINAL

    def request(self) -> RunRequested | None:
        """What was asked; None when a cancel overtook the request."""
        if self.waiting is not None:
            return self.waiting
        first = self.first.events[0] if self.first else None
        return first.request if isinstance(first, RunStarted) else None

    def status(self) -> RunStatus:
        """Where the run stands."""
        request, first, last = self.request(), self.first, self.last
        event = last.events[-1] if last else None
        end = event if isinstance(event, Terminal) else None
        status = status_of(
            self.run,
            request,
            end,
            is_open=first is not None,
            started_at=first.at if first and isinstance(first.events[0], RunStarted) else None,
            ended_at=last.at if last and end else None,
        )
        more: dict[str, Any] = {"payload": payload_of(end) if end else None}
        if isinstance(event, Paused):
            more["paused"] = event.budget
        if request is None and first is not None:
            more["requested_at"] = first.at
        return status.model_copy(update=more)


def payload_of(end: Terminal) -> FinalPayload:
    """The one shape in which every run ends."""
    if isinstance(end, Done):
        return FinalPayload.model_construct(**{name: getattr(end, name) for name in FinalPayload.model_fields})
    return end.payload


def _parsed(model: type[M], data: bytes) -> M | None:
    try:
        return model.model_validate_json(data)
    except (ValidationError, RecursionError):
        return None


class Runs:
    """Reads runs."""

    def __init__(self, bus: Bus, deletions: Deletions) -> None:
        self._bus = bus
        self._deletions = deletions

    async def find(self, tenant: str, run: str) -> FoundRun | None:
        """Return what is stored of a run, None for one that never was, was deleted or purged.

        Raises BusError and InvalidName.
        """
        if await self.is_deleted(tenant, run):
            return None
        return await self._look(tenant, run, self._direct) or await self._look(tenant, run, self._leader)

    async def has_given(self, tenant: str, found: FoundRun, log: int, stream: int) -> bool:
        """Whether a listener can have been given this position of a run: both are sequences of its own messages, or 0 for none.

        A token that has expired cannot be looked at any more: it counts if it lies within the run. Raises BusError.
        """
        if log and await self._subject_at(log) != subjects.log(tenant, found.run):
            return False
        if not stream or (at := await self._subject_at(stream)) == subjects.stream(tenant, found.run):
            return True
        if at is not None or found.last_sequence == 0 or stream < found.first_sequence:
            return False
        last = (
            found.last_sequence
            if found.ended
            else int((await self._bus.api(f"STREAM.INFO.{subjects.RUNS}", {}))["state"]["last_seq"])
        )
        return stream <= last

    async def _subject_at(self, sequence: int) -> str | None:
        """The subject of a stored message; None for one that is gone, or never was."""
        answer = await self._bus.request(
            f"$JS.API.DIRECT.GET.{subjects.RUNS}", orjson.dumps({"seq": sequence}), _WAIT_S
        )
        return (answer.headers or {}).get("Nats-Subject")

    async def is_deleted(self, tenant: str, run: str) -> bool:
        """Whether somebody has deleted the run, not long ago. Raises BusError."""
        return bool(await self._deletions.among(tenant, [run]))

    async def _look(self, tenant: str, run: str, get: _Get) -> FoundRun | None:
        log = subjects.log(tenant, run)
        stored = await get(subjects.REQUESTS, {"last_by_subj": subjects.request(tenant, run)})
        waiting = _parsed(RunRequested, stored[1]) if stored else None
        last = await get(subjects.RUNS, {"last_by_subj": log})
        if last is None:
            return FoundRun(run, waiting, None, None, 0) if waiting else None
        first = await get(subjects.RUNS, {"seq": 1, "next_by_subj": log})
        if first is None:
            return None  # Purged this very moment.
        begin, end = _parsed(Record, first[1]), _parsed(Record, last[1])
        if begin is None or end is None:
            return await self._search(run, waiting, log)
        return FoundRun(run, waiting, begin, end, last[0], first[0])

    async def _search(self, run: str, waiting: RunRequested | None, log: str) -> FoundRun | None:
        """Look among what is no record for the first and the last one that is; the terminal one is the last."""
        found: list[tuple[int, Record]] = []
        for sequence, data in await (await self._bus.reader(subjects.RUNS)).read(log, attempts=3):
            if (record := _parsed(Record, data)) is not None:
                found.append((sequence, record))
                if record.events[-1].type in TERMINAL:
                    break
        if not found:
            return FoundRun(run, waiting, None, None, 0) if waiting else None
        return FoundRun(run, waiting, found[0][1], found[-1][1], found[-1][0], found[0][0])

    async def _direct(self, stream: str, what: dict[str, Any]) -> _Stored | None:
        answer = await self._bus.request(f"$JS.API.DIRECT.GET.{stream}", orjson.dumps(what), _WAIT_S)
        if answer.headers is None or "Nats-Sequence" not in answer.headers:
            return None
        return sequence_of(answer), answer.data

    async def _leader(self, stream: str, what: dict[str, Any]) -> _Stored | None:
        return await self._bus.get_from_leader(stream, what, _WAIT_S)

    async def result(self, tenant: str, run: str) -> FinalPayload:
        """Return the result of an accepted run once it has ended, however long that takes.

        Raises NotFound for one that was deleted.
        """
        while True:
            try:
                async with aclosing(RunFollower(self._bus, tenant, run).records()) as records:
                    async for record in records:
                        if record is not None and record.terminal:
                            break
                found = await self.find(tenant, run)
                if found is None:
                    raise NotFound
                if (payload := found.status().payload) is not None:
                    return payload
            except Unavailable:
                pass  # NATS is unavailable: the run waits, and so does its caller.
            await self._bus.retry_pause(3)
