"""What a run keeps of its conversation and its calls, as facts without wording. Pure data.

`conversation` renders the items of a history, each action format in its own words. An item never changes once it is in
a history. `Collected` holds the artifacts and sources for the payload, and the images that the model may see:

Rule 1: their order is that of the decisions, not of completion: the branches of a plan in step order, then its join.
Rule 2: what tasks made stands under the tool, or under `<tool>#<task id>` where the tool has something already.
Rule 3: a later call of a tool replaces earlier artifacts field by field. A replaced value stays available under
`<tool>#<call id>`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from contracts.artifacts import ImageRef, VisionContextPolicy, image_in, image_type
from contracts.runs.events import InputAdded, Observed, PlannedCall, Step
from contracts.runs.payload import Source, TaskFindings
from contracts.runs.requests import RunRequested
from services.shared.redaction.stored_values import as_reference
from services.shared.tools.builtin import readable_in


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


Item = Conversation | Question | InputAdded | Decided | Outcomes | Executed | ImagesShown | Compaction


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


MAX_NAMES_LISTED = 5


@dataclass(slots=True)
class Collected:
    """The outcomes of all calls that have artifacts or sources, without their observations."""

    _outcomes: dict[str, Observed | None] = field(default_factory=dict)
    """By call id, in order; None while a call is open, and for one without artifacts and sources."""
    _of_tasks: list[TaskFindings] = field(default_factory=list)
    readable: set[str] = field(default_factory=set)
    """Ids of artifacts that hold a truncated observation in full: the model may read them."""

    def expect(self, calls: Iterable[PlannedCall]) -> None:
        """Reserve the positions of calls, in order."""
        for call in calls:
            self._outcomes.setdefault(call.call_id, None)

    def take_tasks(self, found: TaskFindings | None) -> None:
        """Add what tasks have made."""
        if found is not None:
            self._of_tasks.append(found)
            self.readable |= {found.whole} if found.whole is not None else set()

    def take(self, observed: Observed) -> None:
        """Add the outcome of a call."""
        self.take_tasks(observed.of_tasks)
        if (artifact_id := readable_in(observed.observation, observed.artifacts)) is not None:
            self.readable.add(artifact_id)
        has_more = bool(observed.artifacts or observed.sources)
        self._outcomes[observed.call_id] = observed.model_copy(update={"observation": None}) if has_more else None

    def copy(self) -> "Collected":
        """Return an independent copy."""
        return Collected(dict(self._outcomes), [*self._of_tasks], set(self.readable))

    def sources(self) -> list[Source]:
        """Return the sources of all calls, then those of tasks."""
        of_calls = [source for outcome in self._settled() for source in outcome.sources]
        return of_calls + [source for found in self._of_tasks for source in found.sources]

    def artifacts(self) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, str]], list[str]]:
        """Return tool -> path -> value or reference, the same of known types, and warnings about replaced artifacts."""
        newest: dict[tuple[str, str], tuple[str, Any]] = {}
        found: dict[str, dict[str, Any]] = {}
        earlier: dict[str, dict[str, Any]] = {}
        types: dict[str, dict[str, str]] = {}
        for outcome in self._settled():
            for path, value in outcome.artifacts.items():
                call_id, before = newest.get((outcome.tool, path), ("", None))
                if before is not None and before != value:
                    earlier.setdefault(f"{outcome.tool}#{call_id}", {})[path] = before
                newest[outcome.tool, path] = outcome.call_id, value
            add_artifacts(found, outcome.tool, outcome.artifacts)
            add_artifacts(types, outcome.tool, outcome.artifact_types)
        for made, key in ((of, key) for of in self._of_tasks for key in of.artifacts):
            tool = key.partition("#")[0]
            place = key if tool in found else tool
            found[place] = made.artifacts[key]
            add_artifacts(types, place, made.artifact_types.get(key, {}))
        return {**found, **earlier}, types, _warnings(earlier)

    def _settled(self) -> Iterable[Observed]:
        return (outcome for outcome in self._outcomes.values() if outcome is not None)


def add_artifacts(artifacts: dict[str, dict[str, Any]], tool: str, found: Mapping[str, Any]) -> None:
    """Add the artifacts of a successful call. A later call of the same tool replaces them field by field."""
    if found:
        artifacts.setdefault(tool, {}).update(found)


def _warnings(earlier: dict[str, dict[str, Any]]) -> list[str]:
    keys: dict[str, list[str]] = {}
    for key in earlier:
        keys.setdefault(key.partition("#")[0], []).append(key)
    found = []
    for tool, several in keys.items():
        listed, left = ", ".join(several[:MAX_NAMES_LISTED]), len(several) - MAX_NAMES_LISTED
        listed += f" and {left} more" if left > 0 else ""
        several_times = f"{tool} made an artifact of the same name several times"
        found.append(f"{several_times}: the last one counts, earlier ones are under {listed}")
    return found


def allowed_images(
    policy: VisionContextPolicy | None, observed: Iterable[Observed], shown: Sequence[ToolImage] = ()
) -> list[ToolImage]:
    """Return the images of outcomes that the policy allows. `shown`: those of tools that the model has received."""
    chosen: list[ToolImage] = []
    if policy is None or not policy.enabled:
        return chosen
    count, size = len(shown), sum(image.size for image in shown)
    for outcome in observed:
        if outcome.tool not in policy.allowed_sources and "*" not in policy.allowed_sources:
            continue
        for path, value in outcome.artifacts.items():
            found = _image_in(outcome.tool, path, value, policy)
            if found is not None and count < policy.max_images and size + found.size <= policy.max_total_bytes:
                chosen.append(found)
                count, size = count + 1, size + found.size
    return chosen


def _image_in(tool: str, path: str, value: Any, policy: VisionContextPolicy) -> ToolImage | None:
    if isinstance(value, str):
        data = image_in(value)
        allowed = image_type(data) in policy.allow_mime_types
        return ToolImage(tool, path, len(data), inline=value) if allowed else None
    ref = as_reference(value)
    if ref is None or ref.mime_type not in policy.allow_mime_types:
        return None
    return ToolImage(tool, path, ref.size, artifact_id=ref.artifact_id)
