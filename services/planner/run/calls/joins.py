"""Checks plans, and builds the call of a plan's join (docs/planner.md#plans).

Rule 1: an unknown tool or invalid arguments in one step reject the whole plan; nothing runs.
Rule 2: an invalid or skipped join does not affect the branches: their results go to the model, with one line that gives
the reason.
Rule 3: injected values are complete outputs, artifacts included. A large artifact stays a reference; tool_runner
replaces it by its value and checks the arguments. So arguments that hold a reference are not checked here.
Rule 4: messages to the model name arguments and types, never values, since the model may not be allowed to read them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from contracts.runs.decisions import Join
from contracts.runs.events import Observed, PlannedCall
from contracts.tools.messages import ToolSpec
from contracts.wire.base import MAX_ARGUMENT_BYTES
from contracts.wire.faults import Fault
from services.shared.json_schema.checks import complaints
from services.shared.redaction.annotations import arguments_of
from services.shared.redaction.json_values import wire_size
from services.shared.redaction.separation import dotted, restore
from services.shared.redaction.stored_values import holds_reference
from services.shared.tools.builtin import READ_ARTIFACT

JoinCode = Literal["unknown_node", "unknown_source", "invalid_join", "invalid_args", "tool_error", "branch_failures"]
Specs = Mapping[str, ToolSpec]

WHOLE_OUTPUT = dotted(())
MAX_NAMES_LISTED = 20
MAX_NAME_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Branch:
    """A finished step of a plan.

    `artifacts`: path in the observation -> value or reference. `failure`: the reason, if it failed.
    """

    node: str
    args: Mapping[str, Any]
    observation: Any = None
    artifacts: Mapping[str, Any] = field(default_factory=dict)
    failure: str | None = None

    @property
    def output(self) -> Any:
        """The complete result, large artifacts as references; one reference if all of it was offloaded."""
        whole = WHOLE_OUTPUT in self.artifacts
        return self.artifacts[WHOLE_OUTPUT] if whole else restore(self.observation, self.artifacts)


@dataclass(frozen=True, slots=True)
class JoinCall:
    """Call the join tool with these arguments."""

    node: str
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class NoJoin:
    """The join cannot run, or failed. `line` is for the model."""

    code: JoinCode
    line: str


def branch_of(call: PlannedCall, observed: Observed) -> Branch:
    """Return the branch that a call and its outcome make."""
    failure = None if observed.status == "succeeded" else _reason(observed.failure)
    return Branch(call.tool, call.args, observed.observation, observed.artifacts, failure)


def check_plan(plan_args: Mapping[str, Any], specs: Specs) -> list[str]:
    """Return a complaint about each step that may not run. `specs`: the run's tools by name."""
    steps = plan_args.get("steps")
    if not isinstance(steps, list) or not steps:
        return ["the plan has no steps, so nothing ran"]
    found = [_check_step(place, step, specs) for place, step in enumerate(steps, 1)]
    return [complaint for complaint in found if complaint]


def read_join(plan_args: Mapping[str, Any]) -> Join | NoJoin | None:
    """Return the join that a plan asks for; None when there is none: missing, null, no object or without a node."""
    raw = plan_args.get("join")
    if isinstance(raw, Join):
        return raw
    node = raw.get("node") if isinstance(raw, Mapping) else None
    if not isinstance(raw, Mapping) or node is None or (isinstance(node, str) and not node.strip()):
        return None
    args, inject = raw.get("args") or {}, raw.get("inject")
    if isinstance(inject, Mapping) and len(inject) == 1 and isinstance(inject.get("mapping"), Mapping):
        inject = inject["mapping"]  # Some models write this form.
    if not isinstance(node, str):
        return _no_join("invalid_join", "`join.node` must be a tool's name")
    if not isinstance(args, Mapping):
        return _no_join("invalid_join", "`join.args` must be an object")
    is_mapping = isinstance(inject, Mapping) and all(isinstance(source, str) for source in inject.values())
    if inject is not None and not is_mapping:
        shape = f"an object that maps argument names to sources ({_listed(SOURCES)})"
        return _no_join("invalid_join", f"`join.inject` must be {shape}")
    return Join(node=node.strip(), args=dict(args), inject=None if inject is None else dict(inject))


def check_join(join: Join, specs: Specs) -> NoJoin | None:
    """Return what is wrong with a join before any branch has run, or None."""
    if join.node not in specs:
        return _no_join("unknown_node", f"there is no tool {_name(join.node)}; the tools are {_listed(specs)}")
    for target, source in (join.inject or {}).items():
        if source.strip() not in SOURCES:
            why = f"{_name(source)} for {_name(target)} is no source; the sources are {_listed(SOURCES)}"
            return _no_join("unknown_source", why)
    return None


