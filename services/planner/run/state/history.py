"""The conversation of a run with its model, as facts without wording. Pure data.

`conversation` renders these items, each action format in its own words. An item never changes once it is in a history.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from contracts.artifacts.images import ImageRef
from contracts.runs.events import InputAdded, Observed, Step
from contracts.runs.requests import RunRequested


@dataclass(frozen=True, slots=True)
class PastTurn:
    """A question that was asked before in this conversation, and its answer."""

    question: str
    answer: str = ""
    """Empty: the question was not answered."""
    inputs: tuple[str, ...] = ()
    """Texts that the user added before the answer."""
    images: int = 0
    """How many images came with the question. They are not shown again."""
    asked_at: int = 0
    """Unix ms; 0: not known."""
    is_cut: bool = False
    """Its texts were longer."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What was said before the question, as much of it as the run's memory takes. It is the first item."""

    turns: tuple[PastTurn, ...] = ()
    """Oldest first. They follow the summary."""
    left_out: int = 0
    """Older turns that neither `turns` nor the summary represents."""
    shortened: int = 0
    """Turns that `memory.max_tokens` cut or left out, of those that would be shown whole, and no summary represents."""
    summary: str = ""
    context: Mapping[str, Any] = field(default_factory=dict)
    """Values that callers have set for the session."""
    results: tuple[Mapping[str, Any], ...] = ()
    """What background tasks of the session have found, oldest first."""


@dataclass(frozen=True, slots=True)
class Question:
    """The request of the run, with its images."""

    request: RunRequested
    images: tuple[ImageRef, ...] = ()


@dataclass(frozen=True, slots=True)
class Added:
    """What a person has added to the run."""

    added: InputAdded


@dataclass(frozen=True, slots=True)
class Decided:
    """What the model decided: calls of tools, or the answer."""

    step: Step


@dataclass(frozen=True, slots=True)
class Outcomes:
    """How the calls of a decision ended. `note`: a line of the runtime, such as the reason why a join did not run."""

    step: Step
    """The decision."""
    observed: tuple[Observed, ...]
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Executed:
    """Calls that were planned in one decision and made without the model, one after another, and what came of them.

    A strategy adds it, and its own dialect renders it.
    """

    step: Step
    """The decision, with the plan."""
    end: Step | None = None
    """The end of the execution; None: the plan was rejected."""
    observed: tuple[Observed, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolImage:
    """An image in a tool's result: base64 in `inline`, or an artifact of this run."""

    tool: str
    path: str
    """Of the value in the result."""
    size: int
    """Bytes."""
    inline: str | None = None
    artifact_id: str | None = None


@dataclass(frozen=True, slots=True)
class ImagesShown:
    """Images of results that the run's policy lets the model see."""

    images: tuple[ToolImage, ...]


@dataclass(frozen=True, slots=True)
class Compaction:
    """From here on, lines of the items before are cut to `line_characters`; of the newest exchange only if `newest`."""

    line_characters: int
    newest: bool = False


Item = Conversation | Question | Added | Decided | Outcomes | Executed | ImagesShown | Compaction


@dataclass(eq=False, slots=True, weakref_slot=True)
class History:
    """The items of a conversation, in order. It only grows, so that its prefix stays in the provider's cache.

    Histories are compared by identity: what was rendered of one is kept as long as the history itself.
    """

    items: list[Item] = field(default_factory=list)
    dropped: int = 0
    """How many older items were dropped, once they were rendered."""

    def add(self, item: Item) -> None:
        """Add the newest item."""
        self.items.append(item)

    def drop(self) -> None:
        """Drop all items. They were rendered, and their text takes a fifth of the memory."""
        self.dropped += len(self.items)
        self.items.clear()


@dataclass(frozen=True, slots=True)
class Length:
    """The length of a conversation as the model receives it."""

    characters: int = 0
    compacted_characters: int = 0
    """Characters right after the last compaction; 0 before the first."""
    messages: int = 0
