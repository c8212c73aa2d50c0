"""Which user may publish and subscribe to what on NATS, and in which account. There are no rights but these.

What the four services and tools send and receive is in the tables of `subjects` and `keys`, from which their rights are
made. What a service may do with streams and consumers beside reading is in `_MANAGED`. `of_platform` adds the other
users that each deployment has; `of_tool`, `of_local_tools` and `of_listener` are the users that `runwire credentials`
makes. What is not listed is denied.

Rule 1: rights are lists that do not change while a connection lasts. Nobody has `allow_responses`: it takes precedence
over a denied subject, and lets a caller choose where a service publishes.
Rule 2: only CORE has JetStream. The server itself answers to any reply subject in the account of a stream, so
permissions are no boundary there: tools and listeners are in accounts of their own (docs/operations.md#identities).
Rule 3: a tool may publish below `answer.<its name>.`, so the subject of a reply says which tool sent it. On `hello` and
in the inbox of `tools_operator` all tools may publish: what arrives there is a hint at most.
Rule 4: a stream is read as a whole: NATS does not check the body of a batched read, which names the subjects.

It imports no model, since `runwire up` reads it in a process that stays small.
"""

import re
from dataclasses import dataclass
from typing import Literal

from . import subjects
from .keys import ARTIFACTS_BUCKET, BUCKETS, ENTRIES
from .names import checked_id, checked_tenant, checked_tool
from .subject import PLANNER, SERVICES, TOOL_RUNNER, Subject
from .subjects import KEPT_FOR, SUBJECTS, bucket_stream, bucket_value, direct_get, direct_last, jetstream, replies_to

PROVISIONER, OPERATOR, TOOLS_OPERATOR, RELOADER = "provisioner", "operator", "tools_operator", "reloader"
LOCAL_TOOLS = "local"
"""The user who may serve tools of any name: with `runwire up`, where all processes belong to one person."""
Account = Literal["CORE", "TOOLS", "LISTENERS", "SYS"]

_MANAGED: dict[str, tuple[str, ...]] = {
    PLANNER: (
        *(f"STREAM.PURGE.{stream}" for stream in ("REQUESTS", "INBOX", "RUNS", "CALLS", "TIMERS", "KV_runs")),
        *("STREAM.PURGE.SESSIONS", "STREAM.MSG.DELETE.REQUESTS", "STREAM.MSG.DELETE.INBOX"),
    ),
    TOOL_RUNNER: (
        *("CONSUMER.CREATE.CALLS.*.call.>", "CONSUMER.NAMES.CALLS", "CONSUMER.DELETE.CALLS.*"),
        "STREAM.PURGE.KV_catalogue",
    ),
}
"""Service -> what it deletes and creates in JetStream, as subjects below `$JS.API.`."""
_MICRO_VERBS = ("PING", "INFO", "STATS")
_CALL_VERBS = ("status", "cancel", "rejected", "given")


@dataclass(frozen=True, slots=True)
class Rights:
    """What one user may do in its account. A subscription may name its queue group: `<subject> <group>`."""

    account: Account
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def of_platform() -> dict[str, Rights]:
    """The rights of every user that each deployment has: services, provisioner, operators and reloader."""
    streams = (*KEPT_FOR, *sorted(map(bucket_stream, BUCKETS)))
    provisioned = (f"STREAM.{verb}.{stream}" for verb in ("INFO", "CREATE", "UPDATE") for stream in streams)
    consumers = (f"CONSUMER.CREATE.{row.kept_in}.{row.queue}.{row.all}" for row in subjects.PLANNER_QUEUES)
    return {
        **{service: _of_service(service) for service in SERVICES},
        PROVISIONER: Rights("CORE", tuple(map(jetstream, (*provisioned, *consumers))), (_inbox(PROVISIONER),)),
        OPERATOR: Rights("CORE", (">",), (">",)),
        TOOLS_OPERATOR: Rights("TOOLS", ("$SRV.>",), (_inbox(TOOLS_OPERATOR),)),
        RELOADER: Rights("SYS", ("$SYS.REQ.SERVER.*.RELOAD",), (_inbox(RELOADER),)),
    }


