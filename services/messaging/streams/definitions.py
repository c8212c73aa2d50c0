"""Every stream, consumer and bucket with its settings. Which subjects a stream keeps is in the table (`subjects`).

The settings implement promises (docs/operations.md lists them): nothing expires during a run, a full queue rejects
instead of dropping, unlimited `max_deliver` leaves no undeliverable message, a large `max_ack_pending` never blocks the
system. So a different setting on the server is an error (`provision`).
"""

from typing import Any

from contracts.wire import keys, subjects
from contracts.wire.limits import MAX_MESSAGE_BYTES

_NS_PER_S = 1_000_000_000
_MIB_BYTES = 1 << 20
_DEDUP_NS = 120 * _NS_PER_S
_MAX_CALL_CONSUMERS = 1000

# Named although they are the server's defaults: nothing may expire or be dropped under a run, so another value is an
# error.
_UNBOUNDED = {"max_age": 0, "max_msgs": -1, "max_bytes": -1}
_QUEUE = {
    **_UNBOUNDED,
    "retention": "workqueue",
    "storage": "file",
    "discard": "new",
    "max_msg_size": MAX_MESSAGE_BYTES,
    "duplicate_window": _DEDUP_NS,
    "allow_direct": True,
    "allow_msg_ttl": True,
}

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
        **_UNBOUNDED,
        "name": subjects.TIMERS,
        "retention": "limits",
        "storage": "file",
        # A stream with schedules cannot refuse (`discard: new`), so it must never be full: no limits.
        "discard": "old",
        "max_msg_size": 65_536,
        "duplicate_window": _DEDUP_NS,
        "allow_direct": True,
        "allow_msg_schedules": True,
        "allow_msg_ttl": True,
        "allow_rollup_hdrs": True,
        "max_consumers": 16,
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
        **_UNBOUNDED,
        "name": subjects.RUNS,
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_msg_size": MAX_MESSAGE_BYTES,
        "duplicate_window": 10 * _NS_PER_S,
        "allow_direct": True,
        "allow_msg_ttl": True,
        "deny_delete": True,
        "max_consumers": 16,
        # Listeners get the copy that exists only once it is stored: subscribers of the stream's own subjects also see
        # refused writes.
        "republish": {"src": subjects.ALL_OF_RUNS, "dest": subjects.LIVE_OF_RUNS},
    },
    {
        **_UNBOUNDED,
        "name": subjects.SESSIONS,
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_msg_size": MAX_MESSAGE_BYTES,
        "duplicate_window": 10 * _NS_PER_S,
        "allow_direct": True,
        "allow_msg_ttl": True,
        "deny_delete": True,
        "max_consumers": 16,
        "republish": {"src": subjects.session_log.all, "dest": subjects.LIVE_OF_SESSIONS},
    },
    {**_QUEUE, "name": subjects.CALLS, "max_consumers": _MAX_CALL_CONSUMERS},
    {
        "name": subjects.DEAD,
        # Whatever follows: no dead letter may be without a place.
        "subjects": [f"{subjects.dead.all.removesuffix('*')}>"],
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "max_age": 30 * 86_400 * _NS_PER_S,
        "max_bytes": 1024 * _MIB_BYTES,
        "duplicate_window": _DEDUP_NS,
        "allow_direct": True,
        "allow_msg_ttl": True,
        "max_consumers": 16,
    },
    {
        "name": subjects.HANDLINGS,
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "max_msgs_per_subject": 1,
        # Longer than any handling; a message that was not started for so long counts as new.
        "max_age": 86_400 * _NS_PER_S,
        "max_msgs": 1_000_000,
        "duplicate_window": _DEDUP_NS,
        "allow_direct": True,
        "allow_msg_ttl": True,
        "max_consumers": 16,
    },
    {
        "name": subjects.HELD,
        "retention": "limits",
        "storage": "file",  # A restarted server keeps no stream in memory, and planners wait for all streams.
        "discard": "old",
        "max_msgs_per_subject": 1,
        "max_age": 60 * _NS_PER_S,
        "duplicate_window": 10 * _NS_PER_S,
        "allow_direct": True,
        "allow_msg_ttl": True,
        "max_consumers": 16,
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
        **_UNBOUNDED,
        "name": subjects.bucket_stream(name),
        "subjects": [subjects.bucket_value(name, ">")],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_msgs_per_subject": 1,
        "max_msg_size": MAX_MESSAGE_BYTES,
        "duplicate_window": 10 * _NS_PER_S,
        "allow_direct": True,
        "allow_msg_ttl": True,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "subject_delete_marker_ttl": _NS_PER_S,
    }


def consumer(name: str, subject: str, ack_wait_s: float, max_ack_pending: int = 50_000) -> dict[str, Any]:
    """Return a durable work queue consumer.

    `max_deliver` is unlimited: the reader counts starts and dead-letters (`dead_letters`).
    """
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


def planner_consumers(ack_wait_s: float) -> list[tuple[str, dict[str, Any]]]:
    """Return the consumers of all planners, each with its stream."""
    return [(row.kept_in, consumer(row.queue, row.all, ack_wait_s)) for row in subjects.PLANNER_QUEUES]
