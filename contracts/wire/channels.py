"""Every subject as a description: its address, who sends and who receives there, and what.

`contracts/asyncapi.json` is made from it.

Rule 1: everything that `subjects` and `keys` build is described here, or named in `NO_SUBJECTS`; a test compares.
Rule 2: this is data: it builds no subject and is imported by no service.
"""

from pydantic import BaseModel

from ..artifacts import references as artifacts
from ..runs import inbox
from ..runs import requests as runs
from ..sessions import records as sessions
from ..sessions import tasks
from ..tools import checks as tool_checks
from ..tools import direct
from ..tools import messages as tools
from . import records, subjects
from .channel import BYTES, GATEWAY, LISTENER, NATS, PLANNER, RAW, SERVICES, STORE, TOOL, TOOL_RUNNER, Body, Channel
from .entries import IN_BUCKETS
from .faults import Fault

NO_SUBJECTS = frozenset(
    {
        "answering_tool",
        "artifact_of_object",
        "bucket_key",
        "bucket_stream",
        "bucket_value",
        "direct_get",
        "direct_last",
        "jetstream",
        "micro_service",
        "next_messages",
        "replies_to",
        "siblings",
        "called_tool",
        "calls_consumer",
        "new_object_name",
        "object_key",
        "of_run",
        "parse_own_id_key",
        "run_of_spent_key",
        "session_key",
        "listing",
        "stream_of",
        "tenant_of",
    }
)
"""Functions of `subjects` and `keys` that return no subject: the name of a consumer, keys of the S3 bucket, and lists
of subjects that are described below."""


def _model(kind: type[BaseModel]) -> Body:
    return Body(kind.__name__, kind)


def _kinds(reply: str) -> dict[str, str]:
    return {tools.REPLY_HEADER: reply}


ANY_BYTES = Body("Bytes", RAW, "The message as it was received.", BYTES)
EMPTY = Body("Empty", RAW, "No bytes: the question is the subject.", BYTES)
FAULT = Body("Failure", Fault, "What went wrong.", headers=_kinds("failure"))
RECORD = Body(
    "Record",
    records.Record,
    "All events of one transition, in order.",
    headers={
        records.EVENTS_HEADER: "types of its events",
        records.PAUSES_HEADER: "number of open pauses after this record of a log, if there are any",
    },
)
RESULT = Body(
    "Result",
    {},
    "Any JSON that the tool's output schema allows; ends the call.",
    headers=_kinds("result, or no such header"),
)
MICRO = Body(
    "MicroAnswer",
    {"type": "object"},
    "As NATS micro services answer; a tool's endpoint holds its ToolSpec in `runwire.spec`.",
)
TOOL_REPLIES = (
    RESULT,
    Body("ToolFailure", tools.ToolFailure, "Ends the call; the model reads the reason.", headers=_kinds("failure")),
    Body("Heartbeat", tools.Heartbeat, headers=_kinds("heartbeat")),
    Body("Progress", tools.Progress, headers=_kinds("progress")),
    Body("ArtifactPiece", tools.ArtifactPiece, headers=_kinds("artifact_chunk")),
    Body("Content", {"type": "string"}, "For the model, beside the result; UTF-8.", "text/plain", _kinds("content")),
    Body("Part", RAW, "A piece of a large result.", BYTES, _kinds("part")),
    Body("Declined", tools.Declined, headers=_kinds("declined")),
    Body("Pause", tools.PauseReply, "Ends this round of the call; a person is asked.", headers=_kinds("pause")),
)
TOOL_CHECK_REPLIES = (
    Body("ToolChecked", tool_checks.ToolChecked, headers=_kinds("result")),
    Body("StillChecking", RAW, "No bytes: the check goes on.", BYTES, _kinds("heartbeat")),
    FAULT,
)
DIRECT_REPLIES = (
    Body("Begun", RAW, "The tool is called next.", BYTES, {direct.DIRECT_HEADER: "begun"}),
    Body("Finished", inbox.CallFinished, "The outcome.", headers={direct.DIRECT_HEADER: "finished"}),
    Body("DeclinedDirectly", RAW, "Not begun; it goes to CALLS.", BYTES, {direct.DIRECT_HEADER: "declined"}),
    Body("Unfinished", RAW, "Begun, and not ended in time.", BYTES, {direct.DIRECT_HEADER: "unfinished"}),
)


