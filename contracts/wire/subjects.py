"""THE table of subjects: who writes, who reads, which stream keeps the messages, what they carry.

Rights on NATS (`rights`), the subjects of streams and consumers, `contracts/asyncapi.json` and docs/rules/subjects.md
come from it. Entries of the KV buckets are rows of their own, in `keys`.

Rule 1: no other module writes or splits a subject. Called with names, a row returns a subject; `all` and `pattern` are
patterns over it (`subject`).
Rule 2: two exact subjects per run (`log`, `stream`), never one per event type: an exact read costs the same at a
million messages.
"""

from typing import NamedTuple

from .names import InvalidName, checked_tool, shortened
from .subject import GATEWAY, LISTENER, NATS, PLANNER, SERVICES, STORE, TOOL, TOOL_RUNNER, Subject

DEFAULT_TENANT = "default"
"""The tenant of a caller on loopback who shows no key."""

REQUESTS, INBOX, RUNS, CALLS, TIMERS, DEAD = "REQUESTS", "INBOX", "RUNS", "CALLS", "TIMERS", "DEAD"
HANDLINGS, SESSIONS, HELD = "HANDLINGS", "SESSIONS", "HELD"
ANNOUNCED = "ANNOUNCED"
"""Stands in place of the stream in the dead letter of an announcement, since no stream stores announcements."""
KEPT_FOR = {
    REQUESTS: "until a planner has handled it",
    TIMERS: "until it fires or is cancelled",
    INBOX: "until a planner has handled it",
    RUNS: "until the run is deleted; chunks, thoughts and progress for an hour",
    SESSIONS: "until the session is deleted, older records until one of its runs is; the last one for a day more",
    CALLS: "until a tool runner has handled it",
    DEAD: "30 days, the newest GiB",
    HANDLINGS: "a day",
    HELD: "a minute",
}
"""Each stream, and how long it keeps a message. Its settings: `services/messaging/streams.py`."""
EVERY_STREAM = "every stream"

_ALL = (GATEWAY, PLANNER, TOOL_RUNNER)
_REPLIES = (
    *("Result", "ToolFailure", "Heartbeat", "Progress", "ArtifactPiece", "Content", "BytesWanted", "Part", "Declined"),
    "Pause",
)
_STORED = "contracts/artifacts.py describes requests and replies."

