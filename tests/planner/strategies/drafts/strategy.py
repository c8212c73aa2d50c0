"""A third strategy: the model writes a draft, and then a title for it. Its state is the draft, which the log keeps."""

from collections.abc import Sequence
from dataclasses import dataclass

from contracts.runs.events import Asked, RunEvent, Step
from contracts.tools.messages import ToolSpec
from services.planner.agents import Agent
from services.planner.models.types import ModelRequest, Reply
from services.planner.replies.answer_stream import AnswerStream
from services.planner.run.commands import Handling, Rules
from services.planner.run.state.run import Event, Run, StrategyState
from services.planner.run.turn import decide, next_step
from services.planner.run.turn.decision import Decision, Final, OwnDecision
from services.planner.strategies.base import AskingStrategy, Reading


@dataclass(frozen=True, slots=True)
class DraftState(StrategyState):
    """The draft, once it is written."""

    draft: str = ""


class DraftReading(Reading):
    """Streams nothing: the first reply is the draft, the second one its title."""

    def __init__(self, draft: str) -> None:
        super().__init__(AnswerStream(), native_reasoning=False)
        self.draft = draft

    def feed(self, text: str) -> str:
        """Show nothing."""
        del text
        return ""

    def decide(self, reply: Reply) -> Decision:
        """Keep the draft, or answer with both."""
        answer = {"answer": f"{reply.text}: {self.draft}"}
        return Final(args=answer) if self.draft else OwnDecision(thought=reply.text)


class Drafts(AskingStrategy):
    """Asks for a draft, then for its title."""

    def fold(self, run: Run, event: RunEvent) -> StrategyState:
        """Keep the draft."""
        if isinstance(event, Step) and event.node == "draft":
            return DraftState(event.thought or "")
        return run.strategy_state

    def request(self, run: Run, tools: Sequence[ToolSpec], agent: Agent) -> ModelRequest:
        """Ask for what is missing."""
        wanted = f"a title for: {draft}" if (draft := draft_of(run)) else f"a draft, as {agent.system_prompt}"
        return self._request(run, self._facts(run, tools), {"role": "system", "content": f"Write {wanted}"}, [])

    def read(self, run: Run, tools: Sequence[ToolSpec]) -> DraftReading:
        """Read it."""
        del tools
        return DraftReading(draft_of(run))

    def on_decision(
        self, run: Run, handling: Handling, asked: Asked, decision: OwnDecision, rules: Rules
    ) -> list[Event]:
        """Record the draft, and ask for its title."""
        step = decide.step_of(asked, decision, "draft", "started")
        return [step, step.model_copy(update={"status": "succeeded"}), *next_step.go_on(run, handling, rules)]


def draft_of(run: Run) -> str:
    """Return the draft; empty: there is none yet."""
    return run.strategy_state.draft if isinstance(run.strategy_state, DraftState) else ""