def _asks(verb: str, built_by: str, senders: tuple[str, ...], body: Body, *replies: Body) -> Channel:
    """A request to the artifact store."""
    answers = tuple(
        Body(each.name, each.schema, each.summary, each.content, {**each.headers, **_kinds("result")})
        for each in replies
    )
    meaning = f"Artifacts: {verb}. contracts/artifacts/references.py describes requests and replies."
    name, address = f"artifact_{verb}", f"artifact.{verb}"
    return Channel(
        name, address, meaning, (built_by,), (body,), senders, (STORE,), queue=STORE, replies=(*answers, FAULT)
    )


_SCHEDULE = {"Nats-Schedule": "@at and the time", "Nats-Schedule-Target": "the run's subject `due`"}
OF_RUNS = (
    Channel(
        "request", "request.{tenant}.{run}", "A run is requested; one of a session or schedule by a planner.",
        ("request", "requests_of", "ALL_REQUESTS"),
        (_model(runs.RunRequested),), (GATEWAY, PLANNER), (PLANNER, GATEWAY, STORE), subjects.REQUESTS, "planner",
    ),
    Channel(
        "inbox", "inbox.{tenant}.{run}.{message}", "Results of calls of a run, and what makes it go on.",
        ("inbox", "ALL_INBOX"),
        (
            *(_model(inbox.CallFinished), _model(inbox.CallPaused)),
            *(_model(inbox.RunResumed), _model(inbox.RunBegins)),
        ),
        (TOOL_RUNNER, PLANNER), (PLANNER, TOOL_RUNNER), subjects.INBOX, "planner",
    ),
    Channel(
        "control", "control.{tenant}.{run}.{message}", "People control a run; timers fire. It never waits for a model.",
        ("control", "ALL_CONTROL"),
        (
            *(_model(inbox.CancelRequested), _model(inbox.TopUpRequested), _model(inbox.InputRequested)),
            *(_model(inbox.ResumeRequested), _model(inbox.RunMerged), _model(inbox.RunRefused)),
            *(_model(inbox.SessionAttached), _model(inbox.TimerFired)),
            *(_model(inbox.RunTaskSettled), _model(inbox.GroupDue)),
            *(_model(inbox.ScheduleSet), _model(inbox.ScheduleDue)),
        ),
        (GATEWAY, PLANNER, NATS), (PLANNER,), subjects.INBOX, "planner_control",
    ),
    Channel(
        "emit_log", "emit.{tenant}.{run}.log", "The log of a run; each record is guarded by the previous one.",
        ("log", "ALL_LOGS", "ALL_OF_RUNS"),
        (RECORD,), (PLANNER,), SERVICES, subjects.RUNS,
    ),
    Channel(
        "emit_stream", "emit.{tenant}.{run}.stream", "The stream of a run: tokens and progress.",
        ("stream", "ALL_STREAMS", "ALL_OF_RUNS"),
        (RECORD,), (PLANNER, TOOL_RUNNER), SERVICES, subjects.RUNS,
    ),
    Channel(
        "run_log", "run.{tenant}.{run}.log", "The log of a run, republished after it is stored.", ("live", "live_log"),
        (RECORD,), (NATS,), (GATEWAY, PLANNER, TOOL_RUNNER, LISTENER),
    ),
    Channel(
        "run_stream", "run.{tenant}.{run}.stream", "The stream of a run, republished after it is stored.", ("live",),
        (RECORD,), (NATS,), (GATEWAY, LISTENER),
    ),
    Channel(
        "context", "context.{tenant}.{run}", "The `tool_context` of a run; never republished.",
        ("context", "ALL_CONTEXTS"),
        (_model(runs.KeptContext),), (PLANNER,), (PLANNER,), subjects.RUNS,
    ),
    Channel(
        "timer", "timer.{tenant}.{run}.{message}", "A timer is set; purging the subject cancels it.",
        ("timer", "timers_of", "timers_of_all", "ALL_TIMERS", "ALL_SCHEDULE_TIMERS"),
        (
            Body("TimerSet", inbox.TimerFired, "It is published on `due` at its time.", headers=_SCHEDULE),
            Body("GroupTimeOutSet", inbox.GroupDue, "The same, of a group of a session.", headers=_SCHEDULE),
            Body("FireTimeSet", inbox.ScheduleDue, "The same, of a schedule.", headers=_SCHEDULE),
        ),
        (PLANNER,), (NATS, GATEWAY), subjects.TIMERS,
    ),
    Channel(
        "due", "due.{tenant}.{run}.{message}", "A timer fires; INBOX takes it as `control`.", ("due", "ALL_DUE"),
        (_model(inbox.TimerFired), _model(inbox.GroupDue), _model(inbox.ScheduleDue)), (NATS,), (NATS,),
        subjects.TIMERS,
    ),
)  # fmt: skip

