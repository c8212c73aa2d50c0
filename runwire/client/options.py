"""What a caller may set for a run, as keyword arguments of `Client.start` and `Client.chat`; and its images.

The gateway accepts images as data URLs, which files and bytes become here, and as ids of artifacts.
"""

import base64
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Required, TypedDict

from contracts.artifacts import ImageInput, image_type


class LimitOptions(TypedDict, total=False):
    """Limits of a run; one that is left out comes from the agent or the deployment."""

    max_steps: int
    """Decisions of the model, the answer included."""
    deadline_s: float | None
    """Seconds from the request to the end; None: no deadline."""
    max_tool_calls: int
    max_tokens: int
    """Prompt and completion tokens of all model calls."""
    max_cost_usd: float
    max_parallel: int
    """Tool calls of one plan at the same time."""
    grace_s: float
    """Seconds that a run waits for a top-up once a budget is spent; 0: it ends at once."""


class MessageOption(TypedDict):
    """One message of a conversation that the caller keeps itself."""

    role: Literal["user", "assistant"]
    content: str


class MemoryOptions(TypedDict, total=False):
    """How much of its session's conversation a run is shown; what is left out comes from the agent's entry."""

    recent_turns: int | None
    """Turns that are shown whole."""
    max_tokens: int | None
    """Of all of the conversation."""
    summary_model: str | None
    """Summarises older turns after an answer; None: they are left out, and the model reads how many."""


class PageOption(TypedDict, total=False):
    """Where the user stands in an application; `name` is required, and `Client.pages` lists what it may be."""

    name: Required[str]
    tab: str | None
    subtab: str | None
    table_id: str | None
    """The table that is shown."""
    filters: dict[str, Any]
    sort: list[Any]
    selection: list[int]
    """Numbers of the selected rows."""


class RunOptions(TypedDict, total=False):
    """The fields of `POST /v1/runs` besides `query` and `images`."""

    agent: str
    """An entry of the agents file."""
    strategy: Literal["react", "planned", "chat"] | None
    model: str | None
    """LiteLLM's name of a model that the deployment allows; None: the agent's."""
    reasoning_effort: Literal["low", "medium", "high", "auto"] | None
    session_id: str | None
    """The conversation; None: the run gets a session of its own."""
    on_busy: Literal["queue", "steer", "reject", "cancel"]
    """What happens while another run of the session has the turn: wait for it, add the text to it, fail, or end it."""
    on_paused: Literal["queue", "steer", "reject", "cancel"]
    """The same while that run only waits for a person. Default: `steer`."""
    queue_timeout_s: float
    """How long the run may wait for its turn, in seconds."""
    messages: list[MessageOption]
    """The conversation so far, in place of a session."""
    memory: MemoryOptions
    user_id: str | None
    page: PageOption | None
    """The run has the strategy `chat`, and its model knows what that page shows."""
    keep_proposal: bool
    """The session's pending proposal stays; where there is one, this turn proposes nothing."""
    llm_context: dict[str, Any]
    """Shown to the model."""
    tool_context: dict[str, Any]
    """Passed to tools; neither the model nor listeners see it."""
    tools: list[str] | None
    """Names of the tools that the run may use; None: all."""
    limits: LimitOptions
    vision: Literal["strict", "lenient"] | None
    """Images for a model that takes none: `strict` refuses the run, `lenient` drops them with a warning."""


Image = str | bytes | os.PathLike[str] | Mapping[str, Any] | ImageInput
"""The path of a file, its bytes, an artifact's id (32 hexadecimal digits), a data URL, or an `ImageInput`."""

MAX_IMAGES_BYTES = 64 << 20
"""Limit of all images of a question together; more are not sent. A gateway may accept less."""

_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)


def image_inputs(images: Iterable[Image]) -> list[dict[str, Any]]:
    """Return the images as fields of `ImageInput`.

    Raises OSError for a file that cannot be read, ValueError for one that is not png, jpeg, webp or gif, and for too
    many bytes.
    """
    free_bytes, inputs = MAX_IMAGES_BYTES, []
    for image in images:
        given = _input(image, free_bytes)
        free_bytes -= len(given.get("data") or "") * 3 // 4
        inputs.append(given)
    return inputs


def _input(image: Image, free_bytes: int) -> dict[str, Any]:
    match image:
        case ImageInput():
            return image.model_dump(exclude_none=True)
        case Mapping():
            return dict(image)
        case bytes():
            return {"data": _data_url(image, "the image", free_bytes)}
        case str() if _ID.fullmatch(image):
            return {"artifact_id": image}
        case str() if image.startswith("data:"):
            return {"data": image}
    path = Path(image)
    # What is too large is not even read.
    _check_size(path.stat().st_size, path.name, free_bytes)
    return {
        "data": _data_url(path.read_bytes(), path.name, free_bytes),
        "filename": path.name.encode(errors="replace").decode(),
    }


def _check_size(size: int, name: str, free_bytes: int) -> None:
    if size > free_bytes:
        raise ValueError(f"{name} has {size} bytes; all images of a question may have {MAX_IMAGES_BYTES} together")


def _data_url(data: bytes, name: str, free_bytes: int) -> str:
    _check_size(len(data), name, free_bytes)
    if not data:
        raise ValueError(f"{name} is empty")
    kind = image_type(data)
    if kind is None:
        raise ValueError(f"{name} is not a png, jpeg, webp or gif; convert it to one of them")
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
