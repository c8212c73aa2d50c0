"""Every NATS subject, built and parsed here and nowhere else. Keys of buckets are in `keys`.

Rule 1: no other module writes or splits a subject. A name from outside is checked (`names`) before it reaches the
server.
Rule 2: a name that is not well-formed is refused with `InvalidName`: wildcards, dots, spaces, control characters, an
empty or long name, characters outside ASCII.
Rule 3: what is built here is described in `channels`, from which `asyncapi.json` is generated.
Rule 4: two exact subjects per run (`log`, `stream`), never one per event type: an exact read costs the same at a
million messages.

Who writes each of them and who reads it, and which stream stores it: docs/architecture.md#subjects-and-streams.
"""

import re
from dataclasses import dataclass

from .names import InvalidName, checked, checked_id, checked_message, checked_tenant, checked_tool, shortened

_STREAM = re.compile(r"[A-Z]{1,32}", re.ASCII)
_ANY_STREAM = re.compile(r"[A-Z]{1,32}|KV_[a-z]{1,32}", re.ASCII)

DEFAULT_TENANT = "default"
"""The tenant of a caller on loopback who shows no key."""

REQUESTS, INBOX, RUNS, CALLS, TIMERS, DEAD = "REQUESTS", "INBOX", "RUNS", "CALLS", "TIMERS", "DEAD"
HANDLINGS, SESSIONS = "HANDLINGS", "SESSIONS"
ANNOUNCED = "ANNOUNCED"
"""Stands in place of the stream in the dead letter of an announcement, since no stream stores announcements."""

_STREAMS = {
    "request": REQUESTS,
    "inbox": INBOX,
    "control": INBOX,
    "session_inbox": INBOX,
    "emit": RUNS,
    "context": RUNS,
    "call": CALLS,
    "timer": TIMERS,
    "due": TIMERS,
    "dead": DEAD,
    "handling": HANDLINGS,
}

ALL_REQUESTS = "request.*.*"
ALL_INBOX = "inbox.*.*.*"
ALL_CONTROL = "control.*.*.*"
ALL_LOGS, ALL_STREAMS = "emit.*.*.log", "emit.*.*.stream"
ALL_SESSION_LOGS, LIVE_OF_SESSIONS = "emit.*.*.session", "session.{{wildcard(1)}}.{{wildcard(2)}}.log"
"""The logs of sessions, and where the server republishes them."""
ALL_SESSION_INBOX = "session_inbox.*.*.*"
ALL_OF_RUNS, LIVE_OF_RUNS = "emit.*.*.*", "run.{{wildcard(1)}}.{{wildcard(2)}}.{{wildcard(3)}}"
"""What the server republishes, and under which subject."""
ALL_CONTEXTS = "context.*.*"
ALL_CALLS = "call.*.*.*"
ALL_TIMERS, ALL_DUE = "timer.*.*.*", "due.*.*.*"
ALL_SCHEDULE_TIMERS = "timer.*.*.fire"
DUE_IN_CONTROL = "control.{{wildcard(1)}}.{{wildcard(2)}}.{{wildcard(3)}}"
"""Where INBOX puts what it takes from ALL_DUE."""
ALL_DEAD = "dead.>"
ALL_HANDLINGS = "handling.*.*"
ALL_ANSWERS, ALL_HELLOS, ALL_DISCOVERY = "answer.>", "hello.>", "discover.>"
"""What tools send to tool runners, and the questions of tool runners that tools receive as ALL_MICRO."""
ALL_MICRO = "$SRV.>"
DISCOVER_PING = "discover.PING"
"""Where tool runners ask which tools there are."""
REPLIES = "_INBOX."
"""The beginning of every subject on which a client receives replies, but for the replies of tools (`answer`)."""

ARTIFACT_PUT, ARTIFACT_OPEN, ARTIFACT_GET, ARTIFACT_HEAD = (
    "artifact.put",
    "artifact.open",
    "artifact.get",
    "artifact.head",
)
ARTIFACT_LIST, ARTIFACT_DELETE, ARTIFACT_ASSEMBLE = "artifact.list", "artifact.delete", "artifact.assemble"


