"""What servers do beside the protocol, and against it: each costs itself at most. One tool runner has all of them."""

import asyncio
import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from contracts.runs.inbox import CallFinished
from contracts.tools.messages import ToolSpec
from contracts.wire.names import new_id
from services.shared.tools.catalogue import refused_tools
from services.tool_runner.transports.mcp.config import McpServer
from services.tool_runner.transports.mcp.server import ServerLink, _read
from tests.support import mcp_server
from tests.support.needs import free_port
from tests.support.waiting import wait_until
from tests.tool_runner.conftest import Planner, Start

LOOK = {"name": "look", "description": "Looks", "inputSchema": {"type": "object", "properties": {"q": {}}}}
COUNTED = {**LOOK, "outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}
TREE = {
    **LOOK,
    "inputSchema": {
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {"required": ["name"]}},
    },
}


def text(said: str) -> dict[str, Any]:
    return {"result": {"content": [{"type": "text", "text": said}]}}


def image(mime: str, data: str) -> dict[str, Any]:
    return {"type": "image", "mimeType": mime, "data": data}


def progress(**params: Any) -> dict[str, Any]:
    return {"send": {"method": "notifications/progress", "params": params}}


def on_call(*actions: dict[str, Any], **rule: Any) -> list[dict[str, Any]]:
    """The rules of a server that does this for a call."""
    return [{"on": "tools/call", "do": list(actions), **rule}]


@dataclass
class Case:
    """A server, calls of it one after the other, and what they give: an observation, or `code: reason` in part."""

    name: str
    rules: list[dict[str, Any]]
    expected: list[Any]
    tools: list[dict[str, Any]] = field(default_factory=lambda: [LOOK])
    tool: str = "look"
    args: dict[str, Any] = field(default_factory=lambda: {"q": "a"})
    config: dict[str, Any] = field(default_factory=dict)
    says: str = ""
    """Part of what is said of the server."""
    log: Callable[[list[dict[str, Any]]], bool] = lambda _: True
    """Whether the server got what it should."""
    http: bool = False


def count(log: list[dict[str, Any]], method: str) -> int:
    return sum(message.get("method") == method for message in log)


