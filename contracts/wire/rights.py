"""Which user may publish and subscribe to what on NATS, and in which account. There are no rights but these.

How to read it: the tables `_SENT`, `_RECEIVED`, `_ANSWERED`, `_READ`, `_CONSUMED` and `_MANAGED` are the four services.
`of_platform` adds the other users that each deployment has; `of_tool`, `of_local_tools` and `of_listener` are the users
that `runwire credentials` makes. What is not listed is denied.

Rule 1: rights are lists that do not change while a connection lasts. Nobody has `allow_responses`: it takes precedence
over a denied subject, and lets a caller choose where a service publishes.
Rule 2: only CORE has JetStream. The server itself answers to any reply subject in the account of a stream, so
permissions are no boundary there: tools and listeners are in accounts of their own (docs/operations.md#identities).
Rule 3: a tool may publish below `answer.<its name>.`, so the subject of a reply says which tool sent it. On `hello` and
in the inbox of `tools_operator` all tools may publish: what arrives there is a hint at most.
Rule 4: a service sends and receives what `channels` says; a test compares.

It imports no model, since `runwire up` reads it in a process that stays small.
"""

from dataclasses import dataclass
from typing import Literal

from .names import checked_id, checked_tenant, checked_tool
from .subjects import direct_get, direct_last, jetstream, replies_to

GATEWAY, PLANNER, TOOL_RUNNER, STORE = "gateway", "planner", "tool_runner", "artifact_store"
PROVISIONER, OPERATOR, TOOLS_OPERATOR, RELOADER = "provisioner", "operator", "tools_operator", "reloader"
LOCAL_TOOLS = "local"
"""The user who may serve tools of any name: with `runwire up`, where all processes belong to one person."""
Account = Literal["CORE", "TOOLS", "LISTENERS", "SYS"]

_ARTIFACTS = ("artifact.put", "artifact.open", "artifact.chunk.*", "artifact.get", "artifact.head", "artifact.delete")
_SENT: dict[str, tuple[str, ...]] = {
    GATEWAY: (
        *("request.*.*", "control.*.*.*", "$KV.runs.deleted.*.*"),  # what people want of runs
        *("$KV.runs.schedule.*.*", "$KV.runs.webhook.*.*"),  # of later runs
        "session_inbox.*.*.*",  # and of sessions
        *(*_ARTIFACTS, "artifact.list"),
    ),
    PLANNER: (
        *("emit.*.*.log", "emit.*.*.stream", "context.*.*"),  # records of runs
        *("call.*.*.*", "direct.*.call", "direct.*.status", "tool.*.cancel"),  # calls of tools
        *("inbox.*.*.*", "control.*.*.*", "timer.*.*.*"),  # messages to runs, now and later
        *("emit.*.*.session", "session_inbox.*.*.*", "request.*.*"),  # sessions, and runs that no caller requests
        "$KV.runs.schedule.*.*",  # when schedules fire next
        *("$KV.runs.*.*", "$KV.runs.session.*.*", "$KV.runs.deleted.*.*"),  # the index of runs and sessions
        "$KV.runs.spent.*.*.*.*",  # what runs have spent for their API keys
        "$KV.catalogue.model.*",  # which models there are
        *("dead.*", "handling.*.*"),  # poison
        *(*_ARTIFACTS, "artifact.list"),
    ),
    TOOL_RUNNER: (
        *("tool.*", "tool.*.status", "tool.*.cancel", "tool.*.rejected"),  # to tools
        *("discover.PING", "discover.INFO.*", "discover.PING.*.*"),  # which tools are there
        *(f"$KV.catalogue.{entry}.*" for entry in ("tool", "spec", "refused", "accepted")),
        *("inbox.*.*.*", "emit.*.*.stream", "direct.here"),  # outcomes, progress, announcement
        *("dead.*", "handling.*.*"),  # poison
        *(*_ARTIFACTS, "artifact.assemble"),
    ),
    STORE: ("$KV.artifacts.>",),
}
"""Service -> the subjects of the product on which it publishes."""
_RECEIVED: dict[str, tuple[str, ...]] = {
    GATEWAY: ("run.*.*.*", "session.*.*.log", "$KV.catalogue.tool.*", "$KV.runs.spent.*.*.*.*"),
    PLANNER: ("run.*.*.log", "direct.here", "$KV.catalogue.tool.*", "$KV.runs.spent.*.*.*.*"),
    TOOL_RUNNER: (
        *("answer.*.*.*", "hello.*", "direct.*.call", "direct.*.status", "direct.here"),
        *("run.*.*.log", "$KV.catalogue.tool.*", "$KV.catalogue.accepted.*"),
        f"check.tool {TOOL_RUNNER}",  # what operators ask
    ),
    STORE: (
        *(f"artifact.{verb} artifact_store" for verb in ("put", "open", "get", "head", "list", "delete")),
        *("artifact.assemble artifact_store", "artifact.chunk.*"),
    ),
}
"""Service -> what it subscribes to; what is stored in a stream is read instead. `<subject> <queue group>`."""
_ANSWERED = {TOOL_RUNNER: (PLANNER,), STORE: (GATEWAY, PLANNER, TOOL_RUNNER)}
"""Service -> the services to whose inboxes it replies."""
_READ: dict[str, tuple[str, ...]] = {
    GATEWAY: ("REQUESTS", "RUNS", "SESSIONS", "KV_runs", "KV_catalogue"),
    PLANNER: ("REQUESTS", "INBOX", "RUNS", "SESSIONS", "HANDLINGS", "KV_runs", "KV_catalogue"),
    TOOL_RUNNER: ("INBOX", "RUNS", "CALLS", "HANDLINGS", "KV_catalogue"),
    STORE: ("REQUESTS", "RUNS", "KV_artifacts"),
}
"""Service -> the streams that it reads, each as a whole: NATS does not check the body of a batched read, which names
the subjects."""
_CONSUMED: dict[str, tuple[str, ...]] = {
    PLANNER: ("REQUESTS.planner", "INBOX.planner", "INBOX.planner_control", "INBOX.planner_session"),
    TOOL_RUNNER: ("CALLS.*",),
}
"""Service -> the consumers from which it takes and acknowledges messages: `<stream>.<consumer>`."""
_MANAGED: dict[str, tuple[str, ...]] = {
    PLANNER: (
        *(f"STREAM.PURGE.{stream}" for stream in ("REQUESTS", "INBOX", "RUNS", "CALLS", "TIMERS", "KV_runs")),
        "STREAM.PURGE.SESSIONS",
        *("STREAM.MSG.DELETE.REQUESTS", "STREAM.MSG.DELETE.INBOX"),
    ),
    TOOL_RUNNER: (
        *("CONSUMER.CREATE.CALLS.*.call.>", "CONSUMER.NAMES.CALLS", "CONSUMER.DELETE.CALLS.*"),
        "STREAM.PURGE.KV_catalogue",
    ),
}
"""Service -> what it deletes and creates in JetStream, as subjects below `$JS.API.`."""
_STREAMS = (
    "REQUESTS",
    "TIMERS",
    "INBOX",
    "RUNS",
    "SESSIONS",
    "CALLS",
    "DEAD",
    "HANDLINGS",
    "KV_artifacts",
    "KV_catalogue",
    "KV_runs",
)
_PROVISIONED_CONSUMERS = (
    "REQUESTS.planner.request.*.*",
    "INBOX.planner.inbox.*.*.*",
    "INBOX.planner_control.control.*.*.*",
    "INBOX.planner_session.session_inbox.*.*.*",
)
_MICRO_VERBS = ("PING", "INFO", "STATS")


