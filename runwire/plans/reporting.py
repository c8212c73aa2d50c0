"""Everything that can be said of a plan without running it, for people and for programs."""

from collections.abc import Mapping, Sequence
from typing import Any

from contracts.runs.plans import DIRECT_RESPONSE, TOOL_CALLS, Plan, PlanReport
from contracts.tools.messages import ToolSpec
from contracts.wire.limits import MAX_ARGUMENT_BYTES, MAX_HTTP_INLINE_BYTES
from runwire.plans.templates import json_size

from .checking import DEFAULT_BOUNDS, Faults, PlanBounds, check_plan
from .reading import DirectResponse, read_plan
from .resolving import ArgumentsTooLarge, MissingOutputField, resolve
from .texts import error_line, warning_line

_NO_TYPE = 'The plan has no type. A model has to give it: "type": "tool_calls"'


def report(
    plan: Any,
    tools: Mapping[str, ToolSpec],
    bounds: PlanBounds = DEFAULT_BOUNDS,
    outputs: Sequence[Any] | None = None,
    faults: Faults | None = None,
) -> PlanReport:
    """Read and check a plan, and resolve its templates where there are outputs.

    Args:
        plan: what a model gives, `{"type": …}`; of `{"calls": […]}` the type may be missing.
        tools: those that the run may use, by name.
        bounds: how large the plan may be.
        outputs: results of its calls, in order; None: nothing is resolved.
        faults: what checks literal arguments; None: only missing ones are found.
    """
    notes = []
    if isinstance(plan, Mapping) and "type" not in plan and "calls" in plan:
        plan = {"type": TOOL_CALLS, **plan}
        notes.append(_NO_TYPE)
    read = read_plan(plan)
    if isinstance(read, DirectResponse):
        return PlanReport(valid=True, kind=DIRECT_RESPONSE)
    if isinstance(read, list):
        return PlanReport(valid=False, kind="invalid", errors=read, lines=[error_line(error, []) for error in read])
    check = check_plan(read.calls, tools, bounds, faults)
    lines = [error_line(error, read.calls) for error in check.errors]
    if check.errors_left_out:
        lines.append(f"{check.errors_left_out} more errors are left out")
    lines += [warning_line(warning, read.calls) for warning in check.warnings]
    lines += notes if check.valid else []
    resolved = None if outputs is None or not check.valid else _resolved(read, outputs, lines)
    return PlanReport(
        valid=check.valid,
        kind=TOOL_CALLS,
        errors=check.errors,
        errors_left_out=check.errors_left_out,
        warnings=check.warnings,
        lines=lines,
        resolved=resolved,
    )


def _resolved(plan: Plan, outputs: Sequence[Any], lines: list[str]) -> list[dict[str, Any] | None]:
    """Return the arguments of each call; None, with a line that says why, for one that would fail."""
    found: list[dict[str, Any] | None] = []
    room = MAX_HTTP_INLINE_BYTES
    for index, call in enumerate(plan.calls):
        try:
            arguments = resolve(call.arguments, outputs[:index], max_bytes=min(room, MAX_ARGUMENT_BYTES))
        except (MissingOutputField, ArgumentsTooLarge) as error:
            lines.append(f"Call {index} would fail: {error}")
            found.append(None)
            continue
        # What the templates have added.
        room -= max(0, (json_size(arguments) or 0) - (json_size(call.arguments) or 0))
        found.append(arguments)
    return found
