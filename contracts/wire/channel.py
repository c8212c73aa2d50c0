"""What a description of a subject consists of: roles, parameters, messages. The descriptions are in `channels`."""

from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

PLANNER, TOOL_RUNNER, GATEWAY, STORE = "planner", "tool_runner", "gateway", "artifact_store"
TOOL, LISTENER, NATS = "tool", "listener", "nats-server"
SERVICES = (GATEWAY, PLANNER, TOOL_RUNNER, STORE)
ROLES = {
    GATEWAY: "answers HTTP and writes the requests of people",
    PLANNER: "writes the logs of runs and calls models",
    TOOL_RUNNER: "finds tools and calls them",
    STORE: "stores artifacts in an S3 server",
    TOOL: "any program that answers calls, in any language",
    LISTENER: "any program that watches runs",
    NATS: "the server itself, as its streams are configured",
}

PARAMETERS = {
    "artifact": "id of an artifact: 32 lower-case hexadecimal digits",
    "blob": "SHA-256 of the bytes, and a number where they were stored more than once",
    "digest": "24 hexadecimal digits that name a ToolSpec",
    "entry": "Unix time of the request in ms, 12 hexadecimal digits, and the run's id",
    "instance": "id of an instance of the service: 32 hexadecimal digits",
    "key": "tells the requests of one instance apart: [A-Za-z0-9_-]{1,64}",
    "kept_in": "name of a stream, or KV_ and the name of a bucket",
    "message": "name of a message of the run, such as a call id: [A-Za-z0-9_-]{1,64}",
    "model": "name of a model, with =XX for each byte that keys do not take",
    "namespace": "first 32 hexadecimal digits of the SHA-256 of an artifact's namespace, mostly the name of its tool",
    "own_id": "first 32 hexadecimal digits of the SHA-256 of the id that a tool gave its artifact",
    "run": "id of a run: 32 lower-case hexadecimal digits",
    "run_or_none": "id of a run, or - for none",
    "schedule": "id of a schedule or webhook: 32 lower-case hexadecimal digits",
    "sequence": "sequence of a message in its stream",
    "service": "name of a NATS micro service",
    "session": "first 32 hexadecimal digits of the SHA-256 of a session's name, or - for none",
    "api_key": "the first 32 digits of the SHA-256 of the API key's id",
    "day": "a day by UTC, as YYYYMMDD",
    "session_entry": "Unix time of the session's creation in ms, 12 hexadecimal digits, and `session_key`",
    "session_key": "first 32 hexadecimal digits of the SHA-256 of a session's id",
    "stream": "name of a stream: [A-Z]{1,32}",
    "tenant": "name of a tenant: [a-z0-9_-]{1,64}",
    "tool": "name of a tool: [A-Za-z0-9_-]{1,64}",
    "tool_instance": "id of an instance of a tool, as its micro service has it: [A-Za-z0-9_-]{1,64}",
    "verb": "PING, INFO or STATS",
}

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


@dataclass(frozen=True, slots=True)
class Channel:
    """One family of subjects.

    `built_by` names the functions and constants of `subjects` and `keys` that return it, or a pattern over it.
    `kept_in`: the stream that stores the messages, or the stream of a bucket. `queue`: with a stream the name of its
    consumer, else the queue group.
    """

    name: str
    address: str
    meaning: str
    built_by: tuple[str, ...]
    bodies: tuple[Body, ...]
    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    kept_in: str = ""
    queue: str = ""
    replies: tuple[Body, ...] = ()
