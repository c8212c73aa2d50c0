"""The interface of a strategy: it builds model requests, reads replies while they stream, and says what follows.

A strategy does no I/O.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol

from contracts.tools.messages import ToolSpec
from services.planner.agents import Agent
from services.planner.models import demo
from services.planner.models.types import CallPiece, ModelRequest, Reply
from services.planner.run.commands import StrategyRules
from services.planner.run.state.run import Run
from services.planner.run.turn.decision import Decision


class Reading(Protocol):
    """Reads one reply while it streams."""

    def feed(self, text: str) -> str:
        """Read a part of the reply, and return the answer text to stream now."""
        ...

    def feed_call(self, piece: CallPiece) -> str:
        """The same for a part of a native tool call."""
        ...

    def feed_reasoning(self, text: str) -> str:
        """Read a part of the model's native reasoning, and return the part to stream."""
        ...

    def decide(self, reply: Reply) -> Decision:
        """Return the decision of the complete reply."""
        ...

    @property
    def shown(self) -> str:
        """The answer text returned so far."""
        ...


class Strategy(StrategyRules, Protocol):
    """One strategy."""

    def request(self, run: Run, tools: Sequence[ToolSpec], agent: Agent) -> ModelRequest:
        """Build the request for the run's next decision."""
        ...

    def reading(self, run: Run, tools: Sequence[ToolSpec]) -> Reading:
        """Start reading a reply."""
        ...


Strategies = Mapping[str, Strategy]
"""By name."""
MAX_CACHED_PREFIXES = 256
JOB = "job"
"""The strategy of runs with the cause `job`."""


Prefix = tuple[dict[str, Any], list[dict[str, Any]]]
"""The system message of a request, and the functions that it offers."""


class Prefixes:
    """The prefixes of requests, each rendered once for all runs that share it."""

    def __init__(self) -> None:
        self._rendered: OrderedDict[Hashable, Prefix] = OrderedDict()

    def get(self, key: Hashable, render: Callable[[], Prefix]) -> Prefix:
        """Return the prefix of this key. Beyond 256 of them the oldest is forgotten."""
        found = self._rendered.get(key)
        if found is None:
            found = self._rendered[key] = render()
            if len(self._rendered) > MAX_CACHED_PREFIXES:
                self._rendered.popitem(last=False)
        return found


def may_call_demo_model(run: Run) -> bool:
    """Whether the demo model, which works from the items of the history, may be called."""
    started = run.started
    return started is None or demo.NAME in {started.model, *started.models, *started.fallbacks}
