"""Every subject and every key, built and parsed in one place.

Rule 1: nobody else writes or splits a subject. A name that comes from outside is checked here, or it does not reach the server.
Rule 2: what is not well-formed is refused with `InvalidName`: wildcards, dots, spaces, control characters, empty, too long, not ASCII.
Rule 3: what is built here is described in `channels`, from which `asyncapi.json` is made.
Rule 4: two exact subjects per run (`log`, `stream`), never one per event type: an exact read costs the same at a million messages.

Who writes each of them and who reads it, and which stream keeps it: docs/architecture.md#subjects-and-streams.
"""

import hashlib
import re
from dataclasses import dataclass

_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
_TENANT = re.compile(r"[a-z0-9_-]{1,64}", re.ASCII)
_TOOL = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_MESSAGE = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{24}", re.ASCII)
_STREAM = re.compile(r"[A-Z]{1,32}", re.ASCII)
_ANY_STREAM = re.compile(r"[A-Z]{1,32}|KV_[a-z]{1,32}", re.ASCII)
_PLACE = re.compile(r"([0-9a-f]{32}|-)\.([0-9a-f]{32}|-)", re.ASCII)
_BLOB = re.compile(r"[0-9a-f]{64}(-[1-9][0-9]{0,8})?", re.ASCII)
_SHOWN = 40

DEFAULT_TENANT = "default"
"""The tenant of a caller on loopback who shows no key."""

REQUESTS, INBOX, RUNS, CALLS, TIMERS, DEAD = "REQUESTS", "INBOX", "RUNS", "CALLS", "TIMERS", "DEAD"
HANDLINGS = "HANDLINGS"
CATALOGUE_BUCKET, RUNS_BUCKET, ARTIFACTS_BUCKET = "catalogue", "runs", "artifacts"

