"""The example of a plan: two tools and an agent, through a whole system, and with the demo model as its README says."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples.plans import blog_tools
from tests.examples.conftest import EXAMPLES
from tests.support.documents import blocks, run_commands, run_python
from tests.support.model_server import ModelServer, Say
from tests.support.nats_server import NatsServer
from tests.support.s3_servers import S3Server
from tests.support.stack import Stack
from tests.support.waiting import wait_until

FOLDER = EXAMPLES / "plans"
README = (FOLDER / "README.md").read_text(encoding="utf-8")
RESEARCH = {"topic": "AI trends 2025", "skill_id": "research_blog"}
WRITING = {"skill_id": "blog_writing", "instructions": "Focus on practical applications"}
IDS = {"context_id": "ctx-456", "request_id": "req-789", "trace_id": "trace-012", "user_id": "user-345"}
PLAN = {
    "type": "tool_calls",
    "reasoning": "A post needs research first.",
    "calls": [
        {"tool_name": "research_blog", "arguments": RESEARCH},
        {"tool_name": "create_blog_post", "arguments": {"artifact_id": "$0.output.artifact_id", **WRITING}},
    ],
}
AS_CALL = Say(tool_calls=[{"name": "__planning__", "arguments": json.dumps(PLAN)}])
AS_TEXT = Say(text=json.dumps(PLAN))


@dataclass
class Whole:
    """A system, and the server of its scripted model."""

    stack: Stack
    model: ModelServer
    http: httpx.AsyncClient

    async def ask(self, query: str, session: str, **more: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Ask the agent `writer`, and return the status at the end and all events."""
        headers = {"X-Request-Id": "req-789", "X-Trace-Id": "trace-012"}
        body = {"query": query, "agent": "writer", "session_id": session, "user_id": "user-345", **more}
        posted = await self.http.post("/v1/runs", json=body, headers=headers)
        assert posted.status_code == 202, posted.text
        run = posted.json()["run_id"]
        events = await self.http.get(f"/v1/runs/{run}/events")
        found = [json.loads(line) for line in re.findall(r"^data: (.*)$", events.text, re.MULTILINE)]
        return (await self.http.get(f"/v1/runs/{run}")).json(), found


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, ModelServer]]:
    """What `make run` starts with the agents file of the example, and its tools."""
    folder = tmp_path_factory.mktemp("plans")
    with (
        NatsServer(folder / "nats", identities=True) as server,
        ModelServer() as model,
        S3Server("rclone", folder / "s3") as s3,
    ):
        env = {
            "RUNWIRE_MODEL": "builtin/rehearsal",
            "RUNWIRE_MODELS": "openai/scripted",
            "RUNWIRE_MODEL_API_BASE": model.url,
            "RUNWIRE_MODEL_API_KEY": "none",
            "RUNWIRE_AGENTS_FILE": str(FOLDER / "agents.toml"),
            "BLOG_FOLDER": str(folder / "blogs"),
            **s3.settings,
        }
        stack = Stack(server.url, folder / "stack", env, 1, 1, 1, 1, passwords=server.passwords)
        stack.add_tools("blog-1", FOLDER / "blog_tools.py")
        with stack:
            yield stack, model
    assert server.violations() == []


@pytest.fixture
async def whole(parts: tuple[Stack, ModelServer]) -> AsyncIterator[Whole]:
    """The same, once the tools are offered."""
    stack, model = parts
    model.reset()
    async with httpx.AsyncClient(base_url=stack.url, timeout=60) as http:

        async def are_offered() -> bool:
            tools = (await http.get("/v1/tools")).json()["tools"]
            return {"research_blog", "create_blog_post"} <= {tool["name"] for tool in tools}

        await wait_until(are_offered, timeout=30, what="the tools are in the catalogue")
        with stack.showing_logs():
            yield Whole(stack, model, http)


