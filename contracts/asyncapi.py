"""The AsyncAPI 3 document of every subject, as plain data, made from the tables of subjects and the messages.

It describes the whole system, not one application. An operation is what one service (its tag) sends or receives on a
channel. The replies to a request are a channel of their own, whose address is only known at run time.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from . import artifacts
from .runs import inbox
from .runs import requests as runs
from .sessions import proposals, schedules, tasks
from .sessions import records as sessions
from .tools import messages as tools
from .wire import faults, records, subjects
from .wire.keys import ENTRIES
from .wire.subject import PARAMETERS, ROLES, Subject

JSON, BYTES = "application/json", "application/octet-stream"
RAW = {"type": "string", "format": "binary"}


@dataclass(frozen=True, slots=True)
class Body:
    """One kind of message. `schema` is a model of this package, or a JSON Schema where the content is another's."""

    name: str
    schema: type[BaseModel] | dict[str, Any]
    summary: str = ""
    content: str = JSON
    headers: dict[str, str] = field(default_factory=dict)


def _kind(reply: str) -> dict[str, str]:
    return {tools.REPLY_HEADER: reply}


_LIVES = {"Nats-TTL": "seconds; the entry expires unless it is written again"}
_SCHEDULE = {"Nats-Schedule": "@at and the time", "Nats-Schedule-Target": "the run's subject `due`"}
_OBJECT = {"type": "object"}
_STORED = {artifacts.WARNING_HEADER: "if there is a warning: one sentence"}
_DIRECT = tools.DIRECT_HEADER
_RECORD_HEADERS = {records.EVENTS_HEADER: "types of its events"}
_PAUSES = {
    records.PAUSES_HEADER: "number of open pauses after this record of a log, if there are any",
    records.VERSION_HEADER: "version of the planner that wrote this record of a log",
}
_CHECKPOINT = {sessions.CHECKPOINT_HEADER: "sequence of the newest checkpoint on this subject"}
_UPLOAD = {artifacts.UPLOAD_HEADER: "upload_id", artifacts.SEQ_HEADER: "from 0"}
_DEAD = {
    "Runwire-Dead-Reason": "why it could not be processed",
    "Runwire-Dead-Subject": "its subject",
    "Runwire-Dead-Deliveries": "number of deliveries",
}
# fmt: off
BODIES = (
    Body("Bytes", RAW, "The message as it was received.", BYTES),
    Body("Empty", RAW, "No bytes: the question is the subject.", BYTES),
    Body("Failure", faults.Fault, "What went wrong.", headers=_kind("failure")),
    Body("RunRequested", runs.RunRequested, headers={sessions.SESSION_HEADER: "key of the session that makes the run"}),
    Body("Record", records.Record, "All events of one transition, in order.", headers=_RECORD_HEADERS | _PAUSES),
    Body(
        "SessionRecord", sessions.SessionRecord, "All events of one transition of a session, in order.",
        headers=_RECORD_HEADERS | _CHECKPOINT,
    ),
    Body("TimerSet", inbox.TimerFired, "It is published on `due` at its time.", headers=_SCHEDULE),
    Body("GroupTimeOutSet", inbox.GroupDue, "The same, of a group of a session.", headers=_SCHEDULE),
    Body("FireTimeSet", inbox.ScheduleDue, "The same, of a schedule.", headers=_SCHEDULE),
    Body(
        "Result", {}, "Any JSON that the tool's output schema allows; ends the call.",
        headers=_kind("result, or no such header"),
    ),
    Body("ToolFailure", tools.ToolFailure, "Ends the call; the model reads the reason.", headers=_kind("failure")),
    Body("Heartbeat", tools.Heartbeat, headers=_kind("heartbeat")),
    Body("Progress", tools.Progress, headers=_kind("progress")),
    Body("ArtifactPiece", tools.ArtifactPiece, headers=_kind("artifact_chunk")),
    Body("Content", {"type": "string"}, "For the model, beside the result; UTF-8.", "text/plain", _kind("content")),
    Body("BytesWanted", artifacts.BytesWanted, headers=_kind("wanted")),
    Body("BytesGiven", RAW, "Bytes of an artifact.", BYTES, {artifacts.GIVEN_HEADER: "BytesGiven as JSON"}),
    Body("Part", RAW, "A piece of a large result.", BYTES, _kind("part")),
    Body("Declined", tools.Declined, headers=_kind("declined")),
    Body("Pause", tools.PauseReply, "Ends this round of the call; a person is asked.", headers=_kind("pause")),
    Body(
        "MicroAnswer", _OBJECT,
        "As NATS micro services answer; a tool's endpoint holds its ToolSpec in `runwire.spec`.",
    ),
    Body("ToolChecked", tools.ToolChecked, headers=_kind("result")),
    Body("StillChecking", RAW, "No bytes: the check goes on.", BYTES, _kind("heartbeat")),
    Body("Begun", RAW, "The tool is called next.", BYTES, {_DIRECT: "begun"}),
    Body("Finished", inbox.CallFinished, "The outcome.", headers={_DIRECT: "finished"}),
    Body("DeclinedDirectly", RAW, "Not begun; it goes to CALLS.", BYTES, {_DIRECT: "declined"}),
    Body("Unfinished", RAW, "Begun, and not ended in time.", BYTES, {_DIRECT: "unfinished"}),
    Body("ArtifactBytes", RAW, "At most 2 MiB.", BYTES, {artifacts.ARTIFACT_HEADER: "PutArtifact as JSON"}),
    Body("UploadChunk", RAW, "2 MiB, or less.", BYTES, _UPLOAD),
    Body(
        "ArtifactRange", RAW, "The bytes.", BYTES,
        {artifacts.ARTIFACT_HEADER: "ArtifactRef as JSON", **_kind("result")},
    ),
    Body("ArtifactRef", artifacts.ArtifactRef, headers=_STORED | _kind("result")),
    Body("UploadOpened", artifacts.UploadOpened, headers=_STORED | _kind("result")),
    Body("ChunkTaken", artifacts.ChunkTaken, headers=_STORED),
    *(
        Body(model.__name__, model, headers=_kind("result"))
        for model in (
            artifacts.StoredArtifact, artifacts.ArtifactPage, artifacts.ArtifactDeleted,
            artifacts.AssembledStream,
        )
    ),
    Body("LiveToolSpec", tools.LiveTool, headers=_LIVES),
    Body("RefusedTool", tools.RefusedTool, headers=_LIVES),
    Body("ModelProfile", artifacts.ModelProfile, headers=_LIVES),
    Body("KeySpent", runs.KeySpent, headers=_LIVES),
    Body("Reference", _OBJECT, "Private to the store."),
    Body("Listing", {"type": "integer"}, "The time of the entry, Unix ms."),
    Body("OwnId", _OBJECT, "Private to the store."),
    Body("BucketOwner", {"type": "string"}, "The mark that the S3 bucket holds too.", "text/plain"),
    Body("DeadMessage", RAW, "The message as it was received.", BYTES, _DEAD),
    Body("Handlings", {"type": "integer", "minimum": 1}, "The number."),
    Body("HeldMessages", {"type": "array", "items": {"type": "string"}}, "Where each is acknowledged or refused."),
)
# fmt: on
_BY_NAME = {body.name: body for body in BODIES}
"""Messages that are more, or else, than a model of their name."""
_MODELS = (artifacts, inbox, proposals, runs, schedules, sessions, tasks, tools)
_ASIDE = (subjects.dead, subjects.handlings, subjects.held, subjects.planner_here, subjects.probe)
CHANNELS = (*(row for row in subjects.SUBJECTS if row not in _ASIDE), *ENTRIES, *_ASIDE)