# fmt: off
request = Subject(
    "request", "request.{tenant}.{run}", "A run is requested; one of a session or schedule by a planner.",
    writes=(GATEWAY, PLANNER), reads=(PLANNER, GATEWAY, STORE), carries=("RunRequested",),
    kept_in=REQUESTS, queue="planner",
)
inbox = Subject(
    "inbox", "inbox.{tenant}.{run}.{message}", "Results of calls of a run, and what makes it go on.",
    writes=(TOOL_RUNNER, PLANNER), reads=(PLANNER, TOOL_RUNNER),
    carries=("CallFinished", "CallPaused", "RunResumed", "RunBegins"), kept_in=INBOX, queue="planner",
)
control = Subject(
    "control", "control.{tenant}.{run}.{message}", "People control a run; timers fire. It never waits for a model.",
    writes=(GATEWAY, PLANNER, NATS), reads=(PLANNER,),
    carries=(
        *("CancelRequested", "TopUpRequested", "InputRequested", "ResumeRequested", "RunMerged", "RunRefused"),
        *("SessionAttached", "TimerFired", "RunTaskSettled", "RunTasksPaused", "RunYields", "GroupDue"),
        *("ScheduleSet", "ScheduleDue"),
    ),
    kept_in=INBOX, queue="planner_control",
)
log = Subject(
    "emit_log", "emit.{tenant}.{run}.log", "The log of a run; each record is guarded by the previous one.",
    writes=(PLANNER,), reads=SERVICES, carries=("Record",), kept_in=RUNS,
)
stream = Subject(
    "emit_stream", "emit.{tenant}.{run}.stream", "The stream of a run: tokens and progress.",
    writes=(PLANNER, TOOL_RUNNER), reads=SERVICES, carries=("Record",), kept_in=RUNS,
)
live_log = Subject(
    "run_log", "run.{tenant}.{run}.log", "The log of a run, republished after it is stored.",
    writes=(NATS,), reads=(GATEWAY, PLANNER, TOOL_RUNNER, LISTENER), carries=("Record",),
)
live_stream = Subject(
    "run_stream", "run.{tenant}.{run}.stream", "The stream of a run, republished after it is stored.",
    writes=(NATS,), reads=(GATEWAY, LISTENER), carries=("Record",),
)
context = Subject(
    "context", "context.{tenant}.{run}", "The `tool_context` of a run; never republished.",
    writes=(PLANNER,), reads=(PLANNER,), carries=("KeptContext",), kept_in=RUNS,
)
timer = Subject(
    "timer", "timer.{tenant}.{run}.{message}", "A timer is set; purging the subject cancels it.",
    writes=(PLANNER,), reads=(NATS,), counted_by=(GATEWAY,), carries=("TimerSet", "GroupTimeOutSet", "FireTimeSet"),
    kept_in=TIMERS,
)
due = Subject(
    "due", "due.{tenant}.{run}.{message}", "A timer fires; INBOX takes it as `control`.",
    writes=(NATS,), reads=(NATS,), carries=("TimerFired", "GroupDue", "ScheduleDue"), kept_in=TIMERS,
)
session_inbox = Subject(
    "session_inbox", "session_inbox.{tenant}.{session_key}.{message}",
    "Runs and people tell a session what happened; its handling calls no model.",
    writes=(GATEWAY, PLANNER), reads=(PLANNER,),
    carries=(
        *("SessionRunEnded", "SessionRunWaits", "SessionInputTaken", "SessionQueueExpired", "SessionContextRequested"),
        *("SessionApproved", "SessionRunsForgotten", "SessionDeletionRequested"),
        *("SessionTaskControl", "SessionGroupDue", "SessionProposalControl"),
    ),
    kept_in=INBOX, queue="planner_session",
)
session_log = Subject(
    "emit_session", "emit.{tenant}.{session_key}.session",
    "The log of a session; each record is guarded by the previous one.",
    writes=(PLANNER,), reads=(PLANNER, GATEWAY), carries=("SessionRecord",), kept_in=SESSIONS,
)
live_session = Subject(
    "session_log", "session.{tenant}.{session_key}.log", "The log of a session, republished after it is stored.",
    writes=(NATS,), reads=(GATEWAY, LISTENER), carries=("SessionRecord",),
)

