"""The operator's file of MCP servers: TOML under `[servers.<name>]`, or the JSON of desktop clients (`mcpServers`).

Rule 1: whatever is wrong with it ends the start, in one sentence with the server and its line.
Rule 2: `${NAME}` is a variable of the tool runner's environment, `${file:/path}` the content of a secret's file. No
other variable reaches a server.
Rule 3: a command has the rights of the tool runner, so code that is not trusted belongs elsewhere, behind a `url`.
"""

import os
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from contracts.wire.faults import describe
from services.tool_runner.discovery.announcements import SERVER_TAG
from services.tool_runner.discovery.file import read_document

_REFERENCE = re.compile(r"\$\{(?:file:([^}]+)|([A-Za-z_][A-Za-z0-9_]*))\}")
_URL = r"^https?://[^/\s@]+(/|$)"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_INHERITED = ("HOME", "LANG", "LOGNAME", "PATH", "SYSTEMROOT", "TMPDIR", "USER")
"""Of the machine: what a program needs to be found and to start."""


class InvalidServersFile(ValueError):
    """The file of MCP servers cannot be used; the text says why in one sentence."""


class ClientCredentials(BaseModel):
    """How tokens are asked for (OAuth). The secret goes to one place, which the operator names."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    client_id: str
    client_secret: str
    token_url: Annotated[str | None, Field(pattern=_URL)] = None
    issuer: Annotated[str | None, Field(pattern=_URL)] = None
    """Its metadata name the address of tokens."""
    scope: str = ""
    resource: str | None = None
    """What the token is for. Default: the server's `url`; empty: it is not said."""
    client_auth: Literal["header", "body"] = "header"
    """Of the request for a token."""

    @model_validator(mode="after")
    def _has_one_address(self) -> Self:
        if (self.token_url is None) == (self.issuer is None):
            raise ValueError("either `token_url` or `issuer` is needed")
        return self


class McpServer(BaseModel):
    """One server: a command that is started here, or the address of a remote one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(description="the name of its table")
    command: str | None = Field(default=None, description="a program that speaks over stdin and stdout; or")
    args: list[str] = Field(default_factory=list, description="of the program")
    cwd: Path | None = Field(default=None, description="its working folder")
    env: dict[str, str] = Field(
        default_factory=dict,
        description="variables of the program, beside `PATH`, `HOME`, `LANG`, `LOGNAME`, `TMPDIR`, `USER`",
    )
    url: str | None = Field(default=None, description="the address of a server over streamable HTTP")
    headers: dict[str, str] = Field(default_factory=dict, description="of each request")
    oauth: ClientCredentials | None = Field(default=None, description="client credentials, for tokens")
    prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{0,32}$")] = Field(
        default="", description="before the name of each tool; else the server's name and `_`"
    )
    tools: list[str] = Field(default=["*"], description="tools that are offered; `*` stands for any text")
    read_only: list[str] = Field(default_factory=list, description="tools that change nothing: calls may be repeated")
    idempotent: list[str] = Field(default_factory=list, description="tools of which a call may be repeated")
    trust_hints: bool = Field(default=False, description="its `readOnlyHint` and `idempotentHint` count as these two")
    approval: Literal["never", "unless_read_only", "always"] = Field(
        default="unless_read_only", description="whose calls a person approves: `never`, `unless_read_only`, `always`"
    )
    accept: Literal["ask", "auto"] = Field(default="ask", description="`auto`: changes need no `runwire tools accept`")
    output: Literal["structured", "text"] = Field(
        default="structured", description="`text`: output schemas are ignored, for one that sends text alone"
    )
    required: bool = Field(
        default=False, description="the tool runner is not ready while it is away; else runs go on with a warning"
    )
    timeout_s: float = Field(default=60.0, gt=0, le=3600, description="longest silence in a call; progress ends it")
    concurrency: int = Field(default=16, ge=1, le=1000, description="calls of one tool at once")
    max_message_bytes: int = Field(default=16 << 20, ge=1 << 10, le=64 << 20, description="of each of its messages")

    @model_validator(mode="before")
    @classmethod
    def _has_a_prefix(cls, values: dict[str, Any]) -> dict[str, Any]:
        if not _NAME.fullmatch(str(values.get("name"))):
            raise ValueError(f"its name has not the form {_NAME.pattern}")
        kind = values.get("type", "stdio" if values.get("command") else "http")
        if kind not in {"stdio", "http", "streamable-http", "streamable_http"}:
            raise ValueError(f"type {kind!r} is none of stdio and http")
        known = {name: value for name, value in values.items() if name != "type"}
        return {"prefix": f"{values['name'][:31]}_", **known}

    @model_validator(mode="after")
    def _has_one_address(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("either `command` or `url` is needed")
        if self.url is not None and not re.match(_URL, self.url):
            raise ValueError("`url` is no http:// or https:// address without a login")
        if self.oauth is not None and (self.url is None or "authorization" in map(str.lower, self.headers)):
            raise ValueError("`oauth` needs a `url`, and no header Authorization beside it")
        return self

    @property
    def tag(self) -> str:
        """Of its tools: calls come here by it."""
        return f"{SERVER_TAG}{self.name}"

    def environment(self) -> dict[str, str]:
        """The whole environment of its process."""
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        return inherited | {name: resolved(value) for name, value in self.env.items()}


def matches(tool: str, patterns: list[str]) -> bool:
    """Whether a name is one of the patterns, of which `*` stands for any text."""
    return any(fnmatchcase(tool, pattern) for pattern in patterns)


def resolved(text: str) -> str:
    """Return a value with what its references stand for. Raises ValueError, which quotes no value."""

    def value(found: re.Match[str]) -> str:
        file, variable = found.groups()
        if variable is not None:
            if variable not in os.environ:
                raise ValueError(f"the variable {variable} is not set")
            return os.environ[variable]
        try:
            return Path(file).read_text(encoding="utf-8-sig").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{file} cannot be read ({type(error).__name__})") from error

    return _REFERENCE.sub(value, text)


def read_servers_file(path: Path) -> list[McpServer]:
    """Return the servers of a file, in its order. Raises InvalidServersFile."""
    text, content = read_document(path, InvalidServersFile)
    entries = content.get("servers", content.get("mcpServers")) if isinstance(content, dict) else None
    if not isinstance(entries, dict):
        raise InvalidServersFile(f"{path}: expected servers under [servers.NAME], or in JSON under mcpServers")
    found: list[McpServer] = []
    for name, entry in entries.items():
        begins = re.search(rf"(?m)^[ \t]*\[.*\b{re.escape(name)}\"?\s*\]|\"{re.escape(name)}\"\s*:", text)
        line = text.count("\n", 0, begins.start()) + 1 if begins else 1
        place = f"{path}, line {line}: server {name}"
        try:
            server = McpServer.model_validate({**entry, "name": name} if isinstance(entry, dict) else entry)
            secrets = (server.oauth.client_id, server.oauth.client_secret) if server.oauth is not None else ()
            for value in (*server.env.values(), *server.headers.values(), *secrets):
                resolved(value)
        except ValueError as error:
            reason = describe(error, limit=1) if isinstance(error, ValidationError) else str(error)
            raise InvalidServersFile(f"{place}: {reason.replace('Value error, ', '')}") from error
        found.append(server)
    return found
