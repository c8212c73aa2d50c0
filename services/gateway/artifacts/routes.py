"""Artifacts: upload, download, list, delete. Bytes pass through in chunks; none are kept or logged here."""

from typing import Annotated, Any, Unpack

from fastapi import Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from contracts.artifacts import INPUT_IMAGE, ArtifactRef, StoredArtifact
from services.gateway.artifacts import transfers
from services.gateway.auth.caller import Caller
from services.gateway.edge.routing import RequestCaller, address_of, gzipped, needs, new_router
from services.gateway.errors import BodyTooLarge, InvalidInput
from services.gateway.parts import GatewayParts, Parts
from services.shared.artifacts.client import Wanted
from services.shared.artifacts.errors import ArtifactTooLarge
from services.shared.redaction.stored_values import as_reference

Limit = Annotated[int, Query(ge=1, le=500)]
OwnId = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=200,
        description="the id that a tool gave its artifact: the list has the newest one of each tool, the newest first",
    ),
]
SkillId = Annotated[str | None, Query(max_length=200, description="the skill for which a tool made it")]
ListCursor = Annotated[str | None, Query(pattern=r"^[0-9]{1,18}$")]
DOWNLOAD: dict[int | str, dict[str, Any]] = {
    200: {"description": "The bytes, with the artifact's own media type.", "content": {"*/*": {}}},
    206: {"description": "The range that was asked for."},
    304: {"description": "You have them."},
}
FORM = {
    "type": "object",
    "required": ["file"],
    "properties": {"file": {"type": "string", "format": "binary"}},
    "additionalProperties": False,
}
UPLOAD = {
    "requestBody": {
        "description": "The file, under this or any other media type that its bytes agree with; "
        "or a form that holds it.",
        "required": False,  # An empty file has no body.
        "content": {
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            "multipart/form-data": {"schema": FORM},
        },
    }
}
MAX_FILENAME_CHARACTERS = 1000


class InlineArtifact(BaseModel):
    """An artifact that stands in a run's payload itself, as `payload.artifacts.<tool>.<field>`."""

    tool: str
    field: str
    artifact_type: str | None = None


class ArtifactList(BaseModel):
    """Some artifacts, in the order in which they were stored."""

    artifacts: list[StoredArtifact]
    inline: list[InlineArtifact] = Field(
        default_factory=list, description="of a run that has ended, on its first page: what is too small to be stored"
    )
    next_cursor: str | None = Field(default=None, description="ask for the following page with it; null: there is none")


router = new_router("artifacts")


@router.head("/v1/artifacts/{artifact_id}", include_in_schema=False, response_model=None)
@router.get("/v1/artifacts/{artifact_id}", response_model=None, responses=DOWNLOAD)
async def get_artifact(artifact_id: str, parts: GatewayParts, request: Request, caller: RequestCaller) -> Response:
    """Fetch an artifact, or a range of it."""
    ref = (await parts.access.get(caller, artifact_id)).ref
    etag = transfers.matching_etag(request.headers, ref)
    if etag is not None:
        headers = {name: value for name, value in transfers.headers_of(ref).items() if not name.startswith("Content-L")}
        return Response(status_code=304, headers={**headers, "ETag": etag})
    part = transfers.range_of(request.headers, ref)
    if request.method == "HEAD":
        return Response(status_code=200 if part is None else 206, headers=transfers.headers_of(ref, part))
    offset, length = (part.offset, part.length) if part else (0, None)
    download = await parts.artifacts.get(caller.tenant, artifact_id, offset=offset, length=length)
    compressed = transfers.is_compressed(request.headers, ref, part)
    chunks, headers = download.chunks(), transfers.headers_of(download.ref, part, compressed=compressed)
    # A failure in its middle closes the connection.
    return StreamingResponse(gzipped(chunks) if compressed else chunks, 200 if part is None else 206, headers)


