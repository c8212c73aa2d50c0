"""Calls that need a person's approval. Pure.

No approval can be given yet, so such a call fails before it is sent, and the model receives the reason. tool_runner
refuses these calls too, so the tool does not run even if some other sender requests it.
"""

from collections.abc import Iterable

from contracts.events import Observed, PlannedCall
from contracts.faults import Fault
from services.planner.run.state import Run


def refusals(run: Run, calls: Iterable[PlannedCall]) -> list[Observed]:
    """Return a failed outcome for each call whose tool needs an approval.

    They go into the record that starts the calls.
    """
    needing = run.started.approvals if run.started else []
    return [
        Observed(call_id=call.call_id, tool=call.tool, status="failed", failure=_fault(call.tool))
        for call in calls
        if call.tool in needing
    ]


def _fault(tool: str) -> Fault:
    reason = (
        f"{tool} may run only with a person's approval, and there is no way to give it yet, so it did not run."
        " Do not call it again: go on without it, and say in the answer what was not done."
    )
    return Fault(code="approval_unavailable", reason=reason)