call = Subject(
    "call", "call.{tenant}.{run}.{tool}", "A call waits for a tool runner.",
    writes=(PLANNER,), reads=(TOOL_RUNNER,), carries=("CallRequested",), kept_in=CALLS, queue="tool_{tool}",
)
direct_call = Subject(
    "direct_call", "direct.{instance}.call", "One instance of tool_runner is called without a stored queue.",
    writes=(PLANNER,), reads=(TOOL_RUNNER,), carries=("CallRequested",),
    replies=("Begun", "Finished", "DeclinedDirectly", "Unfinished"),
)
direct_status = Subject(
    "direct_status", "direct.{instance}.status", "Whether the instance has received a direct call.",
    writes=(PLANNER,), reads=(TOOL_RUNNER,), carries=("ReceivedQuestion",), replies=("ReceivedAnswer",),
)
tool_read = Subject(
    "tool_read", "read.tool", "A tool that changes nothing is called for no run; any instance answers.",
    writes=(GATEWAY, PLANNER), reads=(TOOL_RUNNER,), carries=("ReadRequested",), replies=("CallFinished",),
    queue=TOOL_RUNNER,
)
prompt = Subject(
    "prompt", "read.prompt", "The prompt of a model call is rendered again from the log; any planner answers.",
    writes=(GATEWAY,), reads=(PLANNER,), carries=("PromptRequested",), replies=("PromptRendered",), queue=PLANNER,
)
runner = Subject(
    "runner", "direct.here", "An instance of tool_runner says every second that it takes direct calls.",
    writes=(TOOL_RUNNER,), reads=(PLANNER, TOOL_RUNNER), carries=("RunnerAnnouncement",),
)
tool = Subject(
    "tool", "tool.{tool}", "One instance of a tool is called; its last reply is a result or a failure.",
    writes=(TOOL_RUNNER,), reads=(TOOL,), carries=("ToolCall",), queue="{tool}", replies=_REPLIES,
)
tool_status = Subject(
    "tool_status", "tool.{tool}.status", "All instances get it; the one that works on the call replies as to the call.",
    writes=(TOOL_RUNNER,), reads=(TOOL,), carries=("CallQuestion",), replies=_REPLIES,
)
tool_cancel = Subject(
    "tool_cancel", "tool.{tool}.cancel", "All instances get it; the one that works on the call stops it.",
    writes=(TOOL_RUNNER, PLANNER), reads=(TOOL,), carries=("CallQuestion",),
)
tool_rejected = Subject(
    "tool_rejected", "tool.{tool}.rejected", "All instances get it; the one whose result was not accepted logs why.",
    writes=(TOOL_RUNNER,), reads=(TOOL,), carries=("ResultRejected",),
)
tool_given = Subject(
    "tool_given", "tool.{tool}.given", "All instances get it; the one that has asked for bytes takes them.",
    writes=(TOOL_RUNNER,), reads=(TOOL,), carries=("BytesGiven",),
)
tool_check = Subject(
    "tool_check", "check.tool", "An operator asks for the check of a tool; heartbeats come until it ends.",
    writes=(), reads=(TOOL_RUNNER,), carries=("CheckTool",), queue=TOOL_RUNNER,
    replies=("ToolChecked", "StillChecking", "Failure"),
)
answer = Subject(
    "answer", "answer.{tool}.{instance}.{key}",
    "The reply subject of what tool_runner sends to a tool. Only the tool may publish it.",
    writes=(TOOL,), reads=(TOOL_RUNNER,), carries=(*_REPLIES, "MicroAnswer"),
)
discovery = Subject(
    "discovery", "discover.PING", "Which tools are there? They receive it as `$SRV.PING`.",
    writes=(TOOL_RUNNER,), reads=(TOOL,), carries=("Empty",), replies=("MicroAnswer",),
)
hello = Subject(
    "hello", "hello.{instance}", "The reply subject of `discover.PING`. A name is a hint: any tool may send it.",
    writes=(TOOL,), reads=(TOOL_RUNNER,), carries=("MicroAnswer",),
)
discover_info = Subject(
    "discovered_tool", "discover.INFO.{tool}",
    "Its instances reply with the specification on `answer`. They receive it as `$SRV.INFO.<tool>`.",
    writes=(TOOL_RUNNER,), reads=(TOOL,), carries=("Empty",), replies=("MicroAnswer",),
)
discover_ping = Subject(
    "discovered_instance", "discover.PING.{tool}.{tool_instance}",
    "Is the instance that misses its heartbeats still connected? It receives it as `$SRV.PING.<tool>.<id>`.",
    writes=(TOOL_RUNNER,), reads=(TOOL,), carries=("Empty",), replies=("MicroAnswer",),
)
all_micro = Subject(
    "micro", "$SRV.{verb}", "A question to all NATS micro services.",
    writes=(LISTENER,), reads=(TOOL, *SERVICES), carries=("Empty",), replies=("MicroAnswer",),
)
micro_of_name = Subject(
    "micro_service", "$SRV.{verb}.{service}", "The same, to the instances of one service.",
    writes=(LISTENER,), reads=(TOOL, *SERVICES), carries=("Empty",), replies=("MicroAnswer",),
)
micro_instance = Subject(
    "micro_instance", "$SRV.{verb}.{service}.{instance}", "The same, to one instance.",
    writes=(LISTENER,), reads=(TOOL, *SERVICES), carries=("Empty",), replies=("MicroAnswer",),
)

