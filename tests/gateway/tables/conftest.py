"""A gateway, a planner and tables with their tools, and proposals of turns that have ended."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from contracts.artifacts import ArtifactRef
from contracts.runs.events import Done, PayloadProposed
from contracts.runs.pages import Page, PageView
from contracts.tools.messages import ToolSpec
from contracts.wire.faults import Fault
from contracts.wire.names import new_id
from runwire.errors import ToolError
from runwire.testing import RecordingContext
from services.gateway.auth.key_lines import new_key
from services.planner.logs.index import place_proposals
from services.tables.csv_tools import tools_of
from services.tables.database import Database
from tests.support.gateways import Served, Writer, bearer, serving
from tests.support.model_server import ModelServer, answer
from tests.support.nats_server import NatsServer
from tests.support.run_services import Planning, planning, tools_at_work

TENANT = "acme"
KEYS = {
    "free": new_key(TENANT),
    "reads": new_key(TENANT, {"rights": "run"}),
    "other": new_key("other"),
    "ann": new_key(TENANT, {"user": "ann"}),
}
COLUMNS: list[dict[str, Any]] = [
    {"name": "Company", "type": "text", "required": True},
    {"name": "Stage", "type": "select", "options": ["Sent", "Talk", "No"]},
    {"name": "Pay", "type": "number"},
]
ROWS = [("Acme", "Sent", None), ("Beta", "Talk", 4), ("Core", "No", None)]
CREATE = {
    "mode": "create",
    "table_name": "Applications",
    "table_description": "Where I applied",
    "operations": [{"action": "add", "column": each} for each in COLUMNS],
    "sample_rows": [{"Company": "One"}, {"Company": "Two", "Pay": 3}],
}


@dataclass
class World:
    """A gateway, a planner and a tables service, with one table."""

    served: Served
    planner: Planning
    provider: ModelServer
    tools: dict[str, Any]
    calls: list[str]
    gate: asyncio.Event
    """Cleared: applies wait."""
    table: dict[str, Any]
    failures: list[Fault]
    """What the next applies fail with."""

    async def call(self, name: str, /, **args: Any) -> Any:
        context = RecordingContext(tenant=TENANT, idempotency_key=new_id())
        return json.loads(await self.tools[name].run(args, context))

    async def fresh(self) -> None:
        """Make another table with the same rows."""
        self.table = await self.call("create_table", name=new_id(), columns=COLUMNS)
        for row in ROWS:
            values = dict(zip((each["name"] for each in COLUMNS), row, strict=True))
            await self.call("create_row", table_id=self.table["table_id"], values=values)

    @property
    def ids(self) -> dict[str, str]:
        return {each["name"]: each["column_id"] for each in self.table["columns"]}

    def three(self) -> list[dict[str, Any]]:
        """Two updates and a deletion."""
        return [
            {"action": "update", "row_id": 1, "changes": {self.ids["Stage"]: "Talk"}},
            {"action": "update", "row_id": 2, "changes": {self.ids["Pay"]: 5}},
            {"action": "delete", "row_id": 3},
        ]

    async def rows(self) -> list[tuple[Any, ...]]:
        page = await self.call("query_rows", table_id=self.table["table_id"])
        return [tuple(row["cells"].values()) for row in page["rows"]]

    async def proposed(
        self, data: dict[str, Any], kind: str = "data_proposal", stored: ArtifactRef | None = None, **run: Any
    ) -> PayloadProposed:
        """A turn that has ended with a proposal for the table as it is."""
        table = await self.call("describe_table", table_id=self.table["table_id"])
        at = {"table_id": table["table_id"], "base_version": table["version"]} if data.get("mode") != "create" else {}
        proposed = PayloadProposed(
            payload_id=new_id(), kind=kind, summary="Three changes", data=data, stored=stored, **at
        )
        writer = Writer(self.planner.bus, TENANT, run=new_id())
        columns = [{"id": each["column_id"], "name": each["name"]} for each in table["columns"]]
        view = PageView(page=Page(name="table_view"), columns=columns)
        await writer.log(writer.started(**run).model_copy(update={"page_view": view}))
        await place_proposals(self.planner.bus, TENANT, writer.run, [proposed])
        await writer.log(proposed, Done(raw_answer="Three changes.", reason="answer_complete"))
        return proposed

    async def ask(self, proposal: PayloadProposed | str, verb: str = "", key: str = "free", **body: Any) -> Any:
        """Show a proposal, or change it: status and body of the answer."""
        name = proposal if isinstance(proposal, str) else proposal.payload_id
        path, headers = f"/v1/proposals/{name}", bearer(KEYS[key][0])
        if not verb:
            got = await self.served.http.get(path, headers=headers)
        else:
            got = await self.served.http.post(f"{path}/{verb}", headers=headers, json=body)
        return got.status_code, got.json()

    async def get(self, path: str) -> httpx.Response:
        return await self.served.http.get(path, headers=bearer(KEYS["free"][0]))

    async def ended(self, run: str) -> None:
        """Wait for the end of a run, which is a good one."""
        got = await self.get(f"/v1/runs/{run}/events")
        assert "event: done" in got.text, got.text[-2000:]

    async def say(self, proposal: PayloadProposed, **more: Any) -> None:
        """Send a further message to the session of a proposal, and wait for its end."""
        session_id = (await self.ask(proposal))[1]["session_id"]
        self.provider.say(answer("Sure."))
        run = await self.planner.ask("something else", TENANT, session_id=session_id, **more)
        await self.ended(run)


@pytest.fixture
async def world(own_nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[World]:
    """The services, on SQLite."""
    url, gate = own_nats_server.url, asyncio.Event()
    calls: list[str] = []
    failures: list[Fault] = []
    gate.set()
    database = Database(f"sqlite:///{tmp_path / 'tables.db'}")
    database.migrate()
    tools = {each.name: each for each in tools_of(database)}

    async def called(name: str, args: dict[str, Any]) -> Any:
        calls.append(name)
        if name == "apply_proposal":
            await gate.wait()
            if failures:
                return failures.pop(0)
        try:
            return json.loads(await tools[name].run(args, RecordingContext(tenant=TENANT, idempotency_key=new_id())))
        except ToolError as error:
            return Fault(code="tool_error", reason=str(error), tool_code=error.code)

    def handler(name: str) -> Any:
        return lambda args: called(name, args)

    async with contextlib.AsyncExitStack() as stack:
        stack.callback(database.close)
        provider = stack.enter_context(ModelServer())
        served = await stack.enter_async_context(serving(url, api_keys=",".join(line for _, line in KEYS.values())))
        planner = await stack.enter_async_context(planning(url, provider))
        specs = {name: (ToolSpec.model_validate(each.spec.model_dump()), handler(name)) for name, each in tools.items()}
        await stack.enter_async_context(tools_at_work(planner, url, specs))
        made = World(served, planner, provider, tools, calls, gate, {}, failures)
        await made.fresh()
        yield made
