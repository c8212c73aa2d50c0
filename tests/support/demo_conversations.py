"""Conversations with the demo model, without a server: what it decides, and what it makes of results."""

import json
from typing import Any

from contracts.runs.events import Observed, PlannedCall, Repaired, Step
from contracts.runs.requests import RunRequested
from contracts.tools.messages import ToolSpec
from contracts.wire.faults import Fault
from services.planner.conversation.catalogue import ALIAS, shown_name
from services.planner.conversation.encoding import Messages
from services.planner.models import demo
from services.planner.models.types import Facts, ModelRequest
from services.planner.run.calls.tasks import SPAWN
from services.planner.run.state import history
from services.planner.run.state.history import Item, Outcomes, PastTurn, Question

TEXT, NUMBER, WHOLE = {"type": "string"}, {"type": "number"}, {"type": "integer"}


def tool(
    name: str, description: str, required: str = "", /, *, side_effects: str = "none", **properties: Any
) -> ToolSpec:
    """A tool with these arguments; `required` names them, separated by blanks."""
    schema = {"type": "object", "properties": properties, "required": required.split()}
    return ToolSpec(name=name, description=description, input_schema=schema, side_effects=side_effects)


def real_name(shown: str) -> str:
    """The inverse of `shown_name`."""
    real = shown.removeprefix(ALIAS)
    return real if shown_name(real) == shown else shown


def _called(node: str) -> str:
    return SPAWN if node == "task" else real_name(node)


class Conversation:
    """A run's conversation, as the facts that the planner gives. `steps_left`: decisions, the next one included."""

    def __init__(
        self,
        query: str,
        tools: list[ToolSpec],
        *,
        legacy: bool = False,
        tasks: bool = False,
        past: tuple[PastTurn, ...] = (),
        **request: Any,
    ) -> None:
        asked = RunRequested(
            run_id="0" * 32, tenant="t", requested_at=1_795_270_794_000, trace_id="0", query=query, **request
        )
        self.history: list[Item] = [history.Conversation(past), Question(asked)]
        self.rejected: list[Repaired] = []
        self.calls: list[PlannedCall] = []
        self.reasoning = ""
        self.steps_left = 16
        self._tools, self._legacy, self._tasks = tuple(tools), legacy, tasks
        self._step, self._reply = 0, ""

    def request(self, *, text_alone: bool = False) -> ModelRequest:
        """Return the request for its next decision."""
        facts = Facts(
            history=tuple(self.history),
            rejected=tuple(self.rejected),
            tools=self._tools,
            steps_left=self.steps_left,
            text_alone=text_alone,
            legacy=self._legacy,
            tasks_allowed=self._tasks,
        )
        return ModelRequest(model=demo.NAME, messages=Messages.of([]), facts=facts)

    def reply(self, *, text_alone: bool = False) -> demo.Act:
        """Let it reply, and note nothing of it."""
        return demo.play(self.request(text_alone=text_alone))

    def decide(self) -> tuple[str | None, dict[str, Any]]:
        """Let it decide."""
        act = self.reply()
        self.reasoning, self._reply = act.reasoning, act.text
        action = json.loads(act.text)
        node, args = action["next_node"], action["args"]
        steps = action.get("plan") or args.get("steps") or [{"node": node, "args": args}]
        self._step += 1
        self.calls = [
            PlannedCall(call_id=f"{self._step}-{number}", tool=_called(str(step["node"])), args=step["args"])
            for number, step in enumerate(steps)
        ]
        if node not in {None, "final_response", "plan"}:
            node = real_name(node)
        return node, args

    def observe(self, *observations: Any) -> None:
        """Say how the calls ended; a Fault is a failure."""
        observed = tuple(
            Observed(call_id=call.call_id, tool=call.tool, status="failed", failure=seen)
            if isinstance(seen, Fault)
            else Observed(call_id=call.call_id, tool=call.tool, status="succeeded", observation=seen)
            for call, seen in zip(self.calls, observations, strict=True)
        )
        self.history.append(Outcomes(Step(step=self._step, node="plan", status="started", calls=self.calls), observed))
        self.rejected.clear()

    def complain(self, reason: str) -> None:
        """Refuse its last decision."""
        self.rejected.append(Repaired(turn=self._step, attempt=1, reason=reason, reply=self._reply))

    def answer(self) -> str:
        """Let it decide, and expect an answer."""
        node, args = self.decide()
        assert node in {"final_response", None}
        assert args["warnings"] == [demo.WARNING]
        return str(args["answer"])
