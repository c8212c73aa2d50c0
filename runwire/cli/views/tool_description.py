"""What a tool takes and gives, for those who write plans: its arguments, and every path that a template may name."""

from typing import Any

from contracts.tools.messages import ToolSpec
from runwire.cli.printing import one_line, visible
from runwire.plans import TemplatePath, template_paths
from runwire.plans.json_schema.fields import Fields
from runwire.plans.json_schema.folding import Steps, TooManySteps

MAX_ARGUMENTS = 500
_FLAGS = ("idempotent", "requires_approval", "hidden")


def document(spec: ToolSpec) -> dict[str, Any]:
    """Return the specification as JSON, with the paths of its output as templates."""
    paths = [
        {"template": _template(path), "types": list(path.types), "note": path.note}
        for path in template_paths(spec.output_schema)
    ]
    return {**spec.model_dump(mode="json"), "paths": paths}


def lines(spec: ToolSpec) -> list[str]:
    """Return a description of a tool for people."""
    flags = [name for name in _FLAGS if getattr(spec, name)] + [f"side effects: {spec.side_effects}"]
    found = [one_line(f"{spec.name}  {', '.join(flags)}")]
    found += [visible(line) for line in spec.description.splitlines() if line.strip()]
    found += ["", "arguments"]
    found += _columns(_arguments(spec)) or ["  none are declared"]
    found += ["", "paths in its output, for templates in later calls; N is the number of its call"]
    if spec.output_schema is None:
        return [*found, "  it declares no output, so no template can refer to it"]
    paths = [[_template(path), " or ".join(path.types), path.note] for path in template_paths(spec.output_schema)]
    return [*found, *(_columns(paths) or ["  none are declared"])]


def _template(path: TemplatePath) -> str:
    return f"$N.output.{path.path}" if path.path else ""


def _arguments(spec: ToolSpec) -> list[list[str]]:
    schema = spec.input_schema
    fields = Fields(schema, Steps())
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    rows: list[list[str]] = []
    try:
        for name in fields.names(schema, MAX_ARGUMENTS):
            types = " or ".join(sorted(fields.types(fields.inside(schema, name))))
            properties = schema.get("properties")
            part = properties.get(name) if isinstance(properties, dict) else None
            text = part.get("description") if isinstance(part, dict) else None
            description = text if isinstance(text, str) else ""
            rows.append([name, types, "required" if name in needed else "", description])
    except TooManySteps:
        rows.append(["…", "", "", "the schema is too complex"])
    return rows


def _columns(rows: list[list[str]]) -> list[str]:
    """Return rows as lines of aligned columns."""
    shown = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in shown]