ECHO = json.dumps({"q": "a"})
JUNK = '{"level":"info","id":1}\n[1,2]\n3\nnull\n"x"\n{"jsonrpc":"2.0"}\n'
ODD_PROGRESS: list[dict[str, Any]] = [
    progress(progressToken="$token", progress=1, total=3),
    progress(progressToken="made-up", progress=9),
    progress(progress=2),
    progress(progressToken="$token", progress=0.5),
    {"send": {"method": "notifications/unheard_of", "params": None}},
    text("done"),
    progress(progressToken="$token", progress=2),
]
ASKED: list[dict[str, Any]] = [
    {"send": {"id": "p", "method": "ping"}},
    {"send": {"id": 0, "method": "sampling/createMessage", "params": {}}},
]
LEFT_OUT = """(one image is left out: its data is no base64)
(a part of the kind hologram is left out)
(a part of the kind None is left out)
[a](file:///a)"""
PRIMED = {"status": 200, "headers": {"Content-Type": "text/event-stream"}, "body": "id: 1\nretry: 0\ndata:\n\n"}
"""An event stream that may be gone on with, without an answer."""
CASES = [
    Case("banner", [{"on": "(start)", "do": [{"raw": "Server…\n\nready\n"}]}], [ECHO], says="2 lines of its output"),
    Case("junk", on_call({"raw": JUNK}, text("found")), ["found"], says="are no messages"),
    Case(
        "stderr",
        [{"on": "server/discover", "do": [{"stderr": 300_000}, {"error": {"code": -32601, "message": "no"}}]}],
        [ECHO],
    ),
    Case("large", on_call({"result": {"content": [{"type": "text", "text": {"$x": 3_000_000}}]}}, nth=1),
         ["result_too_large: at most 1,000,000", ECHO], config={"max_message_bytes": 1_000_000}),
    Case("crash", [{"on": "(start)", "do": [{"stderr": 40}, {"exit": 3}]}], [],
         says="; it ended with the exit code 3; it is tried again"),
    Case("repeated", [{"on": "tools/list", "do": [{"result": {"tools": [LOOK], "nextCursor": "same"}}]}], [ECHO],
         says="repeats a cursor", log=lambda log: count(log, "tools/list") <= 3),
    Case("pages", [{"on": "tools/list", "nth": 1, "do": [{"result": {"tools": [LOOK], "nextCursor": "2"}}]},
                   {"on": "tools/list", "nth": 2, "do": [{"result": {"tools": [{**LOOK, "name": "later"}]}}]}], [ECHO],
         tool="later"),
    Case("null", [], [json.dumps({"q": None})], args={"q": None}),
    Case("no_null", [], ["invalid_args: q: null is not"], args={"q": None},
         tools=[{**LOOK, "inputSchema": {"type": "object", "properties": {"q": {"type": "string"}}}}]),
    Case("nulls", [{"on": "tools/list", "do": [{"result": {"nextCursor": None, "ttlMs": -5, "tools": [
        {**LOOK, "title": None, "icons": [], "annotations": None, "outputSchema": None, "_meta": None}]}}]}], [ECHO]),
    Case("changes", [{"on": "notifications/initialized", "do": [
        {"send": {"method": "notifications/tools/list_changed"}, "times": 1000}]}], [ECHO],
         log=lambda log: count(log, "tools/list") <= 3),
    Case("dots", [], [ECHO], tools=[{**LOOK, "name": "a.b/c"}], tool="a_b_c_", says=""),
    Case("twice", [], [ECHO], tools=[LOOK, {**LOOK, "description": "other"}], says="listed twice"),
    Case("defs", [], ["invalid_args: root", json.dumps({"root": {"name": "a"}})], tools=[TREE]),
    Case("failure", on_call({"result": {"isError": True, "content": [{"type": "text", "text": "disk full"}],
                                        "structuredContent": {"error": 1}}}),
         ["tool_error: disk full"], tools=[COUNTED]),
    Case("text_alone", on_call(text('{"n": 1}')), ['invalid_result: `output = "text"`'], tools=[COUNTED]),
    Case("as_text", on_call(text('{"n": 1}')), ['{"n": 1}'], tools=[COUNTED], config={"output": "text"}),
    Case("envelope", on_call({"result": {"content": [], "structuredContent": {"n": 3}, "_meta": {"x": 1}}}), [{"n": 3}],
         tools=[COUNTED]),
    Case("wrong", on_call({"result": {"content": [], "structuredContent": {"n": "x"}}}), ["invalid_result: fit its"],
         tools=[COUNTED]),
    Case("lies", on_call({"result": {"content": [image("image/png", "%%%"), {"type": "hologram", "data": 1}, 5,
                                                 {"type": "resource_link", "uri": "file:///a", "name": "a"}]}}),
         [LEFT_OUT]),
    Case("progress", on_call(*ODD_PROGRESS), ["done"]),
    Case("asks", on_call(*ASKED, {"sleep": 0.3}, text("ok")), ["ok"], log=lambda log: (
        [(one.get("id"), (one.get("error") or {}).get("code")) for one in log if "method" not in one]
        == [("p", None), (0, -32601)])),
    Case("dies", on_call({"exit": 1}, nth=1), ["outcome_unknown: ", ECHO],
         log=lambda log: count(log, "tools/call") == 2),
    Case("dies_once", on_call({"exit": 1}), ["tool_unavailable: 3 times"], config={"idempotent": ["look"]},
         log=lambda log: count(log, "tools/call") == 3),
    Case("error", on_call({"error": {"code": -32602, "message": "bad q"}}), ["tool_error: bad q"],
         log=lambda log: count(log, "initialize") == 1),
    Case("silent", on_call({"sleep": 9}), ["tool_timed_out: effect is unknown"], config={"timeout_s": 0.5},
         log=lambda log: count(log, "notifications/cancelled") == 1),
    Case("flood", on_call({"send": {"method": "notifications/x"}, "times": 300_000}), ["outcome_unknown: "]),
    Case("flood_of_lines", on_call({"raw": "x\n" * 100_000}), ["outcome_unknown: "]),
    Case("flood_of_requests", on_call({"send": {"id": 1, "method": "ping"}, "times": 300_000}), ["outcome_unknown: "]),
    Case("flood_of_answers", on_call({"send": {"id": "x", "result": {}}, "times": 300_000}), ["outcome_unknown: "]),
    Case("flood_of_events", on_call({"status": 200, "headers": {"Content-Type": "text/event-stream"},
         "body": 'data: {"jsonrpc":"2.0","id":1,"method":"ping"}\n\n' * 20_000}), ["outcome_unknown: "], http=True),
    Case("ends_its_streams", [{"on": on, "do": [PRIMED]} for on in ("tools/call", "(get)")], ["outcome_unknown: "],
         http=True, log=lambda log: count(log, "(get)") <= 100),
    Case("comments", on_call({**PRIMED, "body": ":\n" * 1_500_000 + 'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n'}),
         ["outcome_unknown: "], http=True),
    Case("gone", on_call({"status": 404}, nth=1), [ECHO], http=True, log=lambda log: count(log, "initialize") == 2),
    Case("moved", on_call({"status": 307, "headers": {"Location": "http://127.0.0.1:9/"}}), ["tool_error: Redirect to"],
         http=True, config={"headers": {"Authorization": "secret"}}),
    Case("status", on_call({"status": 503, "body": "<html>"}), ["tool_error: HTTP status 503"], http=True),
    Case("packed", on_call({"status": 200, "body": "x", "headers": {"Content-Encoding": "gzip"}}),
         ["tool_error: its answer is encoded as gzip"], http=True),
    Case("remote_ref", [], [], tools=[{**LOOK, "inputSchema": {"$ref": "http://127.0.0.1:9/x"}}], says="put it under"),
    Case("verbose", [], [], tools=[{**LOOK, "description": "d" * 1_000_000}], says="1,000,000 characters"),
    Case("many", [], [ECHO], tools=[{**LOOK, "name": f"look{n or ''}"} for n in range(10_000)],
         config={"tools": ["look"]}, says="more than 512 tools"),
]  # fmt: skip


