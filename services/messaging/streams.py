"""Every stream, consumer and bucket with its settings: what is missing is created, and what exists is checked.

Which subjects a stream keeps is in the table (`subjects`). The settings implement promises (docs/operations.md lists
them): nothing expires during a run, a full queue rejects instead of dropping, unlimited `max_deliver` leaves no
undeliverable message, a large `max_ack_pending` never blocks the system. So a different setting on the server is an
error.
"""

import asyncio
from functools import partial
from typing import Any

import structlog

from contracts.wire import keys, subjects
from contracts.wire.base import MAX_MESSAGE_BYTES
from services.messaging.connection import Bus
from services.messaging.errors import NOT_FOUND, Misconfigured, Refused, Unavailable

logger = structlog.get_logger(__name__)

_MIN_VERSION = (2, 12)
"""The first with timers (scheduled messages) and batches that are stored whole."""
_MIN_PAYLOAD_BYTES = 8 << 20
_NS_PER_S = 1_000_000_000
_MIB_BYTES = 1 << 20
_DEDUP_NS = 120 * _NS_PER_S
_MAX_CALL_CONSUMERS = 1000

_STORED = {"storage": "file", "duplicate_window": _DEDUP_NS, "allow_direct": True, "allow_msg_ttl": True}
"""A restarted server keeps no stream in memory, and services wait for all streams."""
# Named although they are the server's defaults: nothing may expire or be dropped under a run, so another value is an
# error.
_UNBOUNDED = {"max_age": 0, "max_msgs": -1, "max_bytes": -1}
_REFUSING = {**_STORED, **_UNBOUNDED, "discard": "new", "max_msg_size": MAX_MESSAGE_BYTES}
_QUEUE = {**_REFUSING, "retention": "workqueue"}
_VALUES = {**_REFUSING, "retention": "limits", "duplicate_window": 10 * _NS_PER_S, "deny_delete": True}
_LOGS = {**_VALUES, "max_consumers": 16}
_DROPPING = {**_STORED, "retention": "limits", "discard": "old", "max_consumers": 16}

_STREAMS: tuple[dict[str, Any], ...] = (
    {
        **_QUEUE,
        "name": subjects.REQUESTS,
        # A full queue is a 503 at the gateway: the one place with back-pressure.
        "max_msgs": 200_000,
        "max_bytes": 2048 * _MIB_BYTES,
        "max_msgs_per_subject": 1,
        "discard_new_per_subject": True,
        "max_consumers": 16,
    },
    {
        # A stream with schedules cannot refuse (`discard: new`), so it must never be full: no limits.
        **_DROPPING,
        **_UNBOUNDED,
        "name": subjects.TIMERS,
        "max_msg_size": 65_536,
        "allow_msg_schedules": True,
        "allow_rollup_hdrs": True,
    },
    {
        **_QUEUE,
        "name": subjects.INBOX,
        "max_consumers": 16,
        # Schedules cannot target another stream, so INBOX takes what is due from TIMERS. A change of this source
        # loses nothing. NATS may read it from its beginning: what has fired within `Nats-Schedule-TTL` then arrives
        # again, and changes nothing. Without `opt_start_seq` a server that has taken nothing yet, and finds TIMERS
        # some seconds late at its start, would leave out what has fired meanwhile.
        "sources": [
            {
                "name": subjects.TIMERS,
                "opt_start_seq": 1,
                "subject_transforms": [{"src": subjects.due.all, "dest": subjects.DUE_IN_CONTROL}],
            }
        ],
    },
    {
        **_LOGS,
        "name": subjects.RUNS,
        # Listeners get the copy that exists only once it is stored: subscribers of the stream's own subjects also see
        # refused writes.
        "republish": {"src": subjects.ALL_OF_RUNS, "dest": subjects.LIVE_OF_RUNS},
    },
    {
        **_LOGS,
        "name": subjects.SESSIONS,
        "republish": {"src": subjects.session_log.all, "dest": subjects.LIVE_OF_SESSIONS},
    },
    {**_QUEUE, "name": subjects.CALLS, "max_consumers": _MAX_CALL_CONSUMERS},
    {
        **_DROPPING,
        "name": subjects.DEAD,
        # Whatever follows: no dead letter may be without a place.
        "subjects": [f"{subjects.dead.all.removesuffix('*')}>"],
        "max_age": 30 * 86_400 * _NS_PER_S,
        "max_bytes": 1024 * _MIB_BYTES,
    },
    {
        **_DROPPING,
        "name": subjects.HANDLINGS,
        "max_msgs_per_subject": 1,
        # Longer than any handling; a message that was not started for so long counts as new.
        "max_age": 86_400 * _NS_PER_S,
        "max_msgs": 1_000_000,
    },
    {
        **_DROPPING,
        "name": subjects.HELD,
        "max_msgs_per_subject": 1,
        "max_age": 60 * _NS_PER_S,
        "duplicate_window": 10 * _NS_PER_S,
    },
)

STREAMS: tuple[dict[str, Any], ...] = tuple(
    {"subjects": [row.all for row in subjects.SUBJECTS if row.kept_in == each["name"]], **each} for each in _STREAMS
)
BUCKETS = keys.BUCKETS
PLANNER_REQUESTS, PLANNER_INBOX, PLANNER_CONTROL, PLANNER_SESSION = (row.queue for row in subjects.PLANNER_QUEUES)


def bucket(name: str) -> dict[str, Any]:
    """Return the stream of a KV bucket: the newest value per key; single keys may expire."""
    return {
        **_VALUES,
        "name": subjects.bucket_stream(name),
        "subjects": [subjects.bucket_value(name, ">")],
        "max_msgs_per_subject": 1,
        "allow_rollup_hdrs": True,
        "subject_delete_marker_ttl": _NS_PER_S,
    }


