"""The artifacts and sources of a run's calls, for its payload. Pure.

Rule 1: their order is that of the decisions, not of completion: the branches of a plan in step order, then its join.
Rule 2: a later call of a tool replaces earlier artifacts field by field. A replaced value stays available under
`<tool>#<call id>`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from contracts.runs.events import Observed, PlannedCall
from contracts.runs.payload import Source
from services.planner.run.ending.payload import add_artifacts
from services.shared.tools.builtin import readable_in

MAX_NAMES_LISTED = 5


@dataclass(slots=True)
class Collected:
    """The outcomes of all calls that have artifacts or sources, without their observations."""

    _outcomes: dict[str, Observed | None] = field(default_factory=dict)
    """By call id, in order; None while a call is open, and for one without artifacts and sources."""
    readable: set[str] = field(default_factory=set)
    """Ids of artifacts that hold a truncated observation in full: the model may read them."""

    def expect(self, calls: Iterable[PlannedCall]) -> None:
        """Reserve the positions of calls, in order."""
        for call in calls:
            self._outcomes.setdefault(call.call_id, None)

    def take(self, observed: Observed) -> None:
        """Add the outcome of a call."""
        if (artifact_id := readable_in(observed.observation, observed.artifacts)) is not None:
            self.readable.add(artifact_id)
        has_more = bool(observed.artifacts or observed.sources)
        self._outcomes[observed.call_id] = observed.model_copy(update={"observation": None}) if has_more else None

    def copy(self) -> "Collected":
        """Return an independent copy."""
        return Collected(dict(self._outcomes), set(self.readable))

    def sources(self) -> list[Source]:
        """Return the sources of all calls."""
        return [source for outcome in self._settled() for source in outcome.sources]

    def artifacts(self) -> tuple[dict[str, dict[str, Any]], list[str]]:
        """Return tool -> path -> value or reference, and a warning for each tool that replaced an earlier artifact."""
        newest: dict[tuple[str, str], tuple[str, Any]] = {}
        found: dict[str, dict[str, Any]] = {}
        earlier: dict[str, dict[str, Any]] = {}
        for outcome in self._settled():
            for path, value in outcome.artifacts.items():
                call_id, before = newest.get((outcome.tool, path), ("", None))
                if before is not None and before != value:
                    earlier.setdefault(f"{outcome.tool}#{call_id}", {})[path] = before
                newest[outcome.tool, path] = outcome.call_id, value
            add_artifacts(found, outcome.tool, outcome.artifacts)
        return {**found, **earlier}, _warnings(earlier)

    def _settled(self) -> Iterable[Observed]:
        return (outcome for outcome in self._outcomes.values() if outcome is not None)


def _warnings(earlier: dict[str, dict[str, Any]]) -> list[str]:
    keys: dict[str, list[str]] = {}
    for key in earlier:
        keys.setdefault(key.partition("#")[0], []).append(key)
    return [
        f"{tool} made an artifact of the same name several times: the last one counts, "
        f"earlier ones are under {_listed(several)}"
        for tool, several in keys.items()
    ]


def _listed(keys: list[str]) -> str:
    shown = ", ".join(keys[:MAX_NAMES_LISTED])
    return f"{shown} and {len(keys) - MAX_NAMES_LISTED} more" if len(keys) > MAX_NAMES_LISTED else shown