artifact_put = Subject(
    "artifact_put", "artifact.put", f"Artifacts: put. {_STORED}",
    writes=_ALL, reads=(STORE,), carries=("ArtifactBytes",), replies=("ArtifactRef", "Failure"), queue=STORE,
)
artifact_open = Subject(
    "artifact_open", "artifact.open", f"Artifacts: open. {_STORED}",
    writes=_ALL, reads=(STORE,), carries=("PutArtifact",), replies=("UploadOpened", "Failure"), queue=STORE,
)
artifact_chunk = Subject(
    "artifact_chunk", "artifact.chunk.{instance}", "The next bytes of an upload, to the instance that opened it.",
    writes=_ALL, reads=(STORE,), carries=("UploadChunk",), replies=("ChunkTaken", "Failure"),
)
artifact_get = Subject(
    "artifact_get", "artifact.get", f"Artifacts: get. {_STORED}",
    writes=_ALL, reads=(STORE,), carries=("GetArtifact",), replies=("ArtifactRange", "Failure"), queue=STORE,
)
artifact_head = Subject(
    "artifact_head", "artifact.head", f"Artifacts: head. {_STORED}",
    writes=_ALL, reads=(STORE,), carries=("HeadArtifact",), replies=("StoredArtifact", "Failure"), queue=STORE,
)
artifact_list = Subject(
    "artifact_list", "artifact.list", f"Artifacts: list. {_STORED}",
    writes=(GATEWAY, PLANNER), reads=(STORE,), carries=("ListArtifacts",), replies=("ArtifactPage", "Failure"),
    queue=STORE,
)
artifact_delete = Subject(
    "artifact_delete", "artifact.delete", f"Artifacts: delete. {_STORED}",
    writes=_ALL, reads=(STORE,), carries=("DeleteArtifact",), replies=("ArtifactDeleted", "Failure"), queue=STORE,
)
artifact_assemble = Subject(
    "artifact_assemble", "artifact.assemble", f"Artifacts: assemble. {_STORED}",
    writes=(TOOL_RUNNER,), reads=(STORE,), carries=("AssembleStream",), replies=("AssembledStream", "Failure"),
    queue=STORE,
)

dead = Subject(
    "dead", "dead.{stream}", "Dead letters: messages that could not be processed, for people.",
    writes=(PLANNER, TOOL_RUNNER), reads=(), carries=("DeadMessage",), kept_in=DEAD,
)
handlings = Subject(
    "handling", "handling.{stream}.{sequence}", "The number of handlings of a message.",
    writes=(PLANNER, TOOL_RUNNER), reads=(PLANNER, TOOL_RUNNER), carries=("Handlings",), kept_in=HANDLINGS,
)
held = Subject(
    "held", "held.{instance}", "Which messages a planner holds; others refuse them in its place once it is dead.",
    writes=(PLANNER,), reads=(PLANNER,), watched_by=(PLANNER,), carries=("HeldMessages",), kept_in=HELD,
)
planner_here = Subject(
    "planner_here", "here.{instance}", "Is this planner still connected? None answers, but each is subscribed.",
    writes=(PLANNER,), reads=(PLANNER,), carries=("Empty",),
)
probe = Subject(
    "probe", "probe.{kept_in}", "A test whether a stream or bucket stores messages; nobody reads it.",
    writes=SERVICES, reads=(), carries=("Bytes",), kept_in=EVERY_STREAM,
)
# fmt: on
SUBJECTS = tuple(row for row in vars().values() if isinstance(row, Subject))
"""The table."""
PLANNER_QUEUES = (request, inbox, control, session_inbox)
"""The rows whose messages planners take by a durable consumer (`queue`); tool_runner makes those of tools."""

_KEPT_IN = {row.address.partition(".")[0]: row.kept_in for row in reversed(SUBJECTS) if row.kept_in in KEPT_FOR}
"""First word of a subject -> its stream, but for the logs of sessions."""
_OF_RUNS = {
    row.address.partition(".")[0]: row for row in (request, context, inbox, control, session_inbox, timer, due, call)
}
_RECORDS = {("emit", "log"): log, ("emit", "stream"): stream, ("run", "log"): live_log, ("run", "stream"): live_stream}

LIVE_OF_RUNS = "run.{{wildcard(1)}}.{{wildcard(2)}}.{{wildcard(3)}}"
ALL_OF_RUNS, LIVE_OF_SESSIONS = "emit.*.*.*", "session.{{wildcard(1)}}.{{wildcard(2)}}.log"
"""What the server republishes of a stream, and under which subject."""
ALL_LIVE = "run.*.*.*"
DUE_IN_CONTROL = "control.{{wildcard(1)}}.{{wildcard(2)}}.{{wildcard(3)}}"
"""Where INBOX puts what it takes from `due`."""
REPLIES = "_INBOX."
"""The beginning of every subject on which a client receives replies, but for the replies of tools (`answer`)."""


