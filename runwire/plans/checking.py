"""Checks a plan before any of it runs: every template against the schemas of the tools.

Rule 1: bounds come first. Of what is larger, nothing is read.
Rule 2: all errors are collected, in the order of calls and, inside a call, of arguments.
Rule 3: arguments that no template gives are checked against the tool's input schema by `Faults`, where there is one: a
JSON Schema validator is no part of this package. Without it, only missing arguments are found.
Rule 4: no value makes it raise. Its work is bounded (`Steps`): a plan that needs more is refused.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from contracts.runs import decisions
from contracts.tools.messages import ToolSpec
from runwire.plans import templates
from runwire.plans.schema_fields import MAX_NAMES, Fields, Missing, fit
from runwire.plans.schema_folding import MAX_STEPS, Schema, Steps, TooManySteps
from runwire.plans.texts import MAX_NAME_CHARACTERS, names_of, shortened


@dataclass(frozen=True, slots=True)
class PlanBounds:
    """How large a plan may be."""

    max_calls: int = 64
    max_argument_bytes: int = 64 << 10
    """Bytes of the arguments of one call, as compact JSON."""
    max_depth: int = 32
    """Levels of objects and lists in the arguments of a call, and segments of a template's path."""
    max_plan_bytes: int = 512_000
    """Bytes of the names and arguments of all calls: the log keeps a plan in one record."""


DEFAULT_BOUNDS = PlanBounds()
MAX_ERRORS = 100
MAX_ERROR_BYTES = 64 << 10
"""Bytes of all errors together as JSON; the first one may be larger."""
MAX_WARNINGS = 100
Faults = Callable[[dict[str, Any], dict[str, Any], Callable[[str], bool]], Iterable[tuple[str, str]]]
"""Takes arguments, the tool's input schema, and whether a string is a template. Returns path and reason of each fault
that no value of a template changes."""


@dataclass(slots=True)
class PlanCheck:
    """What a check has found. A plan with an error does not run."""

    errors: list[decisions.PlanError] = field(default_factory=list)
    warnings: list[decisions.PlanWarning] = field(default_factory=list)
    errors_left_out: int = 0
    """Number of errors beyond those listed: a check lists at most 100 errors, which have 64 KiB together."""
    _room: int = field(default=MAX_ERROR_BYTES, init=False, repr=False)

    @property
    def valid(self) -> bool:
        """Whether the plan may run."""
        return not self.errors

    def add(
        self,
        tool_index: int | None,
        detail: decisions.PlanErrorDetail,
        argument: Callable[[], str] = str,
        template: str = "",
    ) -> None:
        """Add an error, or count it. `argument` returns its path, and is called only for an error that is kept."""
        if self._room <= 0 or len(self.errors) == MAX_ERRORS:
            self.errors_left_out += 1
            return
        error = decisions.PlanError(
            tool_index=tool_index, argument=shortened(argument()), template=shortened(template), error=detail
        )
        self._room -= len(error.model_dump_json().encode())
        self.errors.append(error)

    def warn(self, tool_index: int, warning: decisions.PlanWarningCode, argument: Callable[[], str]) -> None:
        """Add a warning; those after the hundredth are left out."""
        if len(self.warnings) < MAX_WARNINGS:
            text = shortened(argument())
            self.warnings.append(decisions.PlanWarning(tool_index=tool_index, argument=text, warning=warning))


def check_plan(
    calls: Sequence[decisions.PlanCall],
    tools: Mapping[str, ToolSpec],
    bounds: PlanBounds = DEFAULT_BOUNDS,
    faults: Faults | None = None,
) -> PlanCheck:
    """Check the calls of a plan. `tools`: those that the run may use, by name."""
    checker = _Checker(calls, tools, bounds, faults)
    checker.check_all()
    return checker.findings


