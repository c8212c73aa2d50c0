"""One line for each error and warning of a plan, for people and for models: where it is, and what to do.

Rule 1: names and templates come from models and tools: control characters are left out, and long ones are cut.
Rule 2: a line has no line break and a bounded length.
"""

from collections.abc import Iterable, Sequence

from contracts.runs import decisions
from contracts.runs.decisions import PlanCall, PlanError, PlanErrorDetail, PlanWarning

MAX_TEXT_CHARACTERS = 500
MAX_NAME_CHARACTERS = 200
"""In the record of an error. A line about it shows fewer."""


def shortened(text: str, limit: int = MAX_TEXT_CHARACTERS) -> str:
    """Return text that UTF-8 can encode, of at most `limit` characters."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return cut.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def names_of(names: Iterable[str]) -> list[str]:
    """Return names, each shortened."""
    return [shortened(name, MAX_NAME_CHARACTERS) for name in names]


MAX_LISTED_NAMES = 20
MAX_SHOWN_NAME_CHARACTERS = 80
MAX_SHOWN_TEMPLATE_CHARACTERS = 200

PLAIN_TEXTS = {
    "invalid_template_syntax": "this is no template; write $N.output.field as the whole string, with the number N of an"
    " earlier call and without blanks",
    "self_reference": "this refers to its own call; only the output of an earlier call can be used",
    "unparseable": "the plan is not JSON; give an object with type direct_response or tool_calls",
    "unknown_type": "the plan has no known type; it is direct_response or tool_calls",
    "content_missing": "a direct_response needs content, a text",
    "calls_missing": "a plan of type tool_calls needs calls, a list",
    "empty_plan": "calls is empty; plan at least one call, or give a direct_response",
    "tool_name_missing": "the call needs tool_name, the name of a tool",
    "arguments_not_object": "arguments must be a JSON object",
}
LIMIT_TEXTS = {
    "too_many_calls": "the plan has {found} calls, and at most {limit} are allowed; plan fewer",
    "arguments_too_large": "the arguments have {found} bytes as JSON, and at most {limit} are allowed; refer to the"
    " output of an earlier call instead of repeating it",
    "too_deep": "it has {found} levels, and at most {limit} are allowed; use fewer",
    "schema_too_complex": "checking the plan needs more than {limit} steps; use fewer templates",
}
WARNING_TEXTS = {
    "nullable_source": "the value of the template may be null, which the tool does not take",
    "embedded_template_not_resolved": "the template inside the text is passed on as text; a template has to be the"
    " whole string",
}


def error_line(error: PlanError, calls: Sequence[PlanCall]) -> str:
    """Return an error in one line: call, argument, template, and what to do. `calls`: those of the plan."""
    template = f"template {printable(error.template, MAX_SHOWN_TEMPLATE_CHARACTERS)} - " if error.template else ""
    return f"{_where(error.tool_index, error.argument, calls)}{template}{_text(error.error)}"


def warning_line(warning: PlanWarning, calls: Sequence[PlanCall]) -> str:
    """Return a warning in one line."""
    return f"{_where(warning.tool_index, warning.argument, calls)}{WARNING_TEXTS[warning.warning]}"


def printable(text: str, limit: int = MAX_SHOWN_NAME_CHARACTERS) -> str:
    """Return text without control characters, cut to `limit` characters."""
    cut = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return "".join(character if character.isprintable() else " " for character in cut)


def _where(index: int | None, argument: str, calls: Sequence[PlanCall]) -> str:
    if index is None:
        return ""
    tool = f" ({printable(calls[index].tool_name)})" if index < len(calls) else ""
    place = f", argument {printable(argument, MAX_SHOWN_TEMPLATE_CHARACTERS)}" if argument else ""
    return f"Call {index}{tool}{place}: "


def _text(detail: PlanErrorDetail) -> str:
    match detail:
        case decisions.PlainError():
            return PLAIN_TEXTS[detail.type]
        case decisions.OverLimit():
            return LIMIT_TEXTS[detail.type].format(
                found=detail.found or f"more than {detail.limit}", limit=detail.limit
            )
        case decisions.UnknownTool():
            return f"there is no tool {printable(detail.tool_name)}; {_listed('the tools are', detail.available_tools)}"
        case decisions.InvalidArgument():
            return f"{printable(detail.reason, MAX_SHOWN_TEMPLATE_CHARACTERS)}; correct the argument"
        case decisions.NoOutputSchema():
            return f"{printable(detail.tool_name)} declares no output, so no template can refer to it"
        case decisions.FieldNotFound():
            field = printable(detail.field, MAX_SHOWN_TEMPLATE_CHARACTERS)
            place = "it has" if "." not in field else "there it has"
            none = "it declares none" if "." not in field else "none is declared there"
            names = _listed(place, detail.available_fields) if detail.available_fields else none
            return f'{printable(detail.tool_name)} has no output field "{field}"; {names}'
        case decisions.TypeMismatch():
            field, tool = printable(detail.field, MAX_SHOWN_TEMPLATE_CHARACTERS), printable(detail.tool_name)
            given, taken = (" or ".join(types) or "nothing" for types in (detail.source_types, detail.target_types))
            items = f'the items of "{field}" of {tool} are of other types than the argument takes'
            types = f'"{field}" of {tool} is {given}, and the argument takes {taken}; refer to a field of that type'
            return items if given == taken else types
        case decisions.ForwardReference():
            return f"call {detail.referenced_index} comes later; only the output of an earlier call can be used"
        case decisions.IndexOutOfBounds():
            last = detail.max_valid_index
            known = "no call comes before this one" if last is None else f"use a number from 0 to {last}"
            return f"the plan has no call {detail.referenced_index}; {known}"


def _listed(intro: str, names: Sequence[str]) -> str:
    if not names:
        return f"{intro} none"
    more = len(names) - MAX_LISTED_NAMES
    shown = ", ".join(map(printable, names[:MAX_LISTED_NAMES]))
    return f"{intro} {shown}" + (f" and {more} more" if more > 0 else "")
