"""The client's method for plans."""

from collections.abc import Iterable
from typing import Any

from contracts.runs.plans import PlanReport
from runwire.client.transport import Transport


class PlanMethods:
    """Plans of the strategy `planned`: check one, without running it."""

    _transport: Transport

    async def check_plan(
        self, plan: Any, *, tools: Iterable[str] | None = None, outputs: Iterable[Any] | None = None
    ) -> PlanReport:
        """Check a plan against the tools that are present, as a run does before its first call.

        Args:
            plan: as a model gives it: `{"type": …}`, or `{"calls": […]}`.
            tools: names of the tools that count; None: all that the key may use.
            outputs: results of its calls, in order, with which templates are resolved; None: they are not.

        Raises RunwireError: the gateway refused, or cannot be reached; `invalid_input` names the field.
        """
        given = {"tools": tools, "outputs": outputs}
        body = {"plan": plan} | {name: list(values) for name, values in given.items() if values is not None}
        return await self._transport.ask(PlanReport, "POST", "/v1/plans/check", json=body)
