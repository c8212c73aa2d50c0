"""Tables: reads go to the tools of the tables service without a run, and changes are calls of its tools, as runs.

Rule 1: nothing is known of tables here. The arguments are made of the address and the body; the tool decides about
them.
Rule 2: a key that may not use a tool may not use its route.
"""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import RootModel

from contracts.artifacts import ArtifactRef
from contracts.runs.requests import CallInput, RunStatus
from contracts.tools.messages import ReadRequested
from contracts.wire.faults import Fault
from contracts.wire.names import derived_id, new_id
from services.gateway.artifacts.routes import DOWNLOAD, MAX_FILENAME_CHARACTERS, UPLOAD
from services.gateway.artifacts.transfers import SAFETY_HEADERS, disposition, read_upload
from services.gateway.auth.caller import Caller
from services.gateway.catalogue import GOES_ON, answer_to_call
from services.gateway.edge import routing
from services.gateway.edge.request_body import read_json
from services.gateway.edge.routing import RequestCaller
from services.gateway.errors import BodyTooLarge, IdempotencyConflict, InvalidInput, ToolFailed, TryAgain
from services.gateway.parts import GatewayParts, Parts
from services.messaging.errors import Unavailable
from services.runtime import exact_json
from services.shared.artifacts.errors import ArtifactInvalid, ArtifactTooLarge
from services.shared.tools.catalogue import read

EXPORT, IMPORT = "export_csv", "import_csv"
IMPORT_TTL_S = 86_400
"""How long the uploaded file of an import is kept."""


class Fields(RootModel[dict[str, Any]]):
    """Arguments of a tool: an object."""


class Answer(RootModel[Any]):
    """What a tool of the tables service returns (docs/tables.md)."""


Limit = Annotated[int, Query(ge=1, le=500)]
Text = Annotated[str | None, Query(max_length=200)]
What = Annotated[
    str | None,
    Query(
        max_length=20_000,
        description="filters, match, sort, columns and aggregates of the tool `query_rows`, as a JSON object",
    ),
]
router = routing.new_router("tables")
CHANGES: dict[str, Any] = {
    "dependencies": [routing.needs("run")],
    "response_model": RunStatus,
    "responses": GOES_ON,
    "openapi_extra": routing.body_of(Fields, keyed=True, traced=True),
}
"""What the routes that change rows have in common."""


@router.get("/v1/tables", response_model=Answer)
async def list_tables(
    parts: GatewayParts, request: Request, caller: RequestCaller, limit: Limit = 100, after: Text = None
) -> Response:
    """List the tables of the tenant."""
    return await _shown(parts, request, caller, "list_tables", {"limit": limit, "after": after or ""})


@router.get("/v1/tables/{table_id}", response_model=Answer)
async def get_table(table_id: str, parts: GatewayParts, request: Request, caller: RequestCaller) -> Response:
    """Return a table: its columns, its version and how many rows it has."""
    return await _shown(parts, request, caller, "describe_table", {"table_id": table_id})


@router.get("/v1/tables/{table_id}/rows", response_model=Answer)
async def list_rows(
    table_id: str,
    parts: GatewayParts,
    request: Request,
    caller: RequestCaller,
    query: What = None,
    limit: Limit = 50,
    cursor: Annotated[str | None, Query(max_length=2000)] = None,
) -> Response:
    """Return a page of rows, filtered and sorted as `query` says. Continue with `cursor`."""
    args = {**_object(query), "table_id": table_id, "limit": limit} | ({"cursor": cursor} if cursor else {})
    return await _shown(parts, request, caller, "query_rows", args)


@router.post("/v1/tables/{table_id}/rows", **CHANGES)
async def create_row(table_id: str, parts: GatewayParts, request: Request, caller: RequestCaller) -> Response:
    """Add a row: `{"values": {column: value}}`. The answer is that of a call of the tool `create_row`."""
    return await _change(parts, request, caller, "create_row", {"table_id": table_id})


@router.patch("/v1/tables/{table_id}/rows/{row_id}", **CHANGES)
async def update_row(
    table_id: str, row_id: int, parts: GatewayParts, request: Request, caller: RequestCaller
) -> Response:
    """Change cells of a row: `{"changes": {column: value}}`. The answer is that of a call of the tool `update_row`."""
    return await _change(parts, request, caller, "update_row", {"table_id": table_id, "row_id": row_id})


@router.delete("/v1/tables/{table_id}/rows/{row_id}", **CHANGES)
async def delete_row(
    table_id: str, row_id: int, parts: GatewayParts, request: Request, caller: RequestCaller
) -> Response:
    """Delete a row; the body may be `{}`. The answer is that of a call of the tool `delete_row`."""
    return await _change(parts, request, caller, "delete_row", {"table_id": table_id, "row_id": row_id})