@dataclass(frozen=True, slots=True)
class Rights:
    """What one user may do in its account. A subscription may name its queue group: `<subject> <group>`."""

    account: Account
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def of_platform() -> dict[str, Rights]:
    """The rights of every user that each deployment has: services, provisioner, operators and reloader."""
    provisioned = (f"STREAM.{verb}.{stream}" for verb in ("INFO", "CREATE", "UPDATE") for stream in _STREAMS)
    consumers = (f"CONSUMER.CREATE.{consumer}" for consumer in _PROVISIONED_CONSUMERS)
    return {
        **{service: _of_service(service) for service in _SENT},
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
        subscribe += [f"tool.{name} {name}", *(f"tool.{name}.{verb}" for verb in ("status", "cancel", "rejected"))]
        subscribe += _micro_of(name)
    return Rights("TOOLS", tuple(publish), tuple(subscribe))


def of_local_tools() -> Rights:
    """The rights of a process that may serve tools of any name."""
    calls = ("tool.*", *(f"tool.*.{verb}" for verb in ("status", "cancel", "rejected")))
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
    """Combine what the tables say of a service, with what each service may do: probe streams, and be found."""
    publish = [*_SENT[service], *map(_inbox, (*_ANSWERED.get(service, ()), OPERATOR))]
    publish += [jetstream("STREAM.INFO.*"), "probe.*"]
    for stream in _READ[service]:
        publish += [direct_get(stream), f"{direct_get(stream)}.>", jetstream(f"STREAM.MSG.GET.{stream}")]
    for consumer in _CONSUMED.get(service, ()):
        publish += [jetstream(f"CONSUMER.{verb}.{consumer}") for verb in ("MSG.NEXT", "INFO")]
        publish += [f"$JS.ACK.{consumer}.>"]
    publish += map(jetstream, _MANAGED.get(service, ()))
    subscribe = [_inbox(service), *_micro(), *_micro_of(f"runwire-{service}"), *_RECEIVED[service]]
    return Rights("CORE", tuple(publish), tuple(subscribe))


def _micro() -> list[str]:
    """The subjects of questions to all NATS micro services."""
    return [f"$SRV.{verb}" for verb in _MICRO_VERBS]


def _micro_of(name: str) -> list[str]:
    """The subjects of questions to the NATS micro services of a name, and to each instance of them."""
    return [f"$SRV.{verb}.{name}{tail}" for verb in _MICRO_VERBS for tail in ("", ".*")]


def _inbox(user: str) -> str:
    return f"{replies_to(user)}.>"