@dataclass(slots=True)
class _Checker:
    _calls: Sequence[decisions.PlanCall]
    _tools: Mapping[str, ToolSpec]
    _bounds: PlanBounds
    _faults: Faults | None
    findings: PlanCheck = field(default_factory=PlanCheck)
    _steps: Steps = field(default_factory=Steps)
    _inputs: dict[str, Fields] = field(default_factory=dict)
    _outputs: dict[str, Fields] = field(default_factory=dict)
    _missing: dict[tuple[str, tuple[str, ...]], decisions.FieldNotFound] = field(default_factory=dict)
    _targets: dict[templates.Container, Schema] = field(default_factory=dict)
    """What the input schemas say of containers in the arguments."""

    def check_all(self) -> None:
        limit, found = self._bounds.max_calls, len(self._calls)
        if found > limit:
            self.findings.add(None, decisions.OverLimit(type="too_many_calls", limit=limit, found=found))
            return
        size = sum((templates.json_size(call.arguments) or 0) + len(call.tool_name) for call in self._calls)
        if size > self._bounds.max_plan_bytes:
            large = decisions.OverLimit(type="arguments_too_large", limit=self._bounds.max_plan_bytes, found=size)
            self.findings.add(None, large)
            return
        for index, call in enumerate(self._calls):
            if templates.is_deeper(call.arguments, self._bounds.max_depth):
                self.findings.add(index, decisions.OverLimit(type="too_deep", limit=self._bounds.max_depth))
                continue
            argument_bytes, most = templates.json_size(call.arguments), self._bounds.max_argument_bytes
            if argument_bytes is None or argument_bytes > most:
                self.findings.add(
                    index, decisions.OverLimit(type="arguments_too_large", limit=most, found=argument_bytes)
                )
                continue
            if call.tool_name not in self._tools:
                available = names_of(islice(self._tools, MAX_NAMES))
                name = shortened(call.tool_name, MAX_NAME_CHARACTERS)
                self.findings.add(index, decisions.UnknownTool(tool_name=name, available_tools=available))
            if not self._check_arguments(index, call):
                return

    def _check_arguments(self, index: int, call: decisions.PlanCall) -> bool:
        """Check the arguments of a call. False: the work of the whole check is used up."""
        try:
            self._check_literals(index, call)
        except TooManySteps:
            self.findings.add(index, decisions.OverLimit(type="schema_too_complex", limit=MAX_STEPS))
            return False
        for container, key, text in templates.marked_strings(call.arguments):
            argument = partial(container.dotted, key)
            try:
                detail = self._check_string(index, container, key, text)
            except TooManySteps:
                detail = decisions.OverLimit(type="schema_too_complex", limit=MAX_STEPS)
                self.findings.add(index, detail, argument, text)
                return False
            if detail is not None:
                self.findings.add(index, detail, argument, text)
        return True

    def _check_literals(self, index: int, call: decisions.PlanCall) -> None:
        """Check what no template gives: what is missing, and the values of the rest."""
        if call.tool_name not in self._tools:
            return
        target = self._target(call.tool_name)
        for name in sorted(target.required().difference(call.arguments)):
            self.findings.add(index, decisions.InvalidArgument(reason="the tool requires it"), partial(str, name))
        schema = self._tools[call.tool_name].input_schema
        for path, reason in (
            self._faults(call.arguments, schema, templates.is_candidate) if self._faults is not None else ()
        ):
            if path or "is a required property" not in reason:
                self.findings.add(index, decisions.InvalidArgument(reason=shortened(reason)), partial(str, path))

    def _target(self, name: str) -> Fields:
        """Return the fields of a tool's input schema, read once."""
        if name not in self._inputs:
            self._inputs[name] = Fields(self._tools[name].input_schema, self._steps)
        return self._inputs[name]

    def _check_string(
        self, index: int, container: templates.Container, key: templates.Key, text: str
    ) -> decisions.PlanErrorDetail | None:
        self._steps.take()
        template = templates.parse_template(text)
        if template is not None:
            wrong = self._wrong_reference(index, template)
            return wrong or self._wrong_field(index, container, key, template)
        if templates.is_candidate(text):
            return decisions.PlainError(type="invalid_template_syntax")
        if templates.holds_embedded(text):
            self.findings.warn(index, "embedded_template_not_resolved", partial(container.dotted, key))
        return None

    def _wrong_reference(self, index: int, template: templates.Template) -> decisions.PlanErrorDetail | None:
        """Compare the number of a call with those that come before."""
        number, depth = template.index, len(template.path)
        if depth > self._bounds.max_depth:
            return decisions.OverLimit(type="too_deep", limit=self._bounds.max_depth, found=depth)
        if number == index:
            return decisions.PlainError(type="self_reference")
        if number >= len(self._calls):
            return decisions.IndexOutOfBounds(referenced_index=number, max_valid_index=index - 1 if index else None)
        if number > index:
            return decisions.ForwardReference(referenced_index=number)
        return None

    def _wrong_field(
        self, index: int, container: templates.Container, key: templates.Key, template: templates.Template
    ) -> decisions.PlanErrorDetail | None:
        """Look the field up, and compare its types with those of the argument."""
        name = self._calls[template.index].tool_name
        tool = self._tools.get(name)
        if tool is None:
            return None  # The call that it refers to has the error.
        if tool.output_schema is None:
            return decisions.NoOutputSchema(tool_name=name)
        if name not in self._outputs:
            self._outputs[name] = Fields(tool.output_schema, self._steps)
        source = self._outputs[name]
        found = source.find(template.path)
        if isinstance(found, Missing):
            return self._not_found(name, template, found)
        called = self._calls[index].tool_name
        if called not in self._tools:
            return None
        target = self._target(called)
        fitted = fit(source, found, target, target.inside(self._schema_of(container, target), str(key)))
        if not fitted.fits:
            return decisions.TypeMismatch(
                tool_name=name,
                field=shortened(".".join(template.path)),
                source_types=sorted(fitted.source),
                target_types=sorted(fitted.target),
            )
        if fitted.may_be_null:
            self.findings.warn(index, "nullable_source", partial(container.dotted, key))
        return None

    def _schema_of(self, container: templates.Container, target: Fields) -> Schema:
        """Return what the tool's input schema says of a container in the arguments, looked up once."""
        unread = []
        while container.parent is not None and container not in self._targets:
            unread.append(container)
            container = container.parent
        schema = target.root if container.parent is None else self._targets[container]
        for each in reversed(unread):
            schema = self._targets[each] = target.inside(schema, str(each.key))
        return schema

    def _not_found(self, name: str, template: templates.Template, missing: Missing) -> decisions.FieldNotFound:
        known = self._missing.get((name, template.path))
        if known is None:
            shown = shortened(name, MAX_NAME_CHARACTERS)
            known = self._missing[name, template.path] = decisions.FieldNotFound(
                tool_name=shown,
                tool=shown,
                field=shortened(".".join(template.path[: missing.depth])),
                available_fields=names_of(missing.names),
            )
        return known
