"""Create the streams, buckets and consumers that are missing, and check those that exist."""

import asyncio
from functools import partial
from typing import Any

import structlog

from contracts.wire import subjects
from services.messaging.connection import Bus
from services.messaging.errors import NOT_FOUND, Misconfigured, Refused, Unavailable
from services.messaging.streams.definitions import BUCKETS, STREAMS, bucket, planner_consumers

logger = structlog.get_logger(__name__)

_MIN_VERSION = (2, 12)
"""The first with timers (scheduled messages) and batches that are stored whole."""
_MIN_PAYLOAD = 8 << 20


async def provision(bus: Bus) -> None:
    """Create what is missing, update what differs, and check the rest. It may be done at any time, also at once.

    Raises Misconfigured when the server does not do, or something exists with settings that cannot be changed in place.
    Waits while JetStream is unavailable.
    """
    if unfit := _unfit(bus):
        raise Misconfigured("; ".join(unfit))
    consumers = planner_consumers(bus.settings.ack_wait_s)
    for config in _streams():
        wanted = {**config, "num_replicas": bus.settings.replicas}
        await bus.until_answered(partial(_ensure_stream, bus, config["name"], wanted))
        for consumer in [each for stream, each in consumers if stream == config["name"]]:
            await ensure_consumer(bus, config["name"], consumer)


async def missing(bus: Bus) -> list[str]:
    """Return what the server, its streams and buckets lack that this version needs, as sentences. Raises Unavailable.

    Subjects that a newer version has added do no harm.
    """
    found = await asyncio.gather(*map(partial(_missing, bus), _streams()))
    return _unfit(bus) + [problem for each in found for problem in each]


def _unfit(bus: Bus) -> list[str]:
    version, found = bus.nc.connected_server_version, []
    if (version.major, version.minor) < _MIN_VERSION:
        needed = ".".join(map(str, _MIN_VERSION))
        found.append(f"nats-server {version.major}.{version.minor} is too old: {needed} or later is needed")
    if bus.nc.max_payload < _MIN_PAYLOAD:
        found.append(f"max_payload of NATS is {bus.nc.max_payload:,} bytes: set it to 8MB")
    return found


async def _missing(bus: Bus, config: dict[str, Any]) -> list[str]:
    name = config["name"]
    try:
        found = (await bus.api(f"STREAM.INFO.{name}", {}))["config"]
    except Refused as error:
        return [f"stream {name}: {error.text}"]
    known = {*config["subjects"]} & {*found.get("subjects", [])}
    wrong = differing({**config, "subjects": sorted(config["subjects"])}, {**found, "subjects": sorted(known)})
    return [f"stream {name}: {key} is {is_!r}, needs {needs!r}" for key, (needs, is_) in wrong.items()]


def _streams() -> list[dict[str, Any]]:
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
    """Return the settings of `wanted` that differ on the server: name -> (wanted, found).

    A false or zero setting may be absent.
    """
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
