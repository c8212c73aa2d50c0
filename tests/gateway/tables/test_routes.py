"""Tables over HTTP: reads that leave nothing behind, changes that are runs, files in and out."""

import base64
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from contracts.tools.messages import ToolSpec
from contracts.wire import subjects
from contracts.wire.faults import Fault
from services.gateway.auth.key_lines import new_key
from tests.support.gateways import Served, serving
from tests.support.model_server import ModelServer
from tests.support.nats_server import NatsServer
from tests.support.run_services import planning, tools_at_work
from tests.support.s3_servers import S3Server
from tests.support.stores import serving as storing

CSV = b"name\nAnn\n"
CALLS: list[tuple[str, dict[str, Any]]] = []
READ: dict[str, Any] = {"side_effects": "read", "idempotent": True}
WANTS = {"type": "object", "required": ["table_id"], "properties": {"limit": {"type": "integer", "maximum": 2}}}
SECRET = {"type": "object", "properties": {"secret": {"type": "string", "artifact": True}}}
SPECS = {
    "list_tables": ToolSpec(name="list_tables", output_schema=SECRET, **READ),
    "describe_table": ToolSpec(name="describe_table", **READ),
    "query_rows": ToolSpec(name="query_rows", input_schema=WANTS, **READ),
    "create_row": ToolSpec(name="create_row"),
    "update_row": ToolSpec(name="update_row"),
    "delete_row": ToolSpec(name="delete_row", requires_approval=True),
    "export_csv": ToolSpec(name="export_csv", **READ),
    "import_csv": ToolSpec(name="import_csv"),
}
KEYS = {
    "free": new_key("acme"),
    "reads": new_key("acme", {"rights": ""}),
    "rows": new_key("acme", {"tools": "query_rows"}),
    "agent": new_key("acme", {"agents": "default"}),
}


async def answer(name: str, args: dict[str, Any]) -> Any:
    """What the tools of a tables service give."""
    CALLS.append((name, args))
    match name, args.get("table_id"):
        case _, "tab_gone":
            return Fault(code="tool_error", reason="there is no such table", tool_code="table_not_found")
        case _, "tab_away":
            return Fault(code="tool_error", reason="it is away", tool_code="database_unavailable", retryable=True)
        case _, "tab_large":
            return {"rows": "x" * (2 << 20)}
        case "list_tables", _:
            return {"tables": [], "secret": "s3"}
        case "export_csv", _:
            lines = {None: ("name\n", "2"), "2": ("Ann\n", "tab_gone"), "tab_gone": ("", None)}
            text, cursor = lines[args.get("cursor")]
            if args["table_id"] == "tab_breaks" and cursor is None:
                return Fault(code="tool_error", reason="it is gone meanwhile", tool_code="cursor_invalid")
            return {"filename": "people.csv", "text": text, "next_cursor": cursor}
    return {"big": 2**63 + 1, **args}


@pytest.fixture
async def served(own_nats_server: NatsServer, rclone: S3Server) -> AsyncIterator[Served]:
    """A gateway, a planner, a tool runner, a store, and tools with the names of a tables service."""
    CALLS.clear()
    url = own_nats_server.url

    def handler(name: str) -> Any:
        return lambda args: answer(name, args)

    async with contextlib.AsyncExitStack() as stack:
        provider = stack.enter_context(ModelServer())
        gateway = await stack.enter_async_context(serving(url, api_keys=",".join(line for _, line in KEYS.values())))
        await stack.enter_async_context(storing(rclone, url))
        planner = await stack.enter_async_context(planning(url, provider))
        tools = {name: (spec, handler(name)) for name, spec in SPECS.items()}
        await stack.enter_async_context(tools_at_work(planner, url, tools))
        yield gateway


