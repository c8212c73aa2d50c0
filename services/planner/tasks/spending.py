"""What a task has spent of its parent's budgets. Pure."""

from contracts.payload import Usage
from contracts.sessions import SessionRunEnded


def spent_by(message: SessionRunEnded) -> Usage:
    """Return what a run spent, with what it set aside for tasks of its own that go on."""
    usage, aside = message.ended.usage, message.set_aside
    cost = None if usage.cost_usd is None else usage.cost_usd + (aside.cost_usd or 0)
    return usage.model_copy(
        update={
            "tool_calls": usage.tool_calls + aside.tool_calls,
            "prompt_tokens": usage.prompt_tokens + aside.prompt_tokens,
            "completion_tokens": usage.completion_tokens + aside.completion_tokens,
            "cost_usd": cost,
        }
    )
