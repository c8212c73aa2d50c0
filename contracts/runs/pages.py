"""Pages: where in an application a user stands, and what the model of a chat turn may know and do there."""

from typing import Any, Literal

from pydantic import Field, model_validator

from ..artifacts import ArtifactRef
from ..wire.base import MAX_PAGE_BYTES, HttpInput, Message, is_absent

MAX_SELECTED_ROWS = 1000

_NAME = r"^[a-z][a-z0-9_]{0,63}$"


class Page(HttpInput):
    """Where the user stands. The registry of pages says which pages and tabs there are."""

    name: str = Field(pattern=_NAME)
    tab: str | None = Field(default=None, pattern=_NAME)
    subtab: str | None = Field(default=None, pattern=_NAME)
    table_id: str | None = Field(default=None, min_length=1, max_length=200, description="the table that is shown")
    filters: dict[str, Any] = Field(default_factory=dict)
    sort: list[Any] = Field(default_factory=list)
    selection: list[int] = Field(
        default_factory=list, max_length=MAX_SELECTED_ROWS, description="numbers of the selected rows"
    )

    @model_validator(mode="after")
    def _is_small(self) -> "Page":
        if (size := len(self.model_dump_json().encode())) > MAX_PAGE_BYTES:
            raise ValueError(f"has {size} bytes as JSON; at most {MAX_PAGE_BYTES} are allowed")
        return self


class ClientAction(Message):
    """What a user interface can do when the model suggests it."""

    name: str
    description: str


class ManifestEntry(Message):
    """One payload of the conversation so far."""

    payload_id: str
    summary: str


class PageView(Message):
    """All that a chat turn needs to know of its page. It is resolved once, when the run opens."""

    page: Page
    role: str = Field(default="", description="of the user, by the API key")
    persona: str = ""
    context: str = Field(default="", description="what the page shows, as text for the model")
    payloads: list[str] = Field(default_factory=list, description="types that count here, in the order of the page")
    client_actions: list[ClientAction] = Field(default_factory=list)
    tools: list[str] | None = Field(default=None, description="null: all tools of the agent")
    help: str = ""
    manifest: list[ManifestEntry] = Field(default_factory=list, description="payloads so far, the oldest first")
    notes: list[str] = Field(
        default_factory=list, description="what happened to proposals since the last turn, with real counts"
    )
    pending_proposal: str | None = Field(
        default=None, exclude_if=is_absent, description="id of the proposal that waits for a decision"
    )
    base_version: int | None = Field(default=None, description="of the table, when this was read")
    columns: list[dict[str, Any]] | None = Field(default=None, description="of the table: id, name, type and more")


class PayloadProposed(Message):
    """A payload of the turn counts: a proposal that a person may apply. Names of columns are already their ids."""

    type: Literal["payload"] = "payload"
    payload_id: str = Field(pattern=r"^[0-9a-f]{32}$")
    kind: str = Field(description="the type of the payload, such as `data_proposal`")
    source: Literal["llm", "tool"] = "llm"
    summary: str
    data: dict[str, Any] = Field(description="as the model or a tool gave it, whatever it looks like")
    stored: ArtifactRef | None = Field(
        default=None, exclude_if=is_absent, description="above 32 KiB: the data is in this artifact, in a list of one"
    )
    table_id: str | None = None
    base_version: int | None = Field(default=None, description="of the table, when the turn's prompt was built")
