"""`runwire plan check` and `runwire tools NAME`, alone and beside a running `runwire up`."""

import json
from pathlib import Path
from typing import Any

import pytest

from contracts.tools.messages import ToolSpec
from tests.runwire.conftest import printed, runwire

STRING = {"type": "string"}
TOOLS = [
    ToolSpec(
        name="find",
        description="Find a page.\n\nTwice.",
        idempotent=True,
        input_schema={
            "properties": {"q": {**STRING, "description": "what"}, "n": {"type": ["integer", "null"]}},
            "required": ["q"],
        },
        output_schema={"properties": {"id": STRING, "pages": {"items": {"properties": {"url": STRING}}}, "any": {}}},
    ),
    ToolSpec(name="send", input_schema={"type": "object", "properties": {"id": STRING}}),
]


def write(folder: Path, name: str, value: Any) -> str:
    (folder / name).write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return name


@pytest.fixture
def tools(tmp_path: Path) -> str:
    """A file of tools, as `runwire tools -o json` prints it."""
    return write(tmp_path, "tools.json", [spec.model_dump(mode="json") for spec in TOOLS])


def plan(template: str) -> dict[str, Any]:
    """Find, then send."""
    calls = [{"tool_name": "find", "arguments": {"q": "x"}}, {"tool_name": "send", "arguments": {"id": template}}]
    return {"type": "tool_calls", "calls": calls}


def test_a_plan_is_checked_without_a_gateway(tmp_path: Path, tools: str) -> None:
    """A line for each error, with what to do; the exit code says whether the plan is valid."""
    good = runwire("plan", "check", write(tmp_path, "good.json", plan("$0.output.id")), "--tools", tools, data=tmp_path)
    assert (good.returncode, good.stdout, good.stderr) == (0, "a plan of calls: valid\n", "")
    wrong = write(tmp_path, "wrong.json", plan("$0.output.idd"))
    bad = runwire("plan", "check", wrong, "--tools", tools, data=tmp_path)
    assert bad.returncode == 1
    assert bad.stdout.splitlines() == [
        '✗ Call 1 (send), argument id: template $0.output.idd - find has no output field "idd"; it has id, pages, any',
        "not valid: nothing of it would run",
    ]
    printed = runwire("plan", "check", wrong, "--tools", tools, "-o", "json", data=tmp_path)
    assert printed.returncode == 1
    assert json.loads(printed.stdout)["errors"][0]["error"]["type"] == "field_not_found"
    direct = write(tmp_path, "direct.json", {"type": "direct_response", "content": "x"})
    assert runwire("plan", "check", direct, "--tools", tools, data=tmp_path).stdout == "a direct response: valid\n"


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("nowhere.json", None, "nowhere.json: No such file"),
        ("plan.json", "{", "plan.json holds no JSON"),
        ("plan.json", "[" * 100_000, "plan.json holds no JSON"),
    ],
)
def test_a_plan_that_cannot_be_read(tmp_path: Path, tools: str, file: str, text: str | None, said: str) -> None:
    """No traceback."""
    if text is not None:
        write(tmp_path, file, text)
    found = runwire("plan", "check", file, "--tools", tools, data=tmp_path)
    assert (found.returncode, found.stdout) == (1, "")
    assert said in found.stderr


def test_a_tool_is_described(up: Path) -> None:
    """By its name alone, also after options, and as JSON; an unknown one is an error that names the others."""
    shown = printed("tools", "calculate", data=up)
    assert shown.startswith("calculate ")
    assert "expression" in shown
    assert "$N.output" in shown or "no template can refer to it" in shown
    assert printed("tools", "show", "calculate", data=up) == shown
    for arguments in (("calculate", "-o", "json"), ("-o", "json", "calculate"), ("show", "calculate", "-o", "json")):
        document = json.loads(runwire("tools", *arguments, data=up).stdout)
        assert document["name"] == "calculate"
        assert {"paths", "input_schema", "output_schema"} <= set(document)
    gone = runwire("tools", "calculat", data=up)
    assert (gone.returncode, gone.stdout) == (1, "")
    assert "there is no tool calculat; the tools are" in gone.stderr
    assert "calculate" in gone.stderr
    assert runwire("tools", "--nonsense", data=up).returncode == 2
    assert runwire("tools", "calculate", "more", data=up).returncode == 2


def test_a_gateway_finds_what_is_found_with_its_tools(up: Path) -> None:
    """docs/plans.md shows plans that are valid, and not."""
    wrong = runwire("plan", "check", write(up, "wrong-plan.json", plan("$0.output.id")), "-o", "json", data=up)
    assert wrong.returncode == 1
    codes = [error["error"]["type"] for error in json.loads(wrong.stdout)["errors"]]
    assert codes == ["unknown_tool", "unknown_tool"]
    listed = printed("tools", "-o", "json", data=up)
    local = runwire("plan", "check", "wrong-plan.json", "--tools", write(up, "all.json", listed), "-o", "json", data=up)
    assert local.stdout == wrong.stdout
