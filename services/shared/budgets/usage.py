"""Adds up what model calls have cost."""

from contracts.runs.payload import Usage


def spent(total: Usage, more: Usage | None, *, tool_calls: int = 0, repairs: int = 0) -> Usage:
    """Add up usage. One model call without a known price makes the cost unknown."""
    more = more or Usage(cost_usd=0.0)
    if not total.model_calls:
        cost = more.cost_usd
    else:
        cost = None if total.cost_usd is None or more.cost_usd is None else total.cost_usd + more.cost_usd
    return Usage(
        model_calls=total.model_calls + more.model_calls,
        tool_calls=total.tool_calls + tool_calls,
        prompt_tokens=total.prompt_tokens + more.prompt_tokens,
        completion_tokens=total.completion_tokens + more.completion_tokens,
        reasoning_tokens=total.reasoning_tokens + more.reasoning_tokens,
        cached_tokens=total.cached_tokens + more.cached_tokens,
        cost_usd=cost,
        repairs=total.repairs + repairs,
        estimated=total.estimated or more.estimated,
    )
