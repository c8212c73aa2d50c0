"""Renders decisions and results for the conversation, in the transport of the run."""

from collections.abc import Sequence

from contracts.events import ActionFormat, ActionTransport, Observed, Step
from services.planner.conversation import native
from services.planner.conversation.messages import Message, decision_message, observation_message


def decision_messages(
    step: Step, *, action_format: ActionFormat = "auto", transport: ActionTransport = "json"
) -> list[Message]:
    """Render a decision."""
    return [native.decision(step)] if transport == "tools" else [decision_message(step, action_format=action_format)]


def observation_messages(
    step: Step,
    observed: Sequence[Observed],
    *,
    notes: Sequence[str] = (),
    transport: ActionTransport = "json",
) -> list[Message]:
    """Render the outcomes of a step's calls."""
    if transport == "tools":
        return native.results(step, observed, notes)
    return [observation_message(step.step, step.calls, observed, notes=notes)]
