"""What docs/tools.md shows works as it stands there."""

import ast
import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

import nats
import pytest

from contracts.tools import ToolSpec
from tests.support.nats_server import NatsServer

TEXT = (Path(__file__).resolve().parent.parent.parent / "docs" / "tools.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The blocks of code in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


async def run(code: str, names: dict[str, Any]) -> None:
    """Run a block, which may await."""
    compiled = compile(code, "docs/tools.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    waiting = eval(compiled, names)  # noqa: S307, the code is ours
    if inspect.isawaitable(waiting):
        await waiting


async def test_the_python_blocks_run(nats_server: NatsServer) -> None:
    """One after another, as a reader would."""
    names: dict[str, Any] = {"NATS_URL": nats_server.url, "NATS_USER": None, "NATS_PASSWORD": None, "__name__": "docs"}
    for code in blocks("python"):
        await run(code, names)

    assert names["analyze_sales"].spec.idempotent
    async with await nats.connect(nats_server.url) as caller:
        answer = await caller.request("tool.shout", b'{"args": {"text": "hello"}}')
    assert answer.data == b'{"text": "HELLO"}'
    await names["client"].close()


@pytest.mark.parametrize("code", blocks("toml"))
def test_the_declaration_is_a_specification(code: str) -> None:
    """The file of tools that do not announce themselves."""
    (entry,) = tomllib.loads(code)["tools"]
    assert ToolSpec.model_validate(entry).input_schema["required"] == ["text"]
