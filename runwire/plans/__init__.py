"""Plans of the strategy `planned`: read, check and resolve them, as a planner does. Pure; nothing is fetched or run.

`read_plan` reads what a model gave, `check_plan` checks its calls against the tools, `resolve` replaces the templates
of one call by values. `report` says all of it for people and programs. `template_paths` lists what templates may name.

`templates` has the grammar and finds the strings of a call, and `texts` says in lines what a check finds.
`schema_fields` knows which fields a schema declares.
"""

from contracts.runs.decisions import Plan, PlanCall, PlanError, PlanReport, PlanWarning
from runwire.plans.checking import PlanBounds, PlanCheck, check_plan
from runwire.plans.reading import DirectResponse, TemplatePath, read_plan, report, template_paths
from runwire.plans.templates import (
    ArgumentsTooLarge,
    MissingOutputField,
    Template,
    holds_templates,
    is_candidate,
    parse_template,
    resolve,
)
from runwire.plans.texts import error_line, warning_line

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
