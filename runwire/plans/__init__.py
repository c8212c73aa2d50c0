"""Plans of the strategy `planned`: read, check and resolve them, as a planner does. Pure; nothing is fetched or run.

`read_plan` reads what a model gave, `check_plan` checks its calls against the tools, `resolve` replaces the templates
of one call by values. `report` says all of it for people and programs. `template_paths` lists what templates may name.

Modules on plans: `templates` (the grammar), `arguments` (where strings are), `reading`, `checking` with `findings`,
`resolving`, `reporting`, `texts`. Modules on JSON Schemas: `schemas` (the fields) and `json_types`, both read through
`folding` (`$ref` and combinators), with `patterns`; `fitting` compares two schemas, `paths` lists one. `steps` counts
the work of a check.
"""

from contracts.plans import Plan, PlanCall, PlanError, PlanReport, PlanWarning

from .checking import PlanBounds, PlanCheck, check_plan
from .paths import TemplatePath, template_paths
from .reading import DirectResponse, read_plan
from .reporting import report
from .resolving import ArgumentsTooLarge, MissingOutputField, holds_templates, resolve
from .templates import Template, is_candidate, parse
from .texts import error_line, warning_line

__all__ = [
    "ArgumentsTooLarge",
    "DirectResponse",
    "MissingOutputField",
    "Plan",
    "PlanBounds",
    "PlanCall",
    "PlanCheck",
    "PlanError",
    "PlanReport",
    "PlanWarning",
    "Template",
    "TemplatePath",
    "check_plan",
    "error_line",
    "holds_templates",
    "is_candidate",
    "parse",
    "read_plan",
    "report",
    "resolve",
    "template_paths",
    "warning_line",
]
