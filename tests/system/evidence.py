"""Gather what a session has left behind, for the checker."""

import math
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import orjson

from contracts.wire import keys, subjects
from contracts.wire.rights import OPERATOR
from services.messaging.connection import Bus
from services.messaging.dead_letters import REASON, SUBJECT
from services.messaging.kv import Bucket
from services.messaging.reads import DirectReader
from services.runtime.settings import BusSettings
from tests.support import buses
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until
from tests.system import executions
from tests.system.traces import TERMINAL, Evidence, OpenRun, RunEvidence, StoredRecord

QUEUES = (subjects.REQUESTS, subjects.INBOX, subjects.CALLS)


def connected(server: NatsServer) -> AbstractAsyncContextManager[Bus]:
    """A bus of the test's own. The operator may do everything but serve tools."""
    return buses.connected(server.url, OPERATOR, BusSettings(**server.settings(OPERATOR)))


async def records(bus: Bus, run: str, tenant: str = subjects.DEFAULT_TENANT) -> list[StoredRecord]:
    """Everything that is stored of a run, in the order of storage."""
    reader = await bus.reader(subjects.RUNS)
    found = [
        *await _read(reader, "log", subjects.log(tenant, run)),
        *await _read(reader, "stream", subjects.stream(tenant, run)),
    ]
    return sorted(found, key=lambda record: record.sequence)


async def _read(reader: DirectReader, kind: str, subject: str) -> list[StoredRecord]:
    parsed = [(sequence, _parsed(data)) for sequence, data in await reader.read(subject)]
    return [StoredRecord(sequence, kind, body["at"] / 1000, body["events"]) for sequence, body in parsed]


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        body: dict[str, Any] = orjson.loads(data)
        return {"at": float(body["at"]), "events": list(body["events"])}
    except (ValueError, KeyError, TypeError):
        return {"at": 0.0, "events": []}  # Poison that a test wrote.


async def left(bus: Bus) -> dict[str, int]:
    """How many messages wait in the work queues."""
    return {queue: (await bus.api(f"STREAM.INFO.{queue}", {}))["state"]["messages"] for queue in QUEUES}


async def drained(bus: Bus, timeout: float = 30) -> None:
    """Return once every message is acknowledged. Raises AssertionError."""

    async def empty() -> bool:
        return not any((await left(bus)).values())

    await wait_until(empty, timeout=timeout, what="the work queues are empty")


async def consumers(bus: Bus) -> list[str]:
    """Where every work queue stands, in words: for finding out why a run hangs."""
    lines = []
    for queue in QUEUES:
        answer = await bus.api(f"CONSUMER.LIST.{queue}", {})
        for each in answer["consumers"]:
            shown = {name: each[name] for name in ("num_pending", "num_ack_pending", "num_redelivered", "num_waiting")}
            lines.append(
                f"{queue}/{each['name']}: {shown} delivered {each['delivered']} acknowledged {each['ack_floor']}"
            )
    return lines


async def dead(bus: Bus) -> list[tuple[str, str, bytes]]:
    """What was dead-lettered: its subject, the reason, its body."""
    reader = await bus.reader(subjects.DEAD)
    info = await bus.api(f"STREAM.INFO.{subjects.DEAD}", {"subjects_filter": subjects.dead.all})
    found = []
    for subject in info["state"].get("subjects") or {}:
        for message in await reader.messages(subject):
            headers = message.headers or {}
            found.append((headers.get(SUBJECT, ""), headers.get(REASON, ""), message.data))
    return found


async def gather(bus: Bus, found: Evidence, ledger: Path) -> None:
    """Read what is left: the logs of its runs and sessions, the ledger and the queues."""
    for run in found.runs:
        run.records = await records(bus, run.run_id)
        run.in_index = await _status_in_index(bus, run)
        run.timers = await _timers(bus, run.run_id)
    found.sessions = {session: await session_records(bus, session) for session in sorted({*found.session_of.values()})}
    found.executions, found.left = executions.read(ledger), await left(bus)


async def session_records(bus: Bus, session_id: str) -> list[StoredRecord]:
    """The log of a session, in the order of storage."""
    subject = subjects.session_log(subjects.DEFAULT_TENANT, keys.session_key(session_id))
    return await _read(await bus.reader(subjects.SESSIONS), "session", subject)


async def open_run_of(bus: Bus, run: RunEvidence) -> OpenRun | None:
    """What others find of a run; None until its request is acknowledged, and once it ends or its time is over.

    Raises BusError.
    """
    where = (subjects.DEFAULT_TENANT, run.run_id)
    if await bus.get_from_leader(subjects.REQUESTS, {"last_by_subj": subjects.request(*where)}) is not None:
        return None
    timer = await bus.get_from_leader(subjects.TIMERS, {"last_by_subj": subjects.timer(*where, "deadline")})
    # The index before the log: a run that has no entry and goes on after that had none while it was open.
    run.records = run.records or await records(bus, run.run_id)
    status = await _status_in_index(bus, run)
    run.records = await records(bus, run.run_id)
    events = [event["type"] for event in run.log]
    if not events or {"stopping", *TERMINAL} & {*events} or _deadline_of(run) < time.time():
        return None
    return OpenRun(run.run_id, is_in_index=status != "", has_timer=timer is not None)


def _deadline_of(run: RunEvidence) -> float:
    """The deadline that the run began with, Unix seconds. Once it has passed, its timer may be on its way."""
    started = next(iter(run.of("run_started")), {})
    return float(started.get("deadline_at") or math.inf) / 1000


async def _status_in_index(bus: Bus, run: RunEvidence) -> str:
    started = next(iter(run.of("run_started")), None)
    if started is None:
        return ""
    key = keys.run_key(subjects.DEFAULT_TENANT, started["request"]["requested_at"], run.run_id)
    entry = await Bucket(bus, keys.RUNS_BUCKET).get_from_leader(key)
    return str(orjson.loads(entry.data)["status"]) if entry.data else ""


async def _timers(bus: Bus, run: str) -> int:
    pattern = subjects.timer.pattern(tenant=subjects.DEFAULT_TENANT, run=run)
    answer = await bus.api(f"STREAM.INFO.{subjects.TIMERS}", {"subjects_filter": pattern})
    return len(answer["state"].get("subjects") or {})