@router.get("/v1/tables/{table_id}/export", response_model=None, responses=DOWNLOAD)
async def export_table(
    table_id: str, parts: GatewayParts, request: Request, caller: RequestCaller, query: What = None
) -> Response:
    """Return a table, or the rows that `query` names, as CSV. Its parts are reads of the tool `export_csv`.

    A part that cannot be read closes the connection.
    """
    args = {**_object(query), "table_id": table_id, "page": True}
    first = await read_tool(parts, request, caller, EXPORT, args)

    async def texts() -> AsyncIterator[str]:
        found = first
        yield found["text"]
        while found["next_cursor"]:
            found = await read_tool(parts, request, caller, EXPORT, {**args, "cursor": found["next_cursor"]})
            yield found["text"]

    headers = {**SAFETY_HEADERS, "Content-Disposition": disposition("attachment", first["filename"])}
    return StreamingResponse(texts(), media_type="text/csv", headers=headers)


@router.post(
    "/v1/tables/import",
    dependencies=[routing.needs("run")],
    response_model=RunStatus,
    responses=GOES_ON,
    openapi_extra=UPLOAD,
)
async def import_table(
    parts: GatewayParts,
    request: Request,
    caller: RequestCaller,
    name: Text = None,
    table_id: Text = None,
    columns: What = None,
    encoding: Text = None,
    delimiter: Text = None,
    import_id: Text = None,
) -> Response:
    """Import a CSV file into a new table (`name`) or an existing one (`table_id`), by a call of the tool `import_csv`.

    The file is the body, or that of a form. `columns`: `{name: type}` of a new table, as JSON.
    """
    caller.check_tool(IMPORT, "tool")
    key = routing.idempotency_key(request)
    run = caller.run_id_for_key(key) if key else new_id()
    given = {"name": name, "table_id": table_id, "encoding": encoding, "delimiter": delimiter, "import_id": import_id}
    args: dict[str, Any] = {field: value for field, value in given.items() if value is not None}
    if columns is not None:
        args["columns"] = _object(columns, "columns")
    await parts.budgets.check(caller)  # Before the file is stored.
    ref = await _stored(parts, request, caller, run)
    args["file"] = ref.model_dump(mode="json", exclude_none=True, exclude={"created_at", "expires_at"})
    return await answer_to_call(parts, request, caller, IMPORT, CallInput(args=args), run)


async def _stored(parts: Parts, request: Request, caller: Caller, run: str) -> ArtifactRef:
    """Store the file of an import, as an artifact of its run. The same file of the same run is stored once."""
    limit = parts.settings.max_upload_bytes
    try:
        async with read_upload(request, limit) as file:
            return await parts.artifacts.put(
                caller.tenant,
                file.chunks,
                run=run,
                user=caller.user_id,
                namespace=IMPORT,
                filename=(file.filename or "")[:MAX_FILENAME_CHARACTERS] or None,
                mime_type="application/octet-stream",
                artifact_id=derived_id(run, IMPORT),
                ttl_s=IMPORT_TTL_S,
                limit=limit,
            )
    except ArtifactTooLarge as error:
        raise BodyTooLarge(limit) from error
    except ArtifactInvalid as error:
        raise IdempotencyConflict from error


async def _shown(parts: Parts, request: Request, caller: Caller, tool: str, args: dict[str, Any]) -> Response:
    return await routing.json_response(Answer(await read_tool(parts, request, caller, tool, args)), request.headers)


async def read_tool(parts: Parts, request: Request, caller: Caller, tool: str, args: dict[str, Any]) -> Any:
    """Return what a tool that changes nothing returns. Raises NotAllowed, ToolFailed, TryAgain without an answer."""
    caller.check_read(tool)
    ids = routing.request_ids(request)._asdict()
    asked = ReadRequested(tenant=caller.tenant, tool=tool, args=args, user_id=caller.user_id, **ids)
    try:
        found = await read(parts.bus, asked)
    except Unavailable as error:
        raise TryAgain("No tool runner answers.") from error
    if found.status == "failed":
        raise ToolFailed(found.failure or Fault(code="internal", reason="the tool failed and did not say why"))
    return found.observation


async def _change(parts: Parts, request: Request, caller: Caller, tool: str, place: dict[str, Any]) -> Response:
    """Call a tool with the body and the names of the address as its arguments, and answer with the run."""
    body = await read_json(request, Fields, parts.settings.max_body_bytes)
    return await answer_to_call(parts, request, caller, tool, CallInput(args={**body.root, **place}))


def _object(text: str | None, field: str = "query") -> dict[str, Any]:
    """Return the JSON object of a query parameter. Raises InvalidInput."""
    if text is None:
        return {}
    try:
        found = exact_json.loads(text.encode())
    except (ValueError, RecursionError) as error:
        raise InvalidInput(field, "is no JSON") from error
    if not isinstance(found, dict):
        raise InvalidInput(field, "is no JSON object")
    return found
