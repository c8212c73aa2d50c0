"""The code in the pages of docs that follow works as it is printed there."""

import json
import tomllib
from pathlib import Path
from typing import Any, get_args

import nats
import pytest

from contracts.runs.events import KNOWN
from contracts.runs.pages import Page
from contracts.runs.pauses import ApprovalRule
from contracts.sessions.records import KnownSessionEvent
from contracts.tools.messages import ToolSpec
from runwire import events
from runwire.local import data_folder
from services.planner.agents import load_agents
from services.shared.runs.pages.page_types import help_text
from services.shared.runs.pages.registry import load_pages
from tests.support.documents import ROOT, blocks, run_commands, run_python
from tests.support.nats_server import NatsServer
from tests.support.reference_pages import PUBLIC, public_names


async def test_the_pages_on_tools_run(nats_server: NatsServer) -> None:
    """What it serves answers."""
    login = {"NATS_URL": nats_server.url, "NATS_USER": None, "NATS_PASSWORD": None}
    names: dict[str, Any] = {**login, "__name__": __name__}
    for page in ("tools.md", "tool_protocol.md"):
        await run_python(page, names)

    assert names["analyze_sales"].spec.idempotent
    async with await nats.connect(nats_server.url) as caller:
        answer = await caller.request("tool.shout", b'{"args": {"text": "hello"}}')
    assert answer.data == b'{"text": "HELLO"}'
    await names["client"].close()


@pytest.fixture
def gateway_url(up: Path) -> str:
    """Of a whole system with the demo model, the calculator, a tool that needs approval, tables, background tasks."""
    url: str = data_folder.remembered(up)["url"]
    return url


async def test_the_page_on_the_sdk_runs(gateway_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Against a whole system."""
    names: dict[str, Any] = {"URL": gateway_url, "__name__": __name__}
    await run_python("sdk.md", names)

    assert "391" in names["answer"]
    assert "42" in names["status"].payload.raw_answer
    assert "there is no such run" in capsys.readouterr().out


async def test_the_page_on_control_runs(gateway_url: str, tmp_path: Path) -> None:
    """Its commands one after another in one shell, then its code; and what they print."""
    printed = await in_a_shell("control.md", gateway_url, tmp_path)
    for text in (
        *("17*23 = 391", "6*7 = 42", "sums", "you> What is 17*23?"),
        *("ann@example.org", "The report was sent to ann@example.org", "Not to Ann, she has left"),
    ):
        assert text in printed, printed
    await run_python("control.md", {"URL": gateway_url, "__name__": __name__})


async def test_the_page_on_tasks_runs(gateway_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Three tasks in a shell, the example, and a report that a program waits for."""
    printed = await in_a_shell("tasks.md", gateway_url, ROOT)
    for text in ("background work", "In the background", "spawned: What is 6*7?", "- What is 17*23?: 17*23 = 391"):
        assert text in printed, printed
    await run_python("tasks.md", {"URL": gateway_url, "__name__": __name__})
    printed = capsys.readouterr().out
    for text in ("succeeded: 3*4 = 12", "succeeded: 5*6 = 30", "- What is 3*4?: 3*4 = 12"):
        assert text in printed, printed


async def test_the_page_on_schedules_runs(gateway_url: str, tmp_path: Path) -> None:
    """A schedule that fires while it is read, and a webhook."""
    printed = await in_a_shell("schedules.md", gateway_url, tmp_path)
    for text in ("nightly", "30 2 * * 1-5 Europe/Berlin", "T07:00:00+09:00", "6*7 = 42", '"status":"queued"'):
        assert text in printed, printed
    names: dict[str, Any] = {"URL": gateway_url, "__name__": __name__}
    await run_python("schedules.md", names)
    assert "391" in names["run"].payload.raw_answer
    assert names["answers"][0].content == names["answers"][1].content


async def test_the_page_on_tables_runs(gateway_url: str, tmp_path: Path) -> None:
    """A file goes in and comes out as it was, on the command line and in a program."""
    printed = await in_a_shell("tables.md", gateway_url, tmp_path)
    for text in ("imported", "people", "number  Deals", '"Name":"Bo"', '"Ann"'):
        assert text in printed, printed
    assert "Bo" not in printed.splitlines()[-1]
    assert (tmp_path / "again.csv").read_text("utf-8") == "\ufeffName,Status,Deals\nAnn,open,4\nBo,done,2\n"
    await run_python("tables.md", {"URL": gateway_url, "__name__": __name__})


async def test_the_page_on_pages_runs(gateway_url: str, tmp_path: Path) -> None:
    """A conversation on the page of a table, then what its model was told."""
    printed = await in_a_shell("pages.md", gateway_url, tmp_path)
    assert "session chat-" in printed
    await run_python("pages.md", {"URL": gateway_url, "__name__": __name__})


def test_the_pages_file_is_one(tmp_path: Path) -> None:
    """Its help too."""
    [topic] = [block for block in blocks("pages.md", "") if block.startswith("+++")]
    [text] = blocks("pages.md", "toml")
    (tmp_path / "help").mkdir()
    (tmp_path / "help" / "returns.md").write_text(topic)
    (tmp_path / "pages.toml").write_text(text)
    pages = load_pages(tmp_path / "pages.toml")
    assert pages.payloads(Page(name="orders", tab="late")) == ["order_proposal"]
    assert "Returns" in help_text(pages.topics, "orders", "customer")


async def in_a_shell(document: str, gateway_url: str, folder: Path) -> str:
    """Run the commands of a page in a folder, one after another, and return what they print."""
    return await run_commands("".join(blocks(document, "sh")), folder, RUNWIRE_URL=gateway_url)


@pytest.mark.parametrize("code", blocks("control.md", "json"))
def test_the_rules_are_those_of_an_agents_file(code: str, tmp_path: Path) -> None:
    """As a planner reads it."""
    (tmp_path / "agents.json").write_text(code)
    assert load_agents(tmp_path / "agents.json")
    for rule in json.loads(code)["default"]["approvals"]:
        ApprovalRule.model_validate(rule)


def test_what_is_public_is_documented() -> None:
    """Where it is defined."""
    for module in PUBLIC:
        for name in public_names(module):
            value = getattr(module, name)
            assert not isinstance(value, type) or value.__doc__, name


def test_every_event_is_public() -> None:
    """Whoever matches on an event imports it from `runwire.events`."""
    known = {*KNOWN, *get_args(get_args(KnownSessionEvent)[0])}
    assert {model.__name__ for model in known} <= set(public_names(events))


@pytest.mark.parametrize("code", blocks("tool_protocol.md", "toml"))
def test_the_declaration_is_a_specification(code: str) -> None:
    """The file of tools that do not announce themselves."""
    (entry,) = tomllib.loads(code)["tools"]
    assert ToolSpec.model_validate(entry).input_schema["required"] == ["text"]