async def ask(served: Served, method: str, path: str, *, key: str = "free", **request: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {KEYS[key][0]}", **request.pop("headers", {})}
    return await served.http.request(method, f"/v1/tables{path}", headers=headers, **request)


async def stored(served: Served) -> int:
    states = [
        await served.parts.bus.api(f"STREAM.INFO.{stream}", {}) for stream in {*subjects.KEPT_FOR} - {subjects.HELD}
    ]
    return sum(int(state["state"]["messages"]) for state in states)


READS: list[tuple[str, str, int, dict[str, Any]]] = [
    ("", "reads", 200, {"tables": []}),
    ("/tab_1", "reads", 200, {"table_id": "tab_1", "big": 2**63 + 1}),
    ('/tab_1/rows?limit=2&query={"sort":[1]}&cursor=c', "rows", 200, {"sort": [1], "limit": 2, "cursor": "c"}),
    ("/tab_1/rows?limit=3", "free", 422, {"code": "invalid_args"}),
    ("/tab_1/rows?query=[1]", "free", 422, {"code": "invalid_input"}),
    ("/tab_1/rows?limit=0", "free", 422, {"code": "invalid_input"}),
    ("/tab_gone", "free", 404, {"code": "table_not_found"}),
    ("/tab_away", "free", 503, {"code": "database_unavailable"}),
    ("/tab_large", "free", 502, {"code": "result_too_large"}),
    ("/tab_1", "rows", 403, {"code": "not_allowed"}),
    ("", "agent", 403, {"code": "not_allowed"}),
    ("/tab_1/export", "rows", 403, {"code": "not_allowed"}),
]
"""Path and key, and the status and a part of the answer."""


async def test_a_read_is_answered_at_once_and_stored_nowhere(served: Served) -> None:
    """Its arguments are checked, what its schema hides is hidden, and its failures are problems."""
    before = await stored(served)
    for path, key, status, found in READS:
        got = await ask(served, "GET", path, key=key)
        assert (got.status_code, found.items() <= got.json().items()) == (status, True), got.text
        assert "s3" not in got.text
    assert await stored(served) == before


async def test_changes_of_rows_are_runs(served: Served) -> None:
    """The names in the address win; approvals wait for a person; a key that only reads changes nothing."""
    made = await ask(served, "POST", "/tab_1/rows", json={"values": {"a": 1}, "table_id": "tab_2"})
    assert (made.status_code, made.json()["payload"]["extra"]["result"]["table_id"]) == (200, "tab_1")
    changed = await ask(served, "PATCH", "/tab_1/rows/7", json={"changes": {"a": None}, "base_version": 3})
    assert changed.json()["status"] == "done"
    waits = await ask(served, "DELETE", "/tab_1/rows/7", json={})
    assert (waits.status_code, waits.json()["pauses"][0]["arguments"]) == (202, {"table_id": "tab_1", "row_id": 7})
    assert CALLS == [
        ("create_row", {"values": {"a": 1}, "table_id": "tab_1"}),
        ("update_row", {"changes": {"a": None}, "base_version": 3, "table_id": "tab_1", "row_id": 7}),
    ]
    for key, code in (("reads", "right_missing"), ("rows", "not_allowed")):
        refused = await ask(served, "POST", "/tab_1/rows", key=key, json={})
        assert (refused.status_code, refused.json()["code"]) == (403, code)


async def test_a_table_is_exported_and_imported(served: Served) -> None:
    """As a CSV file, both ways; out by reads. A repeated import stores and calls once; another file is a conflict."""
    before = await stored(served)
    got = await ask(served, "GET", "/tab_1/export", key="reads", params={"query": '{"bom": true}'})
    assert await stored(served) == before
    assert [args["bom"] for name, args in CALLS] == [True] * 3
    with pytest.raises(httpx.RemoteProtocolError):
        await ask(served, "GET", "/tab_breaks/export")
    assert (got.status_code, got.content) == (200, CSV)
    assert got.headers["content-type"].startswith("text/csv")
    assert 'filename="people.csv"' in got.headers["content-disposition"]
    assert (await ask(served, "GET", "/tab_gone/export")).json()["code"] == "table_not_found"
    again: dict[str, Any] = {
        "headers": {"Idempotency-Key": "k"},
        "params": {"name": "People", "columns": '{"name": "text"}'},
    }
    answers = [await ask(served, "POST", "/import", content=CSV, **again) for _ in range(2)]
    assert [each.status_code for each in answers] == [200, 200], answers[0].text
    assert answers[0].json() == answers[1].json()
    expected = {"file": base64.b64encode(CSV).decode(), "name": "People", "columns": {"name": "text"}}
    assert [args for name, args in CALLS if name == "import_csv"] == [expected]
    other = await ask(served, "POST", "/import", content=b"other\n", **again)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    refused = await ask(served, "POST", "/import", key="rows", content=CSV, **again)
    assert refused.json()["code"] == "not_allowed"
