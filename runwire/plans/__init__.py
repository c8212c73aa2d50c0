"""Plans of the strategy `planned`: read, check and resolve them, as a planner does. Pure; nothing is fetched or run.

`read_plan` reads what a model gave, `check_plan` checks its calls against the tools, `resolve` replaces the templates
of one call by values. `report` says all of it for people and programs. `template_paths` lists what templates may name.

`templates` has the grammar of templates and replaces them, `texts` says in lines what a check finds, and
`schema_fields` knows which fields a schema declares, with `schema_folding` and `schema_graph`.
"""

from types import ModuleType as _Module

from contracts.runs.decisions import Plan as Plan
from contracts.runs.decisions import PlanCall as PlanCall
from contracts.runs.decisions import PlanError as PlanError
from contracts.runs.decisions import PlanReport as PlanReport
from contracts.runs.decisions import PlanWarning as PlanWarning
from runwire.plans.checking import PlanBounds as PlanBounds
from runwire.plans.checking import PlanCheck as PlanCheck
from runwire.plans.checking import check_plan as check_plan
from runwire.plans.reading import DirectResponse as DirectResponse
from runwire.plans.reading import TemplatePath as TemplatePath
from runwire.plans.reading import read_plan as read_plan
from runwire.plans.reading import report as report
from runwire.plans.reading import template_paths as template_paths
from runwire.plans.templates import ArgumentsTooLarge as ArgumentsTooLarge
from runwire.plans.templates import MissingOutputField as MissingOutputField
from runwire.plans.templates import Template as Template
from runwire.plans.templates import holds_templates as holds_templates
from runwire.plans.templates import is_candidate as is_candidate
from runwire.plans.templates import parse_template as parse_template
from runwire.plans.templates import resolve as resolve
from runwire.plans.texts import error_line as error_line
from runwire.plans.texts import warning_line as warning_line

# For `help()` and `import *`; type checkers read the imports.
globals()["__all__"] = [name for name, value in globals().items() if name[0] != "_" and not isinstance(value, _Module)]
