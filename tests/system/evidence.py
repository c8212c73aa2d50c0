"""Gather what a session has left behind, for the checker."""

from pathlib import Path
from typing import Any

import nats
import orjson

from contracts import subjects
from services.messaging.connection import Bus
from services.messaging.dead_letters import REASON, SUBJECT
from services.messaging.direct_get import DirectReader
from services.runtime.settings import BusSettings
from tests.system import executions
from tests.system.checker import Evidence, RunEvidence, StoredRecord

QUEUES = (subjects.REQUESTS, subjects.INBOX, subjects.CALLS)


async def connect(nats_url: str) -> Bus:
    """A bus of the test's own."""
    bus = Bus("test", BusSettings(nats_url=nats_url))
    return bus.attach(await nats.connect(**bus.client_options()))


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
    """What was buried: its subject, the reason, its body."""
    reader = await bus.reader(subjects.DEAD)
    info = await bus.api(f"STREAM.INFO.{subjects.DEAD}", {"subjects_filter": subjects.ALL_DEAD})
    found = []
    for subject in info["state"].get("subjects") or {}:
        for message in await reader.messages(subject):
            headers = message.headers or {}
            found.append((headers.get(SUBJECT, ""), headers.get(REASON, ""), message.data))
    return found


async def gather(bus: Bus, runs: list[RunEvidence], ledger_file: Path, idempotent: dict[str, bool]) -> Evidence:
    """Read the logs of these runs, the ledger and the queues."""
    for run in runs:
        run.records = await records(bus, run.run_id)
    return Evidence(runs, executions.read(ledger_file), idempotent, await left(bus))
