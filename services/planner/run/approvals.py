"""Calls that need a person's approval. Nobody can give it yet, so such a call ends before it is sent, and the model is told. Pure.

tool_runner refuses them too: whoever sends one, the tool is not asked.
"""

from collections.abc import Iterable

from contracts.events import Observed, PlannedCall
from contracts.faults import Fault
from services.planner.run.state import Run


def refusals(run: Run, calls: Iterable[PlannedCall]) -> list[Observed]:
    """Return the outcomes of those calls whose tools need an approval; they stand in the record that announces the calls."""
    needing = run.started.approvals if run.started else []
    return [
        Observed(call_id=call.call_id, tool=call.tool, status="failed", failure=_fault(call.tool)) for call in calls if call.tool in needing
    ]


def _fault(tool: str) -> Fault:
    reason = (
        f"{tool} may run only with a person's approval, and there is no way to give it yet, so it did not run."
        " Do not call it again: go on without it, and say in the answer what was not done."
    )
    return Fault(code="approval_unavailable", reason=reason)
