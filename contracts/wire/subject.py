"""What a row of the tables in `subjects` and `keys` is: who writes, who reads, what it carries, where it is kept.

Rule 1: a name becomes part of a subject or key here and nowhere else, after it has been checked.
Rule 2: a name that is not well-formed is refused with `InvalidName`: wildcards, dots, spaces, control characters, an
empty or long name, characters outside ASCII.
Rule 3: messages are named, not imported, since `runwire up` reads the tables in a process that stays small.
"""

import re
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import NamedTuple

from .names import ID, MESSAGE, TENANT, TOOL_NAME, Form, InvalidName, shortened

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

_DIGEST = Form("digest", r"[0-9a-f]{32}")
_ENTRY = Form("time and id", r"[0-9a-f]{44}")
_ID_OR_NONE = Form("valid id or -", r"[0-9a-f]{32}|-")
_KEPT_IN = Form("stream name", r"[A-Z]{1,32}|KV_[a-z]{1,32}")


class Parameter(NamedTuple):
    """A name in an address: its form, and what it means."""

    form: Form
    meaning: str


PARAMETERS = {
    "artifact": Parameter(ID, "id of an artifact: 32 lower-case hexadecimal digits"),
    "digest": Parameter(Form("digest", r"[0-9a-f]{24}"), "24 hexadecimal digits that name a ToolSpec"),
    "entry": Parameter(_ENTRY, "Unix time of the request in ms, 12 hexadecimal digits, and the run's id"),
    "instance": Parameter(ID, "id of an instance of the service: 32 hexadecimal digits"),
    "key": Parameter(MESSAGE, "tells the requests of one instance apart: [A-Za-z0-9_-]{1,64}"),
    "kept_in": Parameter(_KEPT_IN, "name of a stream, or KV_ and the name of a bucket"),
    "login": Parameter(_DIGEST, "first 32 hexadecimal digits of the SHA-256 of the cookie of a login"),
    "message": Parameter(MESSAGE, "name of a message of the run, such as a call id: [A-Za-z0-9_-]{1,64}"),
    "model": Parameter(
        Form("model", r"(?:[A-Za-z0-9_/-]|=[0-9A-F]{2})*"),
        "name of a model, with =XX for each byte that keys do not take",
    ),
    "namespace": Parameter(
        _DIGEST, "first 32 hexadecimal digits of the SHA-256 of an artifact's namespace, mostly the name of its tool"
    ),
    "own_id": Parameter(_DIGEST, "first 32 hexadecimal digits of the SHA-256 of the id that a tool gave its artifact"),
    "proposal": Parameter(ID, "id of a proposal: 32 lower-case hexadecimal digits"),
    "run": Parameter(ID, "id of a run: 32 lower-case hexadecimal digits"),
    "run_or_none": Parameter(_ID_OR_NONE, "id of a run, or - for none"),
    "schedule": Parameter(ID, "id of a schedule or webhook: 32 lower-case hexadecimal digits"),
    "sequence": Parameter(Form("sequence", r"[0-9]{1,20}"), "sequence of a message in its stream"),
    "service": Parameter(TOOL_NAME, "name of a NATS micro service"),
    "session": Parameter(_ID_OR_NONE, "first 32 hexadecimal digits of the SHA-256 of a session's name, or - for none"),
    "api_key": Parameter(_DIGEST, "the first 32 digits of the SHA-256 of the API key's id"),
    "day": Parameter(Form("day", r"[0-9]{8}"), "a day by UTC, as YYYYMMDD"),
    "session_entry": Parameter(
        _ENTRY, "Unix time of the session's creation in ms, 12 hexadecimal digits, and `session_key`"
    ),
    "session_key": Parameter(ID, "first 32 hexadecimal digits of the SHA-256 of a session's id"),
    "stream": Parameter(Form("stream name", r"[A-Z]{1,32}"), "name of a stream: [A-Z]{1,32}"),
    "tenant": Parameter(TENANT, "name of a tenant: [a-z0-9_-]{1,64}"),
    "tool": Parameter(TOOL_NAME, "name of a tool: [A-Za-z0-9_-]{1,64}"),
    "tool_instance": Parameter(
        MESSAGE, "id of an instance of a tool, as its micro service has it: [A-Za-z0-9_-]{1,64}"
    ),
    "verb": Parameter(Form("verb", r"PING|INFO|STATS"), "PING, INFO or STATS"),
}