async def test_a_post_is_written_from_what_was_researched(whole: Whole) -> None:
    """With the id that the first tool gave, in two requests to the model, which reads no whole artifact."""
    whole.model.say(AS_CALL, Say(text="Here is your post."))
    run, events = await whole.ask(
        "Write a post about AI trends 2025",
        "ctx-456",
        strategy="planned",
        model="openai/scripted",
        tool_context={"blog_id": "abc-123"},
    )
    assert (run["status"], run["payload"]["raw_answer"]) == ("done", "Here is your post.")
    assert len(whole.model.ledger) == run["usage"]["model_calls"] == 2

    calls = {call["tool"]: call["args"] for event in events for call in event.get("calls", ())}
    assert calls["research_blog"] == RESEARCH
    assert calls["create_blog_post"] == {"artifact_id": "abc-123", **WRITING}

    observed = {event["tool"]: event["observation"] for event in events if event["type"] == "observed"}
    for name, skill in (("research_blog", "research_blog"), ("create_blog_post", "blog_writing")):
        metadata = observed[name]["_metadata"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", metadata.pop("executed_at"))
        assert metadata == {**IDS, "tool_name": name, "session_id": "ctx-456", "skill_id": skill}
    assert observed["research_blog"]["artifact_id"] == "abc-123"
    assert observed["create_blog_post"]["artifact_id"] == "abc-123-post", "the tool was given that id"


async def test_the_artifact_is_found_by_its_own_id(whole: Whole) -> None:
    """It is listed with both ids and the skill. The model reads a preview of it, and people the whole."""
    whole.model.say(AS_TEXT, Say(text="Here is your post."))
    run, _ = await whole.ask("Write a post", "ctx-457", model="openai/scripted", tool_context={"blog_id": "abc-123"})
    listed = (await whole.http.get("/v1/artifacts", params={"session_id": "ctx-457", "own_id": "abc-123"})).json()
    [found] = listed["artifacts"]
    ref = found["ref"]
    assert (ref["own_id"], ref["skill_id"], ref["artifact_type"]) == ("abc-123", "research_blog", "text")
    stored = (await whole.http.get(f"/v1/artifacts/{ref['artifact_id']}")).json()
    assert stored == blog_tools.research("AI trends 2025").model_dump()
    assert run["payload"]["artifacts"]["research_blog"]["artifact"] == stored

    told = whole.model.ledger[1].body["messages"][-1]["content"]
    assert '"artifact_id":"abc-123"' in told
    assert "Found 4 sections and a source" in told
    assert stored["sections"][0]["text"] in told
    assert stored["sources"][0]["url"] not in whole.model.ledger[1].text, "it stands at the end of the artifact"


SAID = ("I am builtin/rehearsal", 'Wrote the post "AI trends 2025"', "was not executed", 'no output field "artifactId"')


async def test_the_page_on_plans_runs(whole: Whole, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its commands one after another in one shell, then its code; and what they print."""
    printed = await run_commands("".join(blocks("plans.md", "sh")), tmp_path, RUNWIRE_URL=whole.stack.url)
    for text in (
        *SAID,
        "$N.output.artifact.sources.<number>.url",
        "a plan of calls: valid",
        "refers to its own call",
        "exit code 1",
        '"self_reference"',
        "from abc-123.",
    ):
        assert text in printed, printed
    assert len(re.findall(r"^.*\babc-123\b.*$", printed.rpartition("}")[2], re.MULTILINE)) == 1, printed
    await run_python("plans.md", {"URL": whole.stack.url, "__name__": __name__})
    assert "refers to its own call" in capsys.readouterr().out


async def test_the_first_path_of_the_docs_runs(whole: Whole, tmp_path: Path) -> None:
    """What it asks beside `make run` and the tools, which run already."""
    section = (EXAMPLES.parent / "docs/README.md").read_text(encoding="utf-8").partition("## Ask\n")[2]
    lines = section.partition("```sh\n")[2].partition("```")[0].splitlines()
    asked = [line.removeprefix(".venv/bin/") for line in lines if "make run" not in line and " serve " not in line]
    assert len(asked) == len(lines) - 2 > 0
    printed = await run_commands("\n".join(asked), tmp_path, RUNWIRE_URL=whole.stack.url)
    for text in (SAID[1], '"title":"AI trends 2025"'):
        assert text in printed, printed
