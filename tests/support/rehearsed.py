"""Conversations with the rehearsal, without a model's wire: what it decides, and what it makes of results."""

import json
from typing import Any

from contracts.events import Observed, PlannedCall, Repaired, Step
from contracts.faults import Fault
from contracts.runs import RunLimits, RunRequested
from contracts.tools import ToolSpec
from services.planner import conversation
from services.planner.agents import Agent
from services.planner.models import demo

TEXT, NUMBER, WHOLE = {"type": "string"}, {"type": "number"}, {"type": "integer"}


def tool(
    name: str, description: str, required: str = "", /, *, side_effects: str = "none", **properties: Any
) -> ToolSpec:
    """A tool with these arguments; `required` names them, separated by blanks."""
    schema = {"type": "object", "properties": properties, "required": required.split()}
    return ToolSpec(name=name, description=description, input_schema=schema, side_effects=side_effects)


class Conversation:
    """A run's conversation as the planner would build it."""

    def __init__(
        self, query: str, tools: list[ToolSpec], *, action_format: conversation.ActionFormat = "auto", **request: Any
    ) -> None:
        asked = RunRequested(
            run_id="0" * 32, tenant="t", requested_at=1_795_270_794_000, trace_id="0", query=query, **request
        )
        system = conversation.system_message(Agent(), tools, action_format=action_format, limits=RunLimits())
        self.messages = [system, conversation.question_message(asked)]
        self.calls: list[PlannedCall] = []
        self.reasoning = ""
        self._step = 0

    def decide(self) -> tuple[str | None, dict[str, Any]]:
        """Let it decide; its calls are added to the conversation."""
        act = demo.play(self.messages)
        self.reasoning = act.reasoning
        action = json.loads(act.text)
        node, args = action["next_node"], action["args"]
        steps = action.get("plan") or args.get("steps") or [{"node": node, "args": args}]
        self._step += 1
        self.calls = [
            PlannedCall(
                call_id=f"{self._step}-{number}", tool=conversation.real_name(str(step["node"])), args=step["args"]
            )
            for number, step in enumerate(steps)
        ]
        if node not in {None, "final_response", "plan"}:
            node = conversation.real_name(node)
        self.messages.append(
            conversation.dialect().decision(
                Step(step=self._step, node=node or "plan", status="started", calls=self.calls)
            )
        )
        return node, args

    def observe(self, *observations: Any) -> None:
        """Say what the calls came to; a Fault is a failure."""
        observed = [
            Observed(call_id=call.call_id, tool=call.tool, status="failed", failure=seen)
            if isinstance(seen, Fault)
            else Observed(call_id=call.call_id, tool=call.tool, status="succeeded", observation=seen)
            for call, seen in zip(self.calls, observations, strict=True)
        ]
        step = Step(step=self._step, node="plan", status="started", calls=self.calls)
        self.messages += conversation.dialect().outcomes(step, observed)

    def complain(self, reason: str) -> None:
        """Refuse its last decision."""
        self.messages += conversation.dialect().rejection(Repaired(turn=self._step, attempt=1, reason=reason))

    def answer(self) -> str:
        """Let it decide, and expect an answer."""
        node, args = self.decide()
        assert node in {"final_response", None}
        assert args["warnings"] == [demo.WARNING]
        return str(args["answer"])
