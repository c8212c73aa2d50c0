"""A program that checks plans without a server."""

from typing import Any, assert_type

from runwire import plans
from runwire.client import Client, ToolSpec

TOOLS = {"search": ToolSpec(name="search", output_schema={"properties": {"id": {"type": "string"}}})}


def check(value: object) -> list[str]:
    """Everything that is wrong with a plan."""
    read = plans.read_plan(value)
    assert_type(read, plans.DirectResponse | plans.Plan | list[plans.PlanError])
    if isinstance(read, plans.DirectResponse):
        assert_type(read.content, str)
        return []
    if isinstance(read, list):
        return [plans.error_line(error, []) for error in read]
    found = plans.check_plan(read.calls, TOOLS, plans.PlanBounds(max_calls=3))
    assert_type(found, plans.PlanCheck)
    assert_type(found.valid, bool)
    assert_type(found.errors_left_out, int)
    assert_type(found.warnings, list[plans.PlanWarning])
    return [
        *(plans.error_line(error, read.calls) for error in found.errors),
        *(plans.warning_line(warning, read.calls) for warning in found.warnings),
    ]


async def ask(client: Client) -> plans.PlanReport:
    """The same, by the tools of a gateway."""
    assert_type(plans.report({"calls": []}, TOOLS, outputs=[1]), plans.PlanReport)
    return await client.check_plan({"calls": []}, tools=["search"], outputs=[{"id": "1"}])


def refer(index: int, path: tuple[str, ...], value: Any, rest: tuple[str, ...]) -> Any:
    """What is stored elsewhere."""
    return None if index or path or rest else value


if __name__ == "__main__":
    assert_type(plans.parse_template("$0.output.id"), plans.Template | None)
    assert_type(plans.is_candidate("$0"), bool)
    assert_type(plans.template_paths(TOOLS["search"].output_schema), list[plans.TemplatePath])
    assert check({"type": "tool_calls", "calls": [{"tool_name": "search"}]}) == []
    try:
        assert_type(plans.resolve({"x": "$0.output.id"}, [{"id": "1"}], refer, max_bytes=10), dict[str, Any])
    except plans.MissingOutputField as missing:
        assert_type((missing.index, missing.field), tuple[int, str])
    except plans.ArgumentsTooLarge as large:
        assert_type(large.limit, int)