def resolve_join(plan_args: Mapping[str, Any], branches: Sequence[Branch], specs: Specs) -> JoinCall | NoJoin | None:
    """Resolve a plan's join once every branch is finished; None: there is none, and the model gets the results.

    `plan_args["join"]`: a Join, or what the model wrote.
    """
    join = read_join(plan_args)
    if join is None or isinstance(join, NoJoin):
        return join
    if wrong := check_join(join, specs):
        return wrong
    schema = specs[join.node].input_schema
    known, inject = arguments_of(schema), join.inject
    if inject is None:
        sources = {name: f"${name}" for name in _WELL_KNOWN if name in known.names and name not in join.args}
    else:  # Arguments that the tool does not declare are left out.
        sources = {name: source.strip() for name, source in inject.items() if known.others or name in known.names}
    failed = [branch for branch in branches if branch.failure is not None]
    if failed and not _WANT_FAILURES & set(sources.values()):
        return _no_join("branch_failures", f"{len(failed)} of {len(branches)} branches failed")
    args = {**join.args, **{target: SOURCES[source](branches) for target, source in sources.items()}}
    if (size := wire_size(args)) > MAX_ARGUMENT_BYTES:
        why = f"its arguments would weigh {size} bytes, and at most {MAX_ARGUMENT_BYTES} can be sent"
        return _no_join("invalid_args", why)
    if not holds_reference(args) and (faults := _faults(args, schema)):
        return _no_join("invalid_args", "; ".join(faults))
    return JoinCall(join.node, args)


def failed_join(fault: Fault | None) -> NoJoin:
    """Return how a join ended whose call has failed."""
    code: JoinCode = "invalid_args" if fault and fault.code == "invalid_args" else "tool_error"
    return NoJoin(code, f"The join failed ({code}): {_one_line(_reason(fault))}")


def _check_step(place: int, step: Any, specs: Specs) -> str | None:
    node, args = (step.get("node"), step.get("args")) if isinstance(step, Mapping) else (None, None)
    if not isinstance(node, str) or node not in specs:
        return f"step {place}: unknown tool {_name(node)}; the tools are {_listed(specs)}"
    faults = _faults({} if args is None else args, specs[node].input_schema, masked=False)
    return f"step {place} ({_name(node)}): {'; '.join(faults)}" if faults else None


def _faults(args: Any, schema: dict[str, Any], *, masked: bool = True) -> list[str]:
    try:
        return [_one_line(fault) for fault in complaints(args, schema, masked=masked)]
    except ValueError:  # a schema that cannot be used, or a value that is no JSON
        return ["the arguments cannot be checked against the tool's schema"]


def _outputs(branches: Sequence[Branch]) -> list[Any]:
    return [branch.output for branch in branches if branch.failure is None]


def _failures(branches: Sequence[Branch]) -> list[Any]:
    return [_described(branch) for branch in branches if branch.failure is not None]


def _described(branch: Branch) -> dict[str, Any]:
    outcome = {"observation": branch.output} if branch.failure is None else {"error": branch.failure}
    return {"node": branch.node, "args": dict(branch.args), **outcome}


SOURCES: dict[str, Callable[[Sequence[Branch]], Any]] = {
    "$results": _outputs,
    "$all": _outputs,
    "$branches": lambda branches: [_described(branch) for branch in branches],
    "$failures": _failures,
    "$success_count": lambda branches: len(_outputs(branches)),
    "$failure_count": lambda branches: len(_failures(branches)),
    "$expect": len,
}
"""What `inject` may name, and what the argument then holds."""

_WELL_KNOWN = ("results", "branches", "failures", "success_count", "failure_count", "expect")
_WANT_FAILURES = frozenset({"$failures", "$failure_count"})


def _no_join(code: JoinCode, why: str) -> NoJoin:
    return NoJoin(code, f"The join did not run ({code}): {why}.")


def _reason(fault: Fault | None) -> str:
    return fault.reason or fault.code if fault else "the call failed"


def _name(name: Any) -> str:
    """Quote an untrusted name: on one line, and short."""
    return f"`{_one_line(name)[:MAX_NAME_CHARACTERS]}`" if isinstance(name, str) else "(a name must be a string)"


def _one_line(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1].replace('\\"', '"').replace("\u2028", " ").replace("\u2029", " ")


def _listed(given: Mapping[str, Any]) -> str:
    names = [name for name in given if name != READ_ARTIFACT]
    shown = ", ".join(f"`{name}`" for name in names[:MAX_NAMES_LISTED])
    return f"{shown} and {len(names) - MAX_NAMES_LISTED} more" if len(names) > MAX_NAMES_LISTED else shown or "none"
