"""Plans of the strategy `planned`: read, check and resolve them, as a planner does. Pure; nothing is fetched or run.

`read_plan` reads what a model gave, `check_plan` checks its calls against the tools, `resolve` replaces the templates
of one call by values. `report` says all of it for people and programs. `template_paths` lists what templates may name.

`templates` has the grammar, `arguments` finds the strings of a call, `findings` bounds what a check finds, and `texts`
says it in lines. `json_schema/` knows which fields a schema declares.
"""

from contracts.runs.plans import Plan, PlanCall, PlanError, PlanReport, PlanWarning

from .checking import PlanBounds, PlanCheck, check_plan
from .reading import DirectResponse, TemplatePath, read_plan, report, template_paths
from .resolving import ArgumentsTooLarge, MissingOutputField, holds_templates, resolve
from .templates import Template, is_candidate, parse_template
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
    "parse_template",
    "read_plan",
    "report",
    "resolve",
    "template_paths",
    "warning_line",
]
