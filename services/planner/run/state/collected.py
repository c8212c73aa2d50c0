"""The artifacts and sources of a run's calls, for its payload, and the images that the model may see. Pure.

Rule 1: their order is that of the decisions, not of completion: the branches of a plan in step order, then its join.
Rule 2: what tasks made stands under the tool, or under `<tool>#<task id>` where the tool has something already.
Rule 3: a later call of a tool replaces earlier artifacts field by field. A replaced value stays available under
`<tool>#<call id>`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from contracts.artifacts.images import VisionContextPolicy, image_in, image_type
from contracts.runs.events import Observed, PlannedCall
from contracts.runs.payload import Source, TaskFindings
from services.planner.run.state.history import ToolImage
from services.shared.redaction.stored_values import as_reference
from services.shared.tools.builtin import readable_in

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