def of_tool(*names: str) -> Rights:
    """The rights of a process that serves these tools: it receives their calls, and answers under their names.

    It may also reply to `nats micro ls` of the user tools_operator. Raises InvalidName.
    """
    publish, subscribe = ["hello.*", _inbox(TOOLS_OPERATOR)], _micro()
    for name in map(checked_tool, names):
        publish.append(f"answer.{name}.>")
        subscribe += [f"tool.{name} {name}", *(f"tool.{name}.{verb}" for verb in _CALL_VERBS)]
        subscribe += _micro_of(name)
    return Rights("TOOLS", tuple(publish), tuple(subscribe))


def of_local_tools() -> Rights:
    """The rights of a process that may serve tools of any name."""
    calls = ("tool.*", *(f"tool.*.{verb}" for verb in _CALL_VERBS))
    publish = ("hello.*", _inbox(TOOLS_OPERATOR), "answer.*.>")
    return Rights("TOOLS", publish, (*_micro(), *calls, *_micro_of("*")))


def of_listener(user: str, tenant: str, run: str | None = None) -> Rights:
    """The rights of a user who receives the live records of a tenant's runs and sessions, or of one run.

    It may also read the last record of an exact log: how the run stands, or how it ended. History with cursors is the
    gateway's. Raises InvalidName.
    """
    runs = checked_tenant(tenant) + (f".{checked_id(run)}" if run else "")
    last = direct_last("RUNS", f"emit.{runs}.log" if run else f"emit.{runs}.*.log")
    sessions = () if run else (f"session.{checked_tenant(tenant)}.>",)
    return Rights("LISTENERS", (last,), (f"run.{runs}.>", *sessions, _inbox(user)))


def _of_service(service: str) -> Rights:
    """What the tables say of a service, with what each service may do: probe streams, and be found."""
    rows = [row for row in (*SUBJECTS, *ENTRIES) if not row.address.startswith("$SRV.")]
    written = [row for row in rows if service in row.writes]
    heard = [row for row in rows if (service in row.reads and not row.kept_in) or service in row.watched_by]
    read = dict.fromkeys(row.kept_in for row in rows if service in row.reads and row.kept_in)
    consumed = dict.fromkeys(
        f"{row.kept_in}.{re.sub(r'.*{.*', '*', row.queue)}"
        for row in rows
        if row.kept_in and row.queue and row.reads[0] == service
    )
    askers = dict.fromkeys(
        asker for row in rows if service in row.reads and row.replies for asker in row.writes if asker in SERVICES
    )
    # The only writer of the bucket of artifacts may write every entry.
    sent = (bucket_value(row.bucket, ">") if row.bucket == ARTIFACTS_BUCKET else _pattern(row) for row in written)
    publish = [*dict.fromkeys(sent), *map(_inbox, (*askers, OPERATOR)), jetstream("STREAM.INFO.*")]
    for stream in read:
        publish += [direct_get(stream), f"{direct_get(stream)}.>", jetstream(f"STREAM.MSG.GET.{stream}")]
    for consumer in consumed:
        publish += [jetstream(f"CONSUMER.{verb}.{consumer}") for verb in ("MSG.NEXT", "INFO")]
        publish += [f"$JS.ACK.{consumer}.>"]
    publish += map(jetstream, _MANAGED.get(service, ()))
    own = [_inbox(service), *_micro(), *_micro_of(f"runwire-{service}")]
    if subjects.live_stream in heard:  # The log and the stream of a run are one subscription.
        own.append(subjects.ALL_LIVE)
        heard = [row for row in heard if row not in {subjects.live_log, subjects.live_stream}]
    return Rights("CORE", tuple(publish), (*own, *(f"{_pattern(row)} {row.queue}".strip() for row in heard)))


def _pattern(row: Subject) -> str:
    return bucket_value(row.bucket, row.all) if row.bucket else row.all


def _micro() -> list[str]:
    """The subjects of questions to all NATS micro services."""
    return [f"$SRV.{verb}" for verb in _MICRO_VERBS]


def _micro_of(name: str) -> list[str]:
    """The subjects of questions to the NATS micro services of a name, and to each instance of them."""
    return [f"$SRV.{verb}.{name}{tail}" for verb in _MICRO_VERBS for tail in ("", ".*")]


def _inbox(user: str) -> str:
    return f"{replies_to(user)}.>"