@router.post(
    "/v1/artifacts", status_code=201, dependencies=[needs("run")], response_model=ArtifactRef, openapi_extra=UPLOAD
)
async def upload_artifact(
    parts: GatewayParts,
    request: Request,
    caller: RequestCaller,
    session_id: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
    filename: Annotated[str | None, Query(max_length=MAX_FILENAME_CHARACTERS)] = None,
    namespace: Annotated[str, Query(pattern=r"^[A-Za-z0-9_.-]{1,64}$")] = "upload",
    ttl_s: Annotated[int | None, Query(ge=1, le=315_360_000)] = None,
) -> Response:
    """Store a file, sent as the body or in a form, and return its reference."""
    if namespace == INPUT_IMAGE:
        raise InvalidInput(
            "namespace", f"{INPUT_IMAGE} is kept for images that were checked with a question; leave it out"
        )
    if session_id is not None:
        await parts.sessions.find_for(caller, session_id)
    async with transfers.read_upload(request, parts.settings.max_upload_bytes) as file:
        try:
            ref = await parts.artifacts.put(
                caller.tenant,
                file.chunks,
                session=session_id,
                user=caller.user_id,
                namespace=namespace,
                filename=(filename or file.filename or "")[:MAX_FILENAME_CHARACTERS] or None,
                mime_type=file.mime_type,
                ttl_s=ttl_s,
                limit=parts.settings.max_upload_bytes,
            )
        except ArtifactTooLarge as error:
            raise BodyTooLarge(parts.settings.max_upload_bytes) from error
    location = address_of(request, f"/v1/artifacts/{ref.artifact_id}")
    return Response(ref.model_dump_json(), 201, {"Location": location}, "application/json")


@router.get("/v1/artifacts")
async def list_artifacts(
    parts: GatewayParts,
    caller: RequestCaller,
    session_id: Annotated[str, Query(min_length=1, max_length=200)],
    own_id: OwnId = None,
    skill_id: SkillId = None,
    limit: Limit = 100,
    cursor: ListCursor = None,
) -> ArtifactList:
    """List the artifacts of a session: uploads, and those of its runs; the oldest first."""
    wanted = Wanted(own_id=own_id, skill_id=skill_id, limit=limit, cursor=int(cursor or 0))
    return await _page(parts, caller, session_id, None, **wanted)


@router.get("/v1/runs/{run_id}/artifacts")
async def list_artifacts_of_a_run(
    run_id: str,
    parts: GatewayParts,
    caller: RequestCaller,
    own_id: OwnId = None,
    skill_id: SkillId = None,
    limit: Limit = 100,
    cursor: ListCursor = None,
) -> ArtifactList:
    """List the artifacts of a run: those of its tools, and its images; the oldest first."""
    run = await parts.runs.get(caller, run_id)
    request, payload = run.request(), run.status().payload
    session = request.session_id if request else None
    wanted = Wanted(own_id=own_id, skill_id=skill_id, limit=limit, cursor=int(cursor or 0))
    page = await _page(parts, caller, session, run_id, **wanted)
    if payload is not None and (cursor, own_id, skill_id) == (None, None, None):
        page.inline = [
            InlineArtifact(tool=tool, field=name, artifact_type=payload.artifact_types.get(tool, {}).get(name))
            for tool, fields in payload.artifacts.items()
            for name, value in fields.items()
            if as_reference(value) is None
        ]
    return page


async def _page(
    parts: Parts, caller: Caller, session: str | None, run: str | None, **wanted: Unpack[Wanted]
) -> ArtifactList:
    page = await parts.artifacts.list(caller.tenant, session=session, run=run, **wanted)
    run_ids = {each.run_id for each in page.artifacts if each.run_id}
    deleted = await parts.deletions.among(caller.tenant, run_ids)
    kept = [each for each in page.artifacts if each.run_id not in deleted]
    shown = await parts.access.visible(caller, kept)
    next_cursor = None if page.next_cursor is None else str(page.next_cursor)
    return ArtifactList(artifacts=shown, next_cursor=next_cursor)


@router.delete("/v1/artifacts/{artifact_id}", status_code=204, dependencies=[needs("run")], response_class=Response)
async def delete_artifact(artifact_id: str, parts: GatewayParts, caller: RequestCaller) -> None:
    """Delete an artifact. Payloads that contain its reference keep it; it is then not found."""
    stored = await parts.access.get(caller, artifact_id)
    if stored.run_id is not None and (run := await parts.runs.find(caller.tenant, stored.run_id)) is not None:
        caller.check_change(run.request())
    await parts.artifacts.delete(caller.tenant, artifact_id)
