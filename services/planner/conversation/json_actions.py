"""The dialect of JSON actions (`action_transport: json`): decisions and outcomes are texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from contracts.runs.actions import FINAL_RESPONSE, PLAN, TASK
from contracts.runs.events import ActionFormat, Observed, Repaired, Step
from services.planner.conversation import texts
from services.planner.conversation.catalogue import shown_name
from services.planner.conversation.encoding import compact
from services.planner.conversation.messages import Message, as_data, outcome, rejection, says
from services.planner.run.state.history import Executed


@dataclass(frozen=True, slots=True)
class JsonActions:
    """Renders decisions in the action format of the run: two fields, or five in the format `legacy`."""

    action_format: ActionFormat = "auto"

    def decision(self, step: Step) -> Message:
        """Render a decision as the JSON action that says it."""
        if step.answer is not None:
            return self._action(None if self._legacy else FINAL_RESPONSE, {"answer": step.answer}, step.thought)
        if len(step.calls) == 1 and step.join is None and step.node in {step.calls[0].tool, TASK}:
            return self._action(shown_name(step.calls[0].tool), step.calls[0].args, step.thought)
        steps = [{"node": shown_name(call.tool), "args": call.args} for call in step.calls]
        join = None
        if step.join is not None:
            join = {"node": shown_name(step.join.node), "args": step.join.args}
            join |= {} if step.join.inject is None else {"inject": step.join.inject}
        if self._legacy:
            return self._action(None, {}, step.thought, plan=steps, join=join)
        return self._action(PLAN, {"steps": steps} | ({"join": join} if join else {}))

    def outcomes(self, step: Step, observed: Sequence[Observed], note: str | None = None) -> list[Message]:
        """Render outcomes as data in one message, in the order of the calls, with that of a join last."""
        order = {call.call_id: number for number, call in enumerate(step.calls)}
        ordered = sorted(observed, key=lambda each: order.get(each.call_id, len(order)))
        lines = [as_data(outcome(each)) for each in ordered]
        text = f'<results step="{step.step}">\n' + "\n".join(lines) + "\n</results>"
        return [says("user", "\n".join([text, *([note] if note else []), texts.NEXT]))]

    def rejection(self, repaired: Repaired) -> list[Message]:
        """Render a reply that was not accepted, and the complaint about it."""
        return rejection(repaired, texts.REPAIR)

    def executed(self, item: Executed) -> list[Message]:
        """Render nothing: no strategy that writes these actions adds such an item."""
        del item
        return []

    @property
    def _legacy(self) -> bool:
        return self.action_format == "legacy"

    def _action(
        self,
        node: str | None,
        args: dict[str, Any],
        thought: str | None = None,
        *,
        plan: list[dict[str, Any]] | None = None,
        join: dict[str, Any] | None = None,
    ) -> Message:
        action: dict[str, Any] = {"next_node": node, "args": args}
        if self._legacy:
            action = {"thought": thought or "", **action, "plan": plan, "join": join}
        return says("assistant", compact(action))
