"""Every stream, consumer and bucket with its settings.

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

STREAMS: tuple[dict[str, Any], ...] = (
    {
        **_QUEUE,
        "name": subjects.REQUESTS,
        "subjects": [subjects.ALL_REQUESTS],
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
        "subjects": [subjects.ALL_TIMERS, subjects.ALL_DUE],
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
        "subjects": [subjects.ALL_INBOX, subjects.ALL_CONTROL, subjects.ALL_SESSION_INBOX],
        "max_consumers": 16,
        # Schedules cannot target another stream, so INBOX takes what is due from TIMERS. A change of this source
        # loses nothing. NATS may read it from its beginning: what has fired within `Nats-Schedule-TTL` then arrives
        # again, and changes nothing.
        "sources": [
            {
                "name": subjects.TIMERS,
                "subject_transforms": [{"src": subjects.ALL_DUE, "dest": subjects.DUE_IN_CONTROL}],
            }
        ],
    },
    {
        **_UNBOUNDED,
        "name": subjects.RUNS,
        "subjects": [subjects.ALL_LOGS, subjects.ALL_STREAMS, subjects.ALL_CONTEXTS],
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
        "subjects": [subjects.ALL_SESSION_LOGS],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_msg_size": MAX_MESSAGE_BYTES,
        "duplicate_window": 10 * _NS_PER_S,
        "allow_direct": True,
        "allow_msg_ttl": True,
        "deny_delete": True,
        "max_consumers": 16,
        "republish": {"src": subjects.ALL_SESSION_LOGS, "dest": subjects.LIVE_OF_SESSIONS},
    },
    {**_QUEUE, "name": subjects.CALLS, "subjects": [subjects.ALL_CALLS], "max_consumers": _MAX_CALL_CONSUMERS},
    {
        "name": subjects.DEAD,
        "subjects": [subjects.ALL_DEAD],
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
        "subjects": [subjects.ALL_HANDLINGS],
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
)

BUCKETS: tuple[str, ...] = (keys.CATALOGUE_BUCKET, keys.RUNS_BUCKET, keys.ARTIFACTS_BUCKET)

PLANNER_REQUESTS, PLANNER_INBOX, PLANNER_CONTROL = "planner", "planner", "planner_control"
PLANNER_SESSION = "planner_session"


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
    return [
        (subjects.REQUESTS, consumer(PLANNER_REQUESTS, subjects.ALL_REQUESTS, ack_wait_s)),
        (subjects.INBOX, consumer(PLANNER_INBOX, subjects.ALL_INBOX, ack_wait_s)),
        (subjects.INBOX, consumer(PLANNER_CONTROL, subjects.ALL_CONTROL, ack_wait_s)),
        (subjects.INBOX, consumer(PLANNER_SESSION, subjects.ALL_SESSION_INBOX, ack_wait_s)),
    ]
