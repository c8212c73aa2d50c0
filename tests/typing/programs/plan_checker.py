"""A program that checks plans without a server."""

from typing import Any, assert_type

from runwire.client import Client, ToolSpec
from runwire.plans import (
    ArgumentsTooLarge,
    DirectResponse,
    MissingOutputField,
    Plan,
    PlanBounds,
    PlanCheck,
    PlanError,
    PlanReport,
    PlanWarning,
    Template,
    TemplatePath,
    check_plan,
    error_line,
    is_candidate,
    parse_template,
    read_plan,
    report,
    resolve,
    template_paths,
    warning_line,
)

TOOLS = {"search": ToolSpec(name="search", output_schema={"properties": {"id": {"type": "string"}}})}


def check(value: object) -> list[str]:
    """Everything that is wrong with a plan."""
    read = read_plan(value)
    assert_type(read, DirectResponse | Plan | list[PlanError])
    if isinstance(read, DirectResponse):
        assert_type(read.content, str)
        return []
    if isinstance(read, list):
        return [error_line(error, []) for error in read]
    found = check_plan(read.calls, TOOLS, PlanBounds(max_calls=3))
    assert_type(found, PlanCheck)
    assert_type(found.valid, bool)
    assert_type(found.errors_left_out, int)
    assert_type(found.warnings, list[PlanWarning])
    return [
        *(error_line(error, read.calls) for error in found.errors),
        *(warning_line(warning, read.calls) for warning in found.warnings),
    ]


async def ask(client: Client) -> PlanReport:
    """The same, by the tools of a gateway."""
    assert_type(report({"calls": []}, TOOLS, outputs=[1]), PlanReport)
    return await client.check_plan({"calls": []}, tools=["search"], outputs=[{"id": "1"}])


def refer(index: int, path: tuple[str, ...], value: Any, rest: tuple[str, ...]) -> Any:
    """What is stored elsewhere."""
    return None if index or path or rest else value


if __name__ == "__main__":
    assert_type(parse_template("$0.output.id"), Template | None)
    assert_type(is_candidate("$0"), bool)
    assert_type(template_paths(TOOLS["search"].output_schema), list[TemplatePath])
    assert check({"type": "tool_calls", "calls": [{"tool_name": "search"}]}) == []
    try:
        assert_type(resolve({"x": "$0.output.id"}, [{"id": "1"}], refer, max_bytes=10), dict[str, Any])
    except MissingOutputField as missing:
        assert_type((missing.index, missing.field), tuple[int, str])
    except ArgumentsTooLarge as large:
        assert_type(large.limit, int)