_STREAMS = {
    "request": REQUESTS,
    "inbox": INBOX,
    "control": INBOX,
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
ALL_OF_RUNS, LIVE_OF_RUNS = "emit.*.*.*", "run.{{wildcard(1)}}.{{wildcard(2)}}.{{wildcard(3)}}"
"""What the server republishes, and where."""
ALL_CONTEXTS = "context.*.*"
ALL_CALLS = "call.*.*.*"
ALL_TIMERS, ALL_DUE = "timer.*.*.*", "due.*.*.*"
DUE_IN_INBOX = "inbox.{{wildcard(1)}}.{{wildcard(2)}}.{{wildcard(3)}}"
"""Where INBOX puts what it takes from ALL_DUE."""
ALL_DEAD = "dead.>"
ALL_HANDLINGS = "handling.*.*"
ALL_SPECS, ALL_TOOLS, ALL_REFUSED, ALL_MODELS = "spec.*", "tool.*", "refused.*", "model.*"
ALL_DELETIONS = "deleted.*.*"

ARTIFACT_PUT, ARTIFACT_OPEN, ARTIFACT_GET, ARTIFACT_HEAD = "artifact.put", "artifact.open", "artifact.get", "artifact.head"
ARTIFACT_LIST, ARTIFACT_DELETE, ARTIFACT_PRESIGN = "artifact.list", "artifact.delete", "artifact.presign"
ARTIFACT_ASSEMBLE = "artifact.assemble"
ARTIFACT_OWNER_KEY = "owner"
"""The key, in the bucket of artifacts, of the mark that lies in the S3 bucket too."""


class InvalidName(ValueError):
    """A name cannot be part of a subject or key: it says which name, and what form is expected."""


def _checked(pattern: re.Pattern[str], what: str, value: object) -> str:
    if isinstance(value, str) and pattern.fullmatch(value):
        return value
    shown = repr(value)
    if len(shown) > _SHOWN:
        shown = shown[:_SHOWN] + "…"
    raise InvalidName(f"{shown} is not a {what}: expected {pattern.pattern}")


def checked_id(value: object) -> str:
    """Return `value` if it is the id of a run or artifact, else raise InvalidName."""
    return _checked(_ID, "valid id", value)


def checked_tenant(value: object) -> str:
    """Return `value` if it is a tenant's name, else raise InvalidName."""
    return _checked(_TENANT, "tenant name", value)


def checked_tool(value: object) -> str:
    """Return `value` if it is a tool's name, else raise InvalidName."""
    return _checked(_TOOL, "tool name", value)


def checked_message(value: object) -> str:
    """Return `value` if it may name a message of a run (a call id, a timer), else raise InvalidName."""
    return _checked(_MESSAGE, "message name", value)


def request(tenant: str, run: str) -> str:
    """Where a run is asked for."""
    return f"request.{checked_tenant(tenant)}.{checked_id(run)}"


def inbox(tenant: str, run: str, message: str) -> str:
    """Where a run's results and timers arrive."""
    return f"inbox.{checked_tenant(tenant)}.{checked_id(run)}.{checked_message(message)}"


def control(tenant: str, run: str, message: str) -> str:
    """Where people steer a run; never waits behind a model."""
    return f"control.{checked_tenant(tenant)}.{checked_id(run)}.{checked_message(message)}"


def log(tenant: str, run: str) -> str:
    """The run's facts; only the planner writes it, fenced."""
    return f"emit.{checked_tenant(tenant)}.{checked_id(run)}.log"


def stream(tenant: str, run: str) -> str:
    """The run's tokens and progress."""
    return f"emit.{checked_tenant(tenant)}.{checked_id(run)}.stream"


def context(tenant: str, run: str) -> str:
    """What the run's caller gave for its tools alone. It is not under `emit`, so it is never republished."""
    return f"context.{checked_tenant(tenant)}.{checked_id(run)}"


def of_run(tenant: str, run: str) -> tuple[str, ...]:
    """All subjects of RUNS that hold something of a run: purging them removes it."""
    return log(tenant, run), stream(tenant, run), context(tenant, run)


def live(tenant: str, run: str) -> str:
    """Both subjects of the run as republished once stored: what listeners subscribe to."""
    return f"run.{checked_tenant(tenant)}.{checked_id(run)}.*"


def live_log(tenant: str, run: str) -> str:
    """The run's facts as republished once stored."""
    return f"run.{checked_tenant(tenant)}.{checked_id(run)}.log"


def call(tenant: str, run: str, tool: str) -> str:
    """Where a call waits for a tool runner."""
    return f"call.{checked_tenant(tenant)}.{checked_id(run)}.{checked_tool(tool)}"


def calls_of(tool: str) -> str:
    """The filter of the tool's own consumer."""
    return f"call.*.*.{checked_tool(tool)}"


def called_tool(subject: str) -> str:
    """The tool of a call's subject, whatever else that names: what is not well-formed has to be read too. Raises InvalidName."""
    return checked_tool(subject.rpartition(".")[2])


def calls_of_tenant(tenant: str, tool: str) -> str:
    """All calls of a tenant to a tool that have no outcome yet."""
    return f"call.{checked_tenant(tenant)}.*.{checked_tool(tool)}"


def calls_consumer(tool: str) -> str:
    """The durable consumer of the tool's calls."""
    return f"tool_{checked_tool(tool)}"


def tool(name: str) -> str:
    """Where copies of a tool take calls, as one queue group."""
    return f"tool.{checked_tool(name)}"


def tool_status(name: str) -> str:
    """Where every copy of a tool is asked whether it holds a call."""
    return f"tool.{checked_tool(name)}.status"


def tool_cancel(name: str) -> str:
    """Where every copy of a tool is told to stop a call."""
    return f"tool.{checked_tool(name)}.cancel"


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
    """Where a timer goes off; INBOX takes it from there."""
    return f"due.{checked_tenant(tenant)}.{checked_id(run)}.{checked_message(message)}"


def dead(stream_name: str) -> str:
    """Where messages of a stream are kept that could not be processed."""
    return f"dead.{_checked(_STREAM, 'stream name', stream_name)}"


def handlings(stream_name: str, sequence: int) -> str:
    """Where it is counted how often the handling of a message of a stream was begun."""
    return f"handling.{_checked(_STREAM, 'stream name', stream_name)}.{int(sequence)}"


def probe(stream_name: str) -> str:
    """Where a service tries whether a stream or bucket stores; nobody reads it."""
    return f"probe.{_checked(_ANY_STREAM, 'stream name', stream_name)}"


def stream_of(subject_name: str) -> str | None:
    """The stream or bucket that keeps what is published on a subject; None where none does."""
    kind, _, rest = subject_name.partition(".")
    return f"KV_{rest.partition('.')[0]}" if kind == "$KV" else _STREAMS.get(kind)


def tool_key(name: str) -> str:
    """The catalogue's key of a live tool; it expires when the tool is gone."""
    return f"tool.{checked_tool(name)}"


def refused_key(name: str) -> str:
    """The catalogue's key of a tool that announces itself and is not taken; it expires when it does so no longer."""
    return f"refused.{checked_tool(name)}"


def spec_key(digest: str) -> str:
    """The catalogue's key of a tool's specification; runs pin it, so it stays."""
    return f"spec.{_checked(_DIGEST, 'digest', digest)}"


def model_key(name: str) -> str:
    """The catalogue's key of a model's profile: its name, with `=XX` for each byte that keys do not take."""
    return "model." + re.sub(rb"[^A-Za-z0-9_/-]", lambda found: b"=%02X" % found[0][0], name.encode("utf-8", "surrogatepass")).decode()


def run_key(tenant: str, requested_at: int, run: str) -> str:
    """The run's key in the index; keys of a tenant sort by the time of the request (`requested_at` in Unix ms)."""
    return f"{checked_tenant(tenant)}.{requested_at:012x}{checked_id(run)}"


def parse_run_key(key: str) -> tuple[str, str]:
    """Return tenant and run of a key in the index, or raise InvalidName."""
    tenant, _, rest = key.partition(".")
    if not re.fullmatch(r"[0-9a-f]{12}", rest[:12], re.ASCII):
        raise InvalidName(f"{key[:_SHOWN]!r} is not the key of a run")
    return checked_tenant(tenant), checked_id(rest[12:])


def runs_of(tenant: str) -> str:
    """All keys of a tenant in the index of runs."""
    return f"{checked_tenant(tenant)}.*"


def deletion_key(tenant: str, run: str) -> str:
    """The key, in the index of runs, of a run's deletion; three tokens, so it is none of a tenant's runs."""
    return f"deleted.{checked_tenant(tenant)}.{checked_id(run)}"


def parse_deletion(subject: str) -> tuple[str, str]:
    """Return tenant and run of a deletion's subject in the bucket, or raise InvalidName."""
    tenant, _, run = subject.removeprefix(f"$KV.{RUNS_BUCKET}.deleted.").partition(".")
    if subject != f"$KV.{RUNS_BUCKET}.{deletion_key(tenant, run)}":
        raise InvalidName(f"{subject[:_SHOWN]!r} is not the subject of a deletion")
    return tenant, run


def everything_of(tenant: str, run: str) -> list[tuple[str, str]]:
    """Each stream that may hold messages of a run, but for its log, the index and DEAD, with their pattern."""
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


def artifact_chunk(copy: str) -> str:
    """Where one copy of the artifact store takes the chunks of uploads that it has opened."""
    return f"artifact.chunk.{checked_id(copy)}"


def reference_key(tenant: str, artifact: str) -> str:
    """The reference to an artifact, in the bucket of artifacts."""
    return f"ref.{checked_tenant(tenant)}.{checked_id(artifact)}"


def blob_key(tenant: str, name: str) -> str:
    """Who holds the blob `name`: its SHA-256, with a number where the same bytes are kept more than once."""
    return f"blob.{checked_tenant(tenant)}.{_checked(_BLOB, 'blob name', name)}"


def parse_blob_key(key: str) -> tuple[str, str]:
    """Return tenant and name of a blob from its record's key, or raise InvalidName."""
    _, tenant, name = (*key.split("."), "", "")[:3]
    if key != blob_key(tenant, name):
        raise InvalidName(f"{key[:_SHOWN]!r} is not the key of a blob's record")
    return tenant, name


def is_blob_key(key: str) -> bool:
    """Whether a key of the bucket of artifacts is that of a blob's record."""
    return key.startswith("blob.")


def is_place_key(key: str) -> bool:
    """Whether a key of the bucket of artifacts is an entry of a session or run."""
    return key.startswith("list.")


def object_key(tenant: str, name: str) -> str:
    """Where the bytes of a blob lie in the S3 bucket: of [a-z0-9/_-] only, since servers differ on everything else."""
    return f"{checked_tenant(tenant)}/{_checked(_BLOB, 'blob name', name)[:2]}/{name}"


def parse_object_key(key: str) -> tuple[str, str]:
    """Return tenant and name of a blob, or raise InvalidName."""
    tenant, _, rest = key.partition("/")
    name = rest.partition("/")[2]
    if key != object_key(tenant, name):
        raise InvalidName(f"{key[:_SHOWN]!r} is not the key of a blob")
    return tenant, name


def place(session: str | None, run: str | None) -> str:
    """Where an artifact belongs, as two tokens. A session's name is the caller's own text, so its digest stands for it."""
    in_session = "-" if session is None else hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{in_session}.{checked_id(run) if run else '-'}"


def place_key(tenant: str, where: str, artifact: str) -> str:
    """An artifact's entry among those of its session and run; `where` comes from `place`."""
    return f"list.{checked_tenant(tenant)}.{_checked(_PLACE, 'place', where)}.{checked_id(artifact)}"


def parse_place_key(key: str) -> tuple[str, str]:
    """Return tenant and artifact of an entry, or raise InvalidName."""
    _, tenant, session, run, artifact = (*key.split("."), "", "", "", "", "")[:5]
    if key != place_key(tenant, f"{session}.{run}", artifact):
        raise InvalidName(f"{key[:_SHOWN]!r} is not the key of an entry")
    return tenant, artifact


def places_of(tenant: str, session: str | None, run: str | None) -> str:
    """The pattern of all entries of a session, of a run, or of a run in a session (the fastest); of the tenant if neither is given."""
    in_session, in_run = place(session, run).split(".")
    return f"list.{checked_tenant(tenant)}.{in_session if session is not None else '*'}.{in_run if run else '*'}.*"


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed subject of a run. `name` is its message, tool or `log`/`stream`; empty for a request."""

    kind: str
    tenant: str
    run: str
    name: str = ""


def tenant_of(subject: str) -> str:
    """The tenant that a subject of a run names, unchecked: good for sharing out, not for addressing. Empty where it names none."""
    _, _, rest = subject.partition(".")
    return rest.partition(".")[0]


def parse(subject: str) -> Address:
    """Take apart a subject of a run, or raise InvalidName."""
    kind, *rest = subject.split(".")
    match kind, rest:
        case "request" | "context", [tenant, run]:
            return Address(kind, checked_tenant(tenant), checked_id(run))
        case "inbox" | "control" | "timer" | "due", [tenant, run, message]:
            return Address(kind, checked_tenant(tenant), checked_id(run), checked_message(message))
        case "call", [tenant, run, name]:
            return Address(kind, checked_tenant(tenant), checked_id(run), checked_tool(name))
        case "emit" | "run", [tenant, run, "log" | "stream" as name]:
            return Address(kind, checked_tenant(tenant), checked_id(run), name)
    raise InvalidName(f"{subject[:_SHOWN]!r} is not a subject of a run")
