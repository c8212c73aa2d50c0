"""Runs that may spawn background tasks, without a server."""

from typing import Any

from contracts.runs.events import RunStarted
from contracts.runs.inbox import RunTaskSettled
from contracts.runs.payload import Usage
from contracts.sessions.tasks import TaskPolicy
from services.planner.run.calls.tasks import SPAWN
from services.planner.run.commands import Command
from services.planner.run.turn.decision import Calls, Decision
from tests.planner.run.pause_world import PauseWorld
from tests.planner.run_world import finished, started

QUERY = {"mode": "subagent", "query": "what is it?"}
UNASKED = TaskPolicy(spawn_requires_confirmation=False)


def opening(policy: TaskPolicy = UNASKED, *, request: dict[str, Any] | None = None, **limits: object) -> RunStarted:
    """A run that may spawn tasks."""
    begun = started(**limits)
    asked = begun.request.model_copy(update={"limits": limits, **(request or {})})
    return begun.model_copy(update={"tasks": policy, "request": asked})


def spawn(cost_usd: float = 0.5, prompt_tokens: int = 100, **args: Any) -> Calls:
    usage = Usage(model_calls=1, prompt_tokens=prompt_tokens, cost_usd=cost_usd)
    return Calls(node="task", calls=((SPAWN, {**QUERY, **args}),), usage=usage)


class TaskWorld(PauseWorld):
    """A run whose messages are handled one after another."""

    def reply(self, decision: Decision) -> list[Command]:
        asked = self.run.asked
        assert asked is not None
        return self.handle(self.handling(asked.by, holder=asked.holder, now=self.now, asked=True, decision=decision))

    def answer(self, call_id: str, status: str = "succeeded", **fields: Any) -> list[Command]:
        """The session answers a call."""
        outcome = finished(call_id, tool=SPAWN, status=status, **fields)
        return self.handle(self.next_handling(outcome))

    def settle(self, call_id: str, **spent: Any) -> list[Command]:
        """A task has ended."""
        message = RunTaskSettled(call_id=call_id, task_id="0" * 32, spent=Usage.model_validate(spent))
        return self.handle(self.next_handling(message))