def request(tenant: str, run: str) -> str:
    """Where a run is requested."""
    return f"request.{checked_tenant(tenant)}.{checked_id(run)}"


def inbox(tenant: str, run: str, message: str) -> str:
    """Where a run's results arrive, and what makes it go on."""
    return f"inbox.{checked_tenant(tenant)}.{checked_id(run)}.{checked_message(message)}"


def control(tenant: str, run: str, message: str) -> str:
    """Where people control a run, and where its timers arrive. It never waits for a model."""
    return f"control.{checked_tenant(tenant)}.{checked_id(run)}.{checked_message(message)}"


def log(tenant: str, run: str) -> str:
    """The log of a run. Only the planner writes it, with guarded writes."""
    return f"emit.{checked_tenant(tenant)}.{checked_id(run)}.log"


def stream(tenant: str, run: str) -> str:
    """The stream of a run: tokens and progress."""
    return f"emit.{checked_tenant(tenant)}.{checked_id(run)}.stream"


def context(tenant: str, run: str) -> str:
    """The `tool_context` of a run. It is not under `emit`, so it is never republished."""
    return f"context.{checked_tenant(tenant)}.{checked_id(run)}"


def session_log(tenant: str, session_key: str) -> str:
    """The log of a session. Only the planner writes it, with guarded writes. `session_key`: from `keys.session_key`."""
    return f"emit.{checked_tenant(tenant)}.{checked_id(session_key)}.session"


def live_session(tenant: str, session_key: str) -> str:
    """The log of a session, republished after it is stored."""
    return f"session.{checked_tenant(tenant)}.{checked_id(session_key)}.log"


def session_inbox(tenant: str, session_key: str, message: str) -> str:
    """Where runs and people tell a session what happened. Its handling calls no model and no tool."""
    return f"session_inbox.{checked_tenant(tenant)}.{checked_id(session_key)}.{checked_message(message)}"


def of_run(tenant: str, run: str) -> tuple[str, ...]:
    """All subjects of a run in the stream RUNS. Purging them deletes the run."""
    return log(tenant, run), stream(tenant, run), context(tenant, run)


def live(tenant: str, run: str) -> str:
    """The log and the stream of a run, republished after they are stored. Listeners subscribe to this."""
    return f"run.{checked_tenant(tenant)}.{checked_id(run)}.*"


def live_log(tenant: str, run: str) -> str:
    """The log of a run, republished after it is stored."""
    return f"run.{checked_tenant(tenant)}.{checked_id(run)}.log"


def call(tenant: str, run: str, tool: str) -> str:
    """Where a call waits for a tool runner."""
    return f"call.{checked_tenant(tenant)}.{checked_id(run)}.{checked_tool(tool)}"


def calls_of(tool: str) -> str:
    """The filter of the tool's own consumer."""
    return f"call.*.*.{checked_tool(tool)}"


def called_tool(subject: str) -> str:
    """The tool of a call's subject, even if the rest is not well-formed.

    Raises InvalidName.
    """
    return checked_tool(subject.rpartition(".")[2])


def calls_of_tenant(tenant: str, tool: str) -> str:
    """All calls of a tenant to a tool that have no outcome yet."""
    return f"call.{checked_tenant(tenant)}.*.{checked_tool(tool)}"


def calls_consumer(tool: str) -> str:
    """The durable consumer of the tool's calls."""
    return f"tool_{checked_tool(tool)}"


def tool(name: str) -> str:
    """Where the instances of a tool receive calls, as one queue group."""
    return f"tool.{checked_tool(name)}"


def tool_status(name: str) -> str:
    """Where all instances of a tool are asked whether they work on a call."""
    return f"tool.{checked_tool(name)}.status"


def tool_cancel(name: str) -> str:
    """Where a request to cancel a call goes, to all instances of the tool."""
    return f"tool.{checked_tool(name)}.cancel"