@dataclass(frozen=True, eq=False)
class Subject:
    """One family of subjects, or of keys in a bucket. Called with the names of its address, it returns one of them.

    `writes`, `reads`: roles. `carries`, `replies`: names of messages, which `contracts.asyncapi` describes.
    `kept_in`: the stream that stores the messages. `queue`: the durable consumer by which the first of `reads` takes
    them from the stream; without a stream, the queue group. `counted_by`: who only asks how many there are.
    `watched_by`: who subscribes to what is stored, since a change counts at once.
    """

    name: str
    address: str
    meaning: str
    _: KW_ONLY
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    carries: tuple[str, ...]
    replies: tuple[str, ...] = ()
    kept_in: str = ""
    queue: str = ""
    counted_by: tuple[str, ...] = ()
    watched_by: tuple[str, ...] = ()
    bucket: str = ""

    def __call__(self, *names: str) -> str:
        """Build from names, in the order of the address. Raises InvalidName."""
        head, tail, parameters, form = self._parts
        if len(names) != len(parameters):
            raise TypeError(f"{self.address} has {len(parameters)} names, not {len(names)}")
        try:
            built = f"{head}{'.'.join(names)}{tail}"
        except TypeError:
            built = ""  # One of them is no text.
        if form.fullmatch(built):  # No form of a name contains a dot, so each name is matched by its own form.
            return built
        for parameter, name in zip(parameters, names, strict=True):
            PARAMETERS[parameter].form.checked(name)
        raise AssertionError(self.address)

    def parsed(self, subject: str) -> tuple[str, ...]:
        """Return the names in a subject or key of this family, or raise InvalidName."""
        if found := self._parts[3].fullmatch(subject):
            return found.groups()
        given, address = subject.split("."), self.address.split(".")
        if len(given) == len(address):
            for token, value in zip(address, given, strict=True):
                if token[0] == "{":
                    PARAMETERS[token[1:-1]].form.checked(value)
        raise InvalidName(f"{shortened(subject)!r} does not have the form {self.address}")

    def begins(self, subject: str) -> bool:
        """Whether a subject or key has the beginning of this family, well-formed or not."""
        return subject.startswith(self._parts[0])

    def pattern(self, **names: str) -> str:
        """Return the pattern of all of this family that have these names. Raises InvalidName."""
        tokens = self.address.split(".")
        for number, token in enumerate(tokens):
            if token[0] == "{":
                name = names.pop(token[1:-1], None)
                tokens[number] = "*" if name is None else PARAMETERS[token[1:-1]].form.checked(name)
        if names:
            raise TypeError(f"{self.address} has no {', '.join(names)}")
        return ".".join(tokens)

    @cached_property
    def all(self) -> str:
        """The pattern of the whole family."""
        return self.pattern()

    @property
    def channel(self) -> str:
        """The address on NATS: of an entry, that of the values of its key."""
        return f"$KV.{self.bucket}.{self.address}" if self.bucket else self.address

    @cached_property
    def _parts(self) -> tuple[str, str, list[str], re.Pattern[str]]:
        """What stands before the names and what behind them, which names they are, and the form of the whole."""
        parameters = re.findall(r"\{(\w+)\}", self.address)
        head, _, rest = self.address.partition("{")
        tail = rest.rpartition("}")[2] if parameters else ""
        inside = r"\.".join(f"({PARAMETERS[name].form.pattern.pattern})" for name in parameters)
        return head, tail, parameters, re.compile(re.escape(head) + inside + re.escape(tail), re.ASCII)