SESSION_RECORD = Body(
    "SessionRecord",
    sessions.SessionRecord,
    "All events of one transition of a session, in order.",
    headers={
        records.EVENTS_HEADER: "types of its events",
        sessions.CHECKPOINT_HEADER: "sequence of the newest checkpoint on this subject",
    },
)
OF_SESSIONS = (
    Channel(
        "session_inbox", "session_inbox.{tenant}.{session_key}.{message}",
        "Runs and people tell a session what happened; its handling calls no model.",
        ("session_inbox", "ALL_SESSION_INBOX"),
        (
            *(_model(sessions.SessionRunEnded), _model(sessions.SessionRunWaits), _model(sessions.SessionInputTaken)),
            *(_model(sessions.SessionQueueExpired), _model(sessions.SessionContextRequested)),
            *(_model(sessions.SessionApproved), _model(sessions.SessionDeletionRequested)),
            *(_model(tasks.SessionTaskCalled), _model(tasks.SessionTaskControl), _model(tasks.SessionGroupDue)),
        ),
        (GATEWAY, PLANNER), (PLANNER,), subjects.INBOX, "planner_session",
    ),
    Channel(
        "emit_session", "emit.{tenant}.{session_key}.session",
        "The log of a session; each record is guarded by the previous one.", ("session_log", "ALL_SESSION_LOGS"),
        (SESSION_RECORD,), (PLANNER,), (PLANNER, GATEWAY), subjects.SESSIONS,
    ),
    Channel(
        "session_log", "session.{tenant}.{session_key}.log",
        "The log of a session, republished after it is stored.", ("live_session",),
        (SESSION_RECORD,), (NATS,), (GATEWAY, LISTENER),
    ),
)  # fmt: skip

