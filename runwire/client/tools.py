"""The client's methods for tools: list them, call one, what those of the tables service do, and proposals for them."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypedDict, Unpack
from urllib.parse import quote

import httpx
from pydantic import BaseModel, RootModel

from contracts.runs.requests import RunStatus
from contracts.sessions.proposals import ProposalView
from contracts.tools.messages import RefusedTool, ToolSpec
from contracts.wire import names
from runwire.client.options import LimitOptions
from runwire.client.transport import Transport, checked

_CALL_TIMEOUT = httpx.Timeout(60, connect=5)
"""A gateway waits 30 s for the end of a call before it answers."""
_PIECE_BYTES = 1 << 16


class _Tools(BaseModel):
    tools: list[ToolSpec]
    refused: list[RefusedTool] = []


class _Object(RootModel[dict[str, Any]]):
    pass


class _Content:
    """The bytes of a file, from its beginning each time that they are sent."""

    def __init__(self, file: Path) -> None:
        self._file = file

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with await asyncio.to_thread(self._file.open, "rb") as opened:
            while piece := await asyncio.to_thread(opened.read, _PIECE_BYTES):
                yield piece


class CallOptions(TypedDict, total=False):
    """What a caller may set for a call of a tool."""

    agent: str
    """Whose list of tools and rules of approval count."""
    user_id: str | None
    tool_context: dict[str, Any]
    limits: LimitOptions


class ToolMethods:
    """Tools, tables and proposals."""

    _transport: Transport

    async def refused_tools(self) -> list[RefusedTool]:
        """List the tools that announce what cannot be used or is not accepted, each with the reason."""
        return (await self._transport.ask(_Tools, "GET", "/v1/tools")).refused

    async def tools(self) -> list[ToolSpec]:
        """List the tools that are available now."""
        return (await self._transport.ask(_Tools, "GET", "/v1/tools")).tools

    async def call_tool(
        self,
        name: str,
        args: dict[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        wait_s: float | None = None,
        **options: Unpack[CallOptions],
    ) -> RunStatus:
        """Call a tool as a run without a model, and return the run: `.payload.extra["result"]` is the result.

        A call that fails gives a run with the status `error` and its `code`. If the run waits for a person, `.payload`
        is None and `.pauses` holds what it waits for; the same call with the same key, or `wait`, continues after the
        decision.

        Args:
            name: of the tool.
            args: valid by its `input_schema`.
            idempotency_key: the same key with the same call gives the same run; default: a new one.
            wait_s: return the run as it is after so long, 30 s at most; default: when it has ended or waits.
            **options: see `CallOptions`.

        Raises:
            NotFound: there is no such tool.
            IdempotencyConflict: the key was used for another call.
            RunwireError: the gateway refused, or cannot be reached; `invalid_input` says what is wrong with `args`.
        """
        path, body = f"/v1/tools/{quote(name, safe='')}/call", {"args": args or {}, **options}
        if wait_s is None:
            return await self._called(path, idempotency_key, json=body)
        return await self._asked(path, idempotency_key or names.new_id(), json=body, params={"wait_s": wait_s})

    async def tables(self) -> list[dict[str, Any]]:
        """List the tables of the tenant, as the tool `list_tables` describes them."""
        found: list[dict[str, Any]] = []
        after: str | None = ""
        while after is not None:
            page = (await self._transport.ask(_Object, "GET", "/v1/tables", params={"after": after})).root
            found += page["tables"]
            after = page.get("next")
        return found

    async def table(self, table_id: str) -> dict[str, Any]:
        """Return a table with its columns. Raises RunwireError `table_not_found`."""
        return (await self._transport.ask(_Object, "GET", _path(table_id))).root

    async def rows(self, table_id: str, **query: Any) -> AsyncIterator[dict[str, Any]]:
        """Yield rows: `filters`, `match`, `sort` and `columns` are those of the tool `query_rows`."""
        params = {"query": json.dumps(query), "limit": "500"}
        while True:
            page = (await self._transport.ask(_Object, "GET", f"{_path(table_id)}/rows", params=params)).root
            for row in page["rows"]:
                yield row
            if not page.get("next_cursor"):
                return
            params["cursor"] = page["next_cursor"]

    def export_table(self, table_id: str, **query: Any) -> AsyncIterator[bytes]:
        """Yield a table, or the rows of a query, as CSV in pieces. Raises RunwireError, `broken_off` in the middle."""
        return self._transport.download(f"{_path(table_id)}/export?query={quote(json.dumps(query), safe='')}")

    async def import_table(
        self,
        file: Path | bytes,
        *,
        name: str | None = None,
        table_id: str | None = None,
        columns: dict[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> RunStatus:
        """Import a CSV file into a new table (`name`) or an existing one. Returns and raises as `call_tool`.

        `columns`: types of columns of a new table, by their names. Raises OSError for a file that cannot be read.
        """
        content = file if isinstance(file, bytes) else _Content(file)
        given = {"name": name, "table_id": table_id, "columns": None if columns is None else json.dumps(columns)}
        params = {field: value for field, value in given.items() if value is not None}
        return await self._called("/v1/tables/import", idempotency_key, content=content, params=params)

    async def proposal(self, proposal_id: str) -> ProposalView:
        """Return a proposal, with what would come of each operation now, or came of it. Raises NotFound."""
        return await self._transport.ask(ProposalView, "GET", f"/v1/proposals/{checked(proposal_id)}")

    async def apply_proposal(
        self, proposal_id: str, operations: list[int] | None = None, *, include_sample_rows: bool = False
    ) -> ProposalView:
        """Apply a proposal, or the operations with these numbers, and return what came of it; again changes nothing.

        Raises NotFound, and RunwireError with `proposal_applying` or `proposal_closed` after another decision.
        """
        body = {"operations": operations, "include_sample_rows": include_sample_rows}
        return await self._decided(proposal_id, "apply", body)

    async def dismiss_proposal(self, proposal_id: str) -> ProposalView:
        """Dismiss a proposal: nothing is changed. Raises as `apply_proposal`."""
        return await self._decided(proposal_id, "dismiss", {})

    async def _decided(self, proposal_id: str, verb: str, body: dict[str, Any]) -> ProposalView:
        """Send a decision, again while it is being carried out: the session's log holds it once."""
        path = f"/v1/proposals/{checked(proposal_id)}/{verb}"
        headers = {"Idempotency-Key": names.new_id()}
        while True:
            shown = await self._transport.ask(
                ProposalView, "POST", path, headers=headers, json=body, timeout=_CALL_TIMEOUT
            )
            if shown.state not in {"pending", "applying"}:
                return shown

    async def _called(self, path: str, idempotency_key: str | None, **request: Any) -> RunStatus:
        """Send a call, again with the same key while it goes on."""
        key = idempotency_key or names.new_id()
        while True:
            status = await self._asked(path, key, **request)
            if status.ended_at is not None or status.pauses or status.paused is not None:
                return status

    async def _asked(self, path: str, key: str, **request: Any) -> RunStatus:
        headers = {"Idempotency-Key": key}
        return await self._transport.ask(RunStatus, "POST", path, headers=headers, timeout=_CALL_TIMEOUT, **request)


def _path(table_id: str) -> str:
    return f"/v1/tables/{quote(table_id, safe='')}"