def tool_rejected(name: str) -> str:
    """Where it is said that a result was not accepted, to all instances of the tool."""
    return f"tool.{checked_tool(name)}.rejected"


def answer(tool: str, instance: str, key: str) -> str:
    """Where a tool replies to one request of a tool runner. Only the tool may publish it, so it shows who replied.

    `instance`: an id that the tool runner has chosen. `key`: tells its requests apart.
    """
    return f"answer.{checked_tool(tool)}.{checked_id(instance)}.{checked_message(key)}"


def answers_to(instance: str, tool: str | None = None) -> str:
    """All replies of a tool, or of all tools, to one instance of tool_runner."""
    return f"answer.{'*' if tool is None else checked_tool(tool)}.{checked_id(instance)}.*"


def answers_of(tool: str) -> str:
    """All replies of a tool, to any tool runner."""
    return f"answer.{checked_tool(tool)}.>"


def answering_tool(subject_name: str) -> str:
    """The tool that has replied on a subject of `answers_to`."""
    return subject_name.split(".", 2)[1]


def hello(instance: str) -> str:
    """Where tools answer DISCOVER_PING with their names. Every tool may publish it, so it is only a hint."""
    return f"hello.{checked_id(instance)}"


def discover_info(tool: str) -> str:
    """Where the instances of a tool are asked for its specification. They receive it as `$SRV.INFO.<tool>`."""
    return f"discover.INFO.{checked_tool(tool)}"


def discover_ping(tool: str, tool_instance: str) -> str:
    """Where one instance of a tool is asked whether it is connected. It receives it as `$SRV.PING.<tool>.<id>`."""
    return f"discover.PING.{checked_tool(tool)}.{checked_message(tool_instance)}"


RUNNER_ANNOUNCEMENTS = "direct.here"
"""Where instances of tool_runner say that they take direct calls."""
RUNNER_CHECKS = "check.tool"
"""Where operators have an instance of tool_runner check a tool."""


def direct_call(instance: str) -> str:
    """Where one instance of tool_runner takes direct calls."""
    return f"direct.{checked_id(instance)}.call"


def direct_status(instance: str) -> str:
    """Where one instance of tool_runner is asked whether it has received a direct call."""
    return f"direct.{checked_id(instance)}.status"


def timer(tenant: str, run: str, message: str) -> str:
    """Where a timer is set; purging the subject cancels it."""
    return f"timer.{checked_tenant(tenant)}.{checked_id(run)}.{checked_message(message)}"


def timers_of(tenant: str, run: str) -> str:
    """All timers of a run; purging them cancels them."""
    return f"timer.{checked_tenant(tenant)}.{checked_id(run)}.*"


def timers_of_all(tenant: str) -> str:
    """All timers of a tenant's runs."""
    return f"timer.{checked_tenant(tenant)}.*.*"


def requests_of(tenant: str) -> str:
    """All runs of a tenant that wait for a planner."""
    return f"request.{checked_tenant(tenant)}.*"


def due(tenant: str, run: str, message: str) -> str:
    """Where a timer fires. INBOX takes it from there, as a `control` message."""
    return f"due.{checked_tenant(tenant)}.{checked_id(run)}.{checked_message(message)}"


def dead(stream_name: str) -> str:
    """Where dead letters of a stream are stored."""
    return f"dead.{checked(_STREAM, 'stream name', stream_name)}"


def handlings(stream_name: str, sequence: int) -> str:
    """Where the handlings of a message are counted, by its stream and sequence."""
    return f"handling.{checked(_STREAM, 'stream name', stream_name)}.{int(sequence)}"


def probe(stream_name: str) -> str:
    """Where a service tests whether a stream or bucket stores messages. Nobody reads it."""
    return f"probe.{checked(_ANY_STREAM, 'stream name', stream_name)}"