OF_TOOLS = (
    Channel(
        "call", "call.{tenant}.{run}.{tool}", "A call waits for a tool runner.",
        ("call", "calls_of", "calls_of_tenant", "ALL_CALLS"),
        (_model(tools.CallRequested),), (PLANNER,), (TOOL_RUNNER,), subjects.CALLS, "tool_{tool}",
    ),
    Channel(
        "direct_call", "direct.{instance}.call", "One instance of tool_runner is called without a stored queue.",
        ("direct_call",), (_model(tools.CallRequested),), (PLANNER,), (TOOL_RUNNER,), replies=DIRECT_REPLIES,
    ),
    Channel(
        "direct_status", "direct.{instance}.status", "Whether the instance has received a direct call.",
        ("direct_status",), (_model(direct.ReceivedQuestion),), (PLANNER,), (TOOL_RUNNER,),
        replies=(_model(direct.ReceivedAnswer),),
    ),
    Channel(
        "runner", "direct.here", "An instance of tool_runner says every second that it takes direct calls.",
        ("RUNNER_ANNOUNCEMENTS",), (_model(direct.RunnerAnnouncement),), (TOOL_RUNNER,), (PLANNER, TOOL_RUNNER),
    ),
    Channel(
        "tool", "tool.{tool}", "One instance of a tool is called; its last reply is a result or a failure.",
        ("tool",),
        (_model(tools.ToolCall),), (TOOL_RUNNER,), (TOOL,), queue="{tool}", replies=TOOL_REPLIES,
    ),
    Channel(
        "tool_status", "tool.{tool}.status",
        "All instances get it; the one that works on the call replies as to the call.",
        ("tool_status",), (_model(tools.CallQuestion),), (TOOL_RUNNER,), (TOOL,), replies=TOOL_REPLIES,
    ),
    Channel(
        "tool_cancel", "tool.{tool}.cancel", "All instances get it; the one that works on the call stops it.",
        ("tool_cancel",),
        (_model(tools.CallQuestion),), (TOOL_RUNNER, PLANNER), (TOOL,),
    ),
    Channel(
        "tool_rejected", "tool.{tool}.rejected",
        "All instances get it; the one whose result was not accepted logs why.",
        ("tool_rejected",), (_model(tools.ResultRejected),), (TOOL_RUNNER,), (TOOL,),
    ),
    Channel(
        "tool_check", "check.tool", "An operator asks for the check of a tool; heartbeats come until it ends.",
        ("RUNNER_CHECKS",), (_model(tool_checks.CheckTool),), (), (TOOL_RUNNER,), queue=TOOL_RUNNER,
        replies=TOOL_CHECK_REPLIES,
    ),
    Channel(
        "answer", "answer.{tool}.{instance}.{key}",
        "The reply subject of what tool_runner sends to a tool. Only the tool may publish it.",
        ("answer", "answers_to", "answers_of", "ALL_ANSWERS"),
        (*TOOL_REPLIES, MICRO), (TOOL,), (TOOL_RUNNER,),
    ),
    Channel(
        "discovery", "discover.PING", "Which tools are there? They receive it as `$SRV.PING`.", ("ALL_DISCOVERY",),
        (EMPTY,), (TOOL_RUNNER,), (TOOL,), replies=(MICRO,),
    ),
    Channel(
        "hello", "hello.{instance}", "The reply subject of `discover.PING`. A name is a hint: any tool may send it.",
        ("hello", "ALL_HELLOS"),
        (MICRO,), (TOOL,), (TOOL_RUNNER,),
    ),
    Channel(
        "discovered_tool", "discover.INFO.{tool}",
        "Its instances reply with the specification on `answer`. They receive it as `$SRV.INFO.<tool>`.",
        ("discover_info",),
        (EMPTY,), (TOOL_RUNNER,), (TOOL,), replies=(MICRO,),
    ),
    Channel(
        "discovered_instance", "discover.PING.{tool}.{tool_instance}",
        "Is the instance that misses its heartbeats still connected? It receives it as `$SRV.PING.<tool>.<id>`.",
        ("discover_ping",),
        (EMPTY,), (TOOL_RUNNER,), (TOOL,), replies=(MICRO,),
    ),
    Channel(
        "micro", "$SRV.{verb}", "A question to all NATS micro services.", ("ALL_MICRO",),
        (EMPTY,), (LISTENER,), (TOOL, *SERVICES), replies=(MICRO,),
    ),
    Channel(
        "micro_service", "$SRV.{verb}.{service}", "The same, to the instances of one service.", (),
        (EMPTY,), (LISTENER,), (TOOL, *SERVICES), replies=(MICRO,),
    ),
    Channel(
        "micro_instance", "$SRV.{verb}.{service}.{instance}", "The same, to one instance.", (),
        (EMPTY,), (LISTENER,), (TOOL, *SERVICES), replies=(MICRO,),
    ),
)  # fmt: skip

