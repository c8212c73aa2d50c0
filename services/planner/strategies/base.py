"""What a dialect of the planner is: how the model is asked, and how its reply is read while it streams. No I/O."""

from collections.abc import Sequence
from typing import Protocol

from contracts.tools import ToolSpec
from services.planner.agents import Agent
from services.planner.models.litellm import ModelRequest, Reply
from services.planner.models.types import CallPiece
from services.planner.run.decision import Decision
from services.planner.run.state import Run


class Reading(Protocol):
    """One reply as it comes in."""

    def feed(self, text: str) -> str:
        """Take in a piece of the reply and return the characters of the answer that may be shown now."""
        ...

    def feed_call(self, piece: CallPiece) -> str:
        """The same with a piece of a native tool call."""
        ...

    def feed_reasoning(self, text: str) -> str:
        """Take in a piece of the model's native reasoning and return what of it may be shown."""
        ...

    def decide(self, reply: Reply) -> Decision:
        """Say what the whole reply means."""
        ...

    @property
    def shown(self) -> str:
        """Everything of the answer that was returned so far."""
        ...


class Strategy(Protocol):
    """One dialect."""

    def request(self, run: Run, tools: Sequence[ToolSpec], agent: Agent) -> ModelRequest:
        """Build the request for the run's next decision."""
        ...

    def reading(self, run: Run, tools: Sequence[ToolSpec]) -> Reading:
        """Start reading a reply."""
        ...