def stream_of(subject_name: str) -> str | None:
    """The stream or bucket that stores messages of a subject; None without one."""
    kind, _, rest = subject_name.partition(".")
    if kind == "emit" and rest.endswith(".session"):
        return SESSIONS
    return bucket_stream(rest.partition(".")[0]) if kind == "$KV" else _STREAMS.get(kind)


def jetstream(verb: str) -> str:
    """The API of JetStream; `verb` with the names that it takes, as in `STREAM.INFO.RUNS`."""
    return f"$JS.API.{verb}"


def direct_get(stream_name: str) -> str:
    """Where a stream's replicas answer batched direct gets."""
    return jetstream(f"DIRECT.GET.{stream_name}")


def direct_last(stream_name: str, subject_name: str) -> str:
    """Where a stream's replicas answer with the newest message of a subject."""
    return f"{direct_get(stream_name)}.{subject_name}"


def next_messages(stream_name: str, consumer: str) -> str:
    """Where messages of a consumer are requested."""
    return jetstream(f"CONSUMER.MSG.NEXT.{stream_name}.{consumer}")


def replies_to(service: str) -> str:
    """The first two tokens of the subjects on which a user of NATS receives replies; its permissions name them."""
    return f"_INBOX.{service}"


def micro_service(verb: str, *names: str) -> str:
    """Where NATS micro services answer a verb: all, those of a name, or one instance."""
    return ".".join(("$SRV", verb, *names))


def siblings(subject: str) -> str:
    """The pattern of all subjects that differ in the last part at most."""
    return f"{subject.rpartition('.')[0]}.*"


def bucket_stream(bucket: str) -> str:
    """The stream of a KV bucket."""
    return f"KV_{bucket}"


def bucket_value(bucket: str, key: str) -> str:
    """Where the value of a key is kept; `key` is one of `keys`, a pattern of them, or `>` for all."""
    return f"$KV.{bucket}.{key}"


def bucket_key(subject_name: str) -> str:
    """The key of a value's subject."""
    return subject_name.split(".", 2)[2]


def everything_of(tenant: str, run: str) -> list[tuple[str, str]]:
    """Each stream with the pattern of a run's messages in it, except its log, the index and DEAD."""
    who = f"{checked_tenant(tenant)}.{checked_id(run)}"
    return [
        (REQUESTS, request(tenant, run)),
        (RUNS, stream(tenant, run)),
        (RUNS, context(tenant, run)),
        (CALLS, f"call.{who}.*"),
        (TIMERS, timers_of(tenant, run)),
        (TIMERS, f"due.{who}.*"),
        (INBOX, f"inbox.{who}.*"),
        (INBOX, f"control.{who}.*"),
    ]


def artifact_chunk(instance: str) -> str:
    """Where one instance of the artifact store takes the chunks of the uploads that it opened."""
    return f"artifact.chunk.{checked_id(instance)}"


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed subject of a run. `name` is its message, tool or `log`/`stream`; empty for a request.

    Of a `session_inbox` the `run` is the session's key.
    """

    kind: str
    tenant: str
    run: str
    name: str = ""


def tenant_of(subject: str) -> str:
    """The tenant in a subject of a run, unchecked: for fair shares, never to build a subject or key from.

    Empty where it names none.
    """
    _, _, rest = subject.partition(".")
    return rest.partition(".")[0]


def parse(subject: str) -> Address:
    """Parse a subject of a run, or raise InvalidName."""
    kind, *rest = subject.split(".")
    match kind, rest:
        case "request" | "context", [tenant, run]:
            return Address(kind, checked_tenant(tenant), checked_id(run))
        case "inbox" | "control" | "session_inbox" | "timer" | "due", [tenant, run, message]:
            return Address(kind, checked_tenant(tenant), checked_id(run), checked_message(message))
        case "call", [tenant, run, name]:
            return Address(kind, checked_tenant(tenant), checked_id(run), checked_tool(name))
        case "emit" | "run", [tenant, run, "log" | "stream" as name]:
            return Address(kind, checked_tenant(tenant), checked_id(run), name)
    raise InvalidName(f"{shortened(subject)!r} is not a subject of a run")