_PUT = Body("ArtifactBytes", RAW, "At most 2 MiB.", BYTES, {artifacts.ARTIFACT_HEADER: "PutArtifact as JSON"})
_CHUNK = Body(
    "UploadChunk", RAW, "2 MiB, or less.", BYTES, {artifacts.UPLOAD_HEADER: "upload_id", artifacts.SEQ_HEADER: "from 0"}
)
_RANGE = Body(
    "ArtifactRange", RAW, "The bytes.", BYTES, {artifacts.ARTIFACT_HEADER: "ArtifactRef as JSON"},
)  # fmt: skip
_ALL = (GATEWAY, PLANNER, TOOL_RUNNER)


def _stored(kind: type[BaseModel]) -> Body:
    """A reply to a put, or to a part of it."""
    return Body(kind.__name__, kind, headers={artifacts.WARNING_HEADER: "if there is a warning: one sentence"})


OF_ARTIFACTS = (
    _asks("put", "ARTIFACT_PUT", _ALL, _PUT, _stored(artifacts.ArtifactRef)),
    _asks("open", "ARTIFACT_OPEN", _ALL, _model(artifacts.PutArtifact), _stored(artifacts.UploadOpened)),
    Channel(
        "artifact_chunk", "artifact.chunk.{instance}", "The next bytes of an upload, to the instance that opened it.",
        ("artifact_chunk",),
        (_CHUNK,), _ALL, (STORE,), replies=(_stored(artifacts.ChunkTaken), FAULT),
    ),
    _asks("get", "ARTIFACT_GET", _ALL, _model(artifacts.GetArtifact), _RANGE),
    _asks("head", "ARTIFACT_HEAD", _ALL, _model(artifacts.HeadArtifact), _model(artifacts.StoredArtifact)),
    _asks("list", "ARTIFACT_LIST", (GATEWAY, PLANNER), _model(artifacts.ListArtifacts), _model(artifacts.ArtifactPage)),
    _asks("delete", "ARTIFACT_DELETE", _ALL, _model(artifacts.DeleteArtifact), _model(artifacts.ArtifactDeleted)),
    _asks(
        "assemble", "ARTIFACT_ASSEMBLE", (TOOL_RUNNER,), _model(artifacts.AssembleStream),
        _model(artifacts.AssembledStream),
    ),
)  # fmt: skip


_DEAD = {
    "Runwire-Dead-Reason": "why it could not be processed",
    "Runwire-Dead-Subject": "its subject",
    "Runwire-Dead-Deliveries": "number of deliveries",
}
_COUNT = Body("Handlings", {"type": "integer", "minimum": 1}, "The number.")
ASIDE = (
    Channel(
        "dead", "dead.{stream}", "Dead letters: messages that could not be processed, for people.",
        ("dead", "ALL_DEAD"),
        (Body("DeadMessage", RAW, "The message as it was received.", BYTES, _DEAD),), (PLANNER, TOOL_RUNNER),
        (), subjects.DEAD,
    ),
    Channel(
        "handling", "handling.{stream}.{sequence}", "The number of handlings of a message.",
        ("handlings", "ALL_HANDLINGS"),
        (_COUNT,), (PLANNER, TOOL_RUNNER), (PLANNER, TOOL_RUNNER), subjects.HANDLINGS,
    ),
    Channel(
        "probe", "probe.{kept_in}", "A test whether a stream or bucket stores messages; nobody reads it.",
        ("probe",),
        (ANY_BYTES,), SERVICES, (), "every stream",
    ),
)  # fmt: skip

CHANNELS = (*OF_RUNS, *OF_SESSIONS, *OF_TOOLS, *OF_ARTIFACTS, *IN_BUCKETS, *ASIDE)