def live(tenant: str, run: str) -> str:
    """The log and the stream of a run, republished after they are stored. Listeners subscribe to this."""
    return siblings(live_log(tenant, run))


def of_run(tenant: str, run: str) -> tuple[str, ...]:
    """All subjects of a run in the stream RUNS. Purging them deletes the run."""
    return log(tenant, run), stream(tenant, run), context(tenant, run)


def everything_of(tenant: str, run: str) -> list[tuple[str, str]]:
    """Each stream with the pattern of a run's messages in it, except its log, the index and DEAD."""
    rows = (request, stream, context, call, timer, due, inbox, control)
    return [(row.kept_in, row.pattern(tenant=tenant, run=run)) for row in rows]


def called_tool(subject: str) -> str:
    """The tool of a call's subject, even if the rest is not well-formed. Raises InvalidName."""
    return checked_tool(subject.rpartition(".")[2])


def calls_consumer(tool: str) -> str:
    """The durable consumer of the tool's calls."""
    return f"tool_{checked_tool(tool)}"


def answering_tool(subject: str) -> str:
    """The tool that has replied on a subject of `answer`."""
    return subject.split(".", 2)[1]


def stream_of(subject: str) -> str | None:
    """The stream or bucket that stores messages of a subject; None without one."""
    kind, _, rest = subject.partition(".")
    if kind == "$KV":
        return bucket_stream(rest.partition(".")[0])
    return SESSIONS if kind == "emit" and rest.endswith(".session") else _KEPT_IN.get(kind)


class Address(NamedTuple):
    """A parsed subject of a run. `name` is its message, tool or `log`/`stream`; empty for a request.

    Of a `session_inbox` the `run` is the session's key.
    """

    kind: str
    tenant: str
    run: str
    name: str = ""


def parse(subject: str) -> Address:
    """Parse a subject of a run, or raise InvalidName."""
    kind, _, rest = subject.partition(".")
    last = rest.rpartition(".")[2]
    row = _OF_RUNS.get(kind) or _RECORDS.get((kind, last))
    if row is None or row.address.count(".") != subject.count("."):
        raise InvalidName(f"{shortened(subject)!r} is not a subject of a run")
    tenant, run, *name = row.parsed(subject)
    return Address(kind, tenant, run, *(name or [last] * (kind in {"emit", "run"})))


def tenant_of(subject: str) -> str:
    """The tenant in a subject of a run, unchecked: for fair shares, never to build a subject or key from.

    Empty where it names none.
    """
    _, _, rest = subject.partition(".")
    return rest.partition(".")[0]


def siblings(subject: str) -> str:
    """The pattern of all subjects that differ in the last part at most."""
    return f"{subject.rpartition('.')[0]}.*"


def jetstream(verb: str) -> str:
    """The API of JetStream; `verb` with the names that it takes, as in `STREAM.INFO.RUNS`."""
    return f"$JS.API.{verb}"


def direct_get(stream_name: str) -> str:
    """Where a stream's replicas answer batched direct gets."""
    return jetstream(f"DIRECT.GET.{stream_name}")


def direct_last(stream_name: str, subject: str) -> str:
    """Where a stream's replicas answer with the newest message of a subject."""
    return f"{direct_get(stream_name)}.{subject}"


def next_messages(stream_name: str, consumer: str) -> str:
    """Where messages of a consumer are requested."""
    return jetstream(f"CONSUMER.MSG.NEXT.{stream_name}.{consumer}")


def replies_to(service: str) -> str:
    """The first two tokens of the subjects on which a user of NATS receives replies; its permissions name them."""
    return f"{REPLIES}{service}"


def micro_service(verb: str, *names: str) -> str:
    """Where NATS micro services answer a verb: all, those of a name, or one instance."""
    return ".".join(("$SRV", verb, *names))


def bucket_stream(bucket: str) -> str:
    """The stream of a KV bucket."""
    return f"KV_{bucket}"


def bucket_value(bucket: str, key: str) -> str:
    """Where the value of a key is kept; `key` is one of `keys`, a pattern of them, or `>` for all."""
    return f"$KV.{bucket}.{key}"


def bucket_key(subject: str) -> str:
    """The key of a value's subject."""
    return subject.split(".", 2)[2]