def consumer(name: str, subject: str, ack_wait_s: float, max_ack_pending: int = 50_000) -> dict[str, Any]:
    """Return a durable work queue consumer. `max_deliver` is unlimited: the reader counts starts (`dead_letters`)."""
    return {
        "durable_name": name,
        "name": name,
        "filter_subject": subject,
        "ack_policy": "explicit",
        "deliver_policy": "all",
        "ack_wait": int(ack_wait_s * _NS_PER_S),
        "max_deliver": -1,
        "max_ack_pending": max_ack_pending,
        "max_waiting": 512,
    }


async def provision(bus: Bus) -> None:
    """Create what is missing, update what differs, and check the rest. It may be done at any time, also at once.

    Raises Misconfigured when the server does not do, or something exists with settings that cannot be changed in place.
    Waits while JetStream is unavailable.
    """
    if unfit := _unfit(bus):
        raise Misconfigured("; ".join(unfit))
    for config in _with_buckets():
        wanted = {**config, "num_replicas": bus.settings.replicas}
        await bus.until_answered(partial(_ensure_stream, bus, config["name"], wanted))
        for queue in [row for row in subjects.PLANNER_QUEUES if row.kept_in == config["name"]]:
            await ensure_consumer(bus, queue.kept_in, consumer(queue.queue, queue.all, bus.settings.ack_wait_s))


async def missing(bus: Bus) -> list[str]:
    """Return what the server, its streams and buckets lack that this version needs, as sentences. Raises Unavailable.

    Subjects that a newer version has added do no harm.
    """
    found = await asyncio.gather(*map(partial(_missing_of, bus), _with_buckets()))
    return _unfit(bus) + [problem for each in found for problem in each]


def _unfit(bus: Bus) -> list[str]:
    version, found = bus.nc.connected_server_version, []
    if (version.major, version.minor) < _MIN_VERSION:
        needed = ".".join(map(str, _MIN_VERSION))
        found.append(f"nats-server {version.major}.{version.minor} is too old: {needed} or later is needed")
    if bus.nc.max_payload < _MIN_PAYLOAD_BYTES:
        found.append(f"max_payload of NATS is {bus.nc.max_payload:,} bytes: set it to 8MB")
    return found


async def _missing_of(bus: Bus, config: dict[str, Any]) -> list[str]:
    name = config["name"]
    try:
        found = (await bus.api(f"STREAM.INFO.{name}", {}))["config"]
    except Refused as error:
        return [f"stream {name}: {error.text}"]
    known = {*config["subjects"]} & {*found.get("subjects", [])}
    wrong = differing({**config, "subjects": sorted(config["subjects"])}, {**found, "subjects": sorted(known)})
    return [f"stream {name}: {key} is {is_!r}, needs {needs!r}" for key, (needs, is_) in wrong.items()]


def _with_buckets() -> list[dict[str, Any]]:
    """Return the streams, those of buckets included, each with its subject of probes."""
    configs = [*STREAMS, *map(bucket, BUCKETS)]
    return [{**each, "subjects": [*each["subjects"], subjects.probe(each["name"])]} for each in configs]


async def ensure_consumer(bus: Bus, stream: str, config: dict[str, Any]) -> None:
    """Create or update one durable consumer. Raises Misconfigured.

    Its limit of messages in progress can always be changed, and another process may have set another one since.
    """
    body = {"stream_name": stream, "config": config}
    subject = f"CONSUMER.CREATE.{stream}.{config['name']}.{config['filter_subject']}"
    try:
        answer = await bus.until_answered(lambda: bus.api(subject, body))
    except Refused as error:
        raise Misconfigured(f"consumer {config['name']} on {stream}: {error.text}") from error
    fixed = {key: value for key, value in config.items() if key != "max_ack_pending"}
    _compare(f"consumer {config['name']} on {stream}", fixed, answer["config"])


async def _ensure_stream(bus: Bus, name: str, config: dict[str, Any]) -> None:
    try:
        answer = await bus.api(f"STREAM.INFO.{name}", {})
    except Unavailable as error:
        logger.info("jetstream_awaited", stream=name, reason=str(error))
        raise
    except Refused as error:
        if error.code not in NOT_FOUND:
            raise Unavailable(error.text) from error
        answer = await _apply(bus, f"STREAM.CREATE.{name}", name, config)
        logger.info("stream_created", stream=name)
    if differing(config, answer["config"]):
        answer = await _apply(bus, f"STREAM.UPDATE.{name}", name, config)
        logger.warning("stream_updated", stream=name)
    _compare(f"stream {name}", config, answer["config"])


async def _apply(bus: Bus, subject: str, name: str, config: dict[str, Any]) -> dict[str, Any]:
    try:
        return await bus.api(subject, config)
    except Refused as error:
        raise Misconfigured(f"stream {name}: {error.text} ({error.code})") from error


def differing(wanted: dict[str, Any], found: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ on the server: name -> (wanted, found). A false or zero one may be absent."""
    return {key: (value, found.get(key)) for key, value in wanted.items() if not _same(value, found.get(key))}


def _same(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, dict) and isinstance(found, dict):
        return not differing(wanted, found)
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(_same(w, f) for w, f in zip(wanted, found, strict=True))
    return bool(wanted == found) or (not wanted and not found)


def _compare(what: str, wanted: dict[str, Any], found: dict[str, Any]) -> None:
    wrong = differing(wanted, found)
    if wrong:
        details = ", ".join(f"{key} is {is_!r}, needs {needs!r}" for key, (needs, is_) in wrong.items())
        raise Misconfigured(f"{what}: {details}. Change it on the server, or delete it when no run is open.")