def body(name: str) -> Body:
    """Return the message that the tables name so: one of `BODIES`, else a model as JSON."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    return Body(name, next(vars(module)[name] for module in _MODELS if name in vars(module)))


def bodies(names: tuple[str, ...]) -> dict[str, Body]:
    """Return messages by their names."""
    return {name: body(name) for name in names}


_REF = "#/components/schemas/{model}"
_ABOUT = """All messages between the services, tools and listeners of Runwire over NATS.
If a stream stores the messages of a subject, `x-stream` names it, and `x-consumer` the consumer that delivers them.
The API of NATS itself (`$JS.API`, acknowledgements) is not described here."""


def document() -> dict[str, Any]:
    """Return the document."""
    known = bodies(tuple(name for row in CHANNELS for name in (*row.carries, *row.replies)))
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    models = {body.schema for body in known.values() if isinstance(body.schema, type)}
    _, found = models_json_schema(
        [(model, "validation") for model in sorted(models, key=lambda model: model.__name__)], ref_template=_REF
    )
    for channel in CHANNELS:
        channels[channel.name] = _channel(channel)
        if channel.replies:
            where = f"The reply subject of a request on `{channel.channel}`."
            messages = _messages(channel.replies)
            channels[f"{channel.name}_reply"] = {"address": None, "description": where, "messages": messages}
        operations |= _operations(channel)
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Runwire",
            "version": f"{records.VERSION}.0.0",
            "description": _ABOUT,
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": {
            "nats": {
                "host": "127.0.0.1:4222",
                "protocol": "nats",
                "security": [{"$ref": "#/components/securitySchemes/login"}],
            }
        },
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": {name: _message(body) for name, body in sorted(known.items())},
            "schemas": {name: _plain(schema) for name, schema in sorted(found["$defs"].items())},
            "parameters": {name: {"description": parameter.meaning} for name, parameter in PARAMETERS.items()},
            "securitySchemes": {
                "login": {"type": "userPassword", "description": "RUNWIRE_NATS_USER and RUNWIRE_NATS_PASSWORD"}
            },
            "tags": {name: {"name": name, "description": text} for name, text in ROLES.items()},
        },
    }


def text() -> str:
    """Return the text of the file."""
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


def _channel(channel: Subject) -> dict[str, Any]:
    names = re.findall(r"\{(\w+)\}", channel.address)
    made: dict[str, Any] = {
        "address": channel.channel,
        "description": channel.meaning,
        "messages": _messages(channel.carries),
    }
    if names:
        made["parameters"] = {name: {"$ref": f"#/components/parameters/{name}"} for name in names}
    if channel.kept_in:
        made["x-stream"] = channel.kept_in
        if channel.queue:
            made["x-consumer"] = channel.queue
    return made


def _messages(names: tuple[str, ...]) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/messages/{name}"} for name in names}


def _operations(channel: Subject) -> dict[str, Any]:
    """What each service does on a channel."""
    made = {}
    receivers = (*channel.reads, *channel.counted_by)
    for action, verb, roles in (("send", "sends", channel.writes), ("receive", "receives", receivers)):
        for role in roles:
            operation: dict[str, Any] = {
                "action": action,
                "channel": {"$ref": f"#/channels/{channel.name}"},
                "tags": [{"$ref": f"#/components/tags/{role}"}],
                "messages": _named(channel.name, channel.carries),
            }
            if channel.queue and not channel.kept_in and action == "receive":
                operation["bindings"] = {"nats": {"queue": channel.queue, "bindingVersion": "0.1.0"}}
            if channel.replies:
                reply = f"{channel.name}_reply"
                operation["reply"] = {
                    "channel": {"$ref": f"#/channels/{reply}"},
                    "messages": _named(reply, channel.replies),
                }
            made[f"{role.replace('-', '_')}_{verb}_{channel.name}"] = operation
    return made


def _named(channel: str, names: tuple[str, ...]) -> list[dict[str, str]]:
    return [{"$ref": f"#/channels/{channel}/messages/{name}"} for name in names]


def _message(body: Body) -> dict[str, Any]:
    is_model = isinstance(body.schema, type)
    payload = {"$ref": _REF.format(model=body.schema.__name__)} if isinstance(body.schema, type) else body.schema
    made: dict[str, Any] = {"name": body.name, "contentType": body.content, "payload": payload}
    if body.summary or is_model:
        made["summary"] = body.summary or (body.schema.__doc__ or "").partition("\n")[0]
    if body.headers:
        properties = {name: {"type": "string", "description": meaning} for name, meaning in body.headers.items()}
        made["headers"] = {"type": "object", "properties": properties}
    return made


def _plain(schema: Any) -> Any:
    """Return a schema without OpenAPI's `discriminator`, which AsyncAPI only knows as a string.

    Each member of a union has a constant `type` or `kind`.
    """
    if isinstance(schema, dict):
        is_union = isinstance(schema.get("discriminator"), dict) and "propertyName" in schema["discriminator"]
        return {name: _plain(value) for name, value in schema.items() if not (is_union and name == "discriminator")}
    return [_plain(value) for value in schema] if isinstance(schema, list) else schema