class Running:
    """The server of a case beside the tool runner."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.script = case, folder / f"{case.name}.json"
        self.script.write_text(json.dumps({"tools": case.tools, "rules": case.rules}))
        self.name = f"{case.name.replace('_', '-')}-{new_id()[-6:]}"
        self.port = free_port() if case.http else None
        command: list[Any] = ["-S", mcp_server.__file__, str(self.script)]
        where: dict[str, Any] = {"command": sys.executable, "args": command}
        if self.port is not None:
            where = {"url": f"http://127.0.0.1:{self.port}/mcp"}
        self.server = McpServer.model_validate(
            {"name": self.name, "prefix": f"{self.name}_", "approval": "never", **where, **case.config}
        )

    def log(self) -> list[dict[str, Any]]:
        file = self.script.with_suffix(".log")
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    async def faults(self, planner: Planner) -> list[str]:
        found = []
        for expected in self.case.expected:
            wanted = self.server.prefix + self.case.tool
            live = await wait_until(partial(self._live, planner, wanted), what=f"{wanted} is there")
            args = self.case.args
            if self.case.name == "defs":
                args = {"root": {}} if expected is self.case.expected[0] else {"root": {"name": "a"}}
            outcome = await planner.outcome(await planner.request(live[0], args), wait_s=40)
            if not fits(outcome, expected):
                found.append(f"{expected!r} was expected of {outcome!r}")
        if self.case.says:
            await wait_until(self._is_said(planner), what=f"of {self.name} is said {self.case.says}")
        # An outcome may be there before the server has read the last notification.
        await wait_until(lambda: self.case.log(self.log()), what=f"{self.name} got what is expected of it")
        return found

    @staticmethod
    def _live(planner: Planner, wanted: str) -> list[str]:
        return [name for name in planner.catalogue.live() if name.startswith(wanted)]

    def _is_said(self, planner: Planner) -> Callable[[], Any]:
        async def is_said() -> bool:
            refused = await refused_tools(planner.bus)
            return any(self.name in one.name and self.case.says in one.reason for one in refused)

        return is_said


def fits(outcome: CallFinished, expected: Any) -> bool:
    if outcome.failure is None:
        return bool(outcome.observation == expected)
    code, _, reason = str(expected).partition(": ")
    return (outcome.failure.code, reason in outcome.failure.reason) == (code, True)


@pytest.mark.parametrize("share", range(3))
async def test_what_servers_do(planner: Planner, start_runner: Start, tmp_path: Path, share: int) -> None:
    """A third of them at once: none of them is in the way of another."""
    running = [Running(case, tmp_path) for case in CASES[share::3]]
    serving = [
        await asyncio.create_subprocess_exec(sys.executable, "-S", mcp_server.__file__, one.script, str(one.port))
        for one in running
        if one.port is not None
    ]
    try:
        await start_runner(servers=[one.server for one in running], unavailable_s=3)
        faults = await asyncio.gather(*(one.faults(planner) for one in running), return_exceptions=True)
    finally:
        for process in serving:
            process.kill()
            await process.wait()
    assert not {one.name: wrong for one, wrong in zip(running, faults, strict=True) if wrong}


def test_what_a_server_may_announce_is_bounded() -> None:
    """Over the life of the process: specifications of one tool, and names."""
    server = McpServer.model_validate({"name": "bounded", "command": "x"})
    link = ServerLink(server, asyncio.Event())

    def beyond(*tools: dict[str, Any]) -> dict[str, str]:
        found, refused = _read(server, list(tools))
        link._leave_out(found, refused)
        return refused

    assert not any(beyond({**LOOK, "description": str(number)}) for number in range(8))
    assert "changed again" in beyond({**LOOK, "description": "8"})["bounded_look"]
    assert not beyond({**LOOK, "description": "0"})
    names = [{"name": f"t{number}"} for number in range(1030)]
    assert len(beyond(*names)) == 7


async def test_a_call_ends_the_pause_before_a_server_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It may be back since long: the pause, here for ever, is for a server that nobody needs."""
    monkeypatch.setattr(random, "uniform", lambda *_: 1e6)
    one = Running(Case("away", [], [], http=True), tmp_path)
    link = ServerLink(one.server, asyncio.Event())
    running = asyncio.create_task(link.run())
    try:
        await wait_until(lambda: "it is tried again" in (link.problem() or ""), what="it was tried, and is away")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-S", mcp_server.__file__, one.script, str(one.port)
        )
        try:
            await wait_until(link.opened, what="there is a session")
        finally:
            process.kill()
            await process.wait()
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_calls_of_another_tool_of_the_same_name(planner: Planner, start_runner: Start, tmp_path: Path) -> None:
    """They do not reach a server whose specification nobody has accepted."""
    one = Running(Case("squatter", [], []), tmp_path)
    name = f"{one.server.prefix}look"
    spec = ToolSpec(name=name, idempotent=True)
    await start_runner(spec, servers=[one.server], trust_tools=False, unavailable_s=0.5)
    await wait_until(lambda: count(one.log(), "tools/list"), what="the server has listed its tool")
    await wait_until(lambda: name in planner.catalogue.live(), what=f"{name} is offered")
    assert not planner.catalogue.live()[name].tags
    outcome = await planner.call(name, {"q": "a"})
    assert fits(outcome, "tool_unavailable: ")
    assert not count(one.log(), "tools/call")
