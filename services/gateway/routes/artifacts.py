"""Artifacts over HTTP: fetch, upload, list, forget.

The bytes pass through in chunks; nothing of them is kept or logged here.
"""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from contracts.artifacts import ArtifactRef
from contracts.images import INPUT_IMAGE
from services.gateway.artifacts.downloads import headers_of, is_compressed, known_as, span_of, streamed
from services.gateway.artifacts.uploads import incoming
from services.gateway.errors import BodyTooLarge, InvalidInput, NotFound
from services.gateway.routes.runs import Gateway, Here, Tenant, known_query
from services.gateway.schemas import ArtifactList
from services.shared.artifacts.errors import ArtifactTooLarge

router = APIRouter(dependencies=[Depends(known_query)], tags=["artifacts"])

Limit = Annotated[int, Query(ge=1, le=500)]
Position = Annotated[str | None, Query(pattern=r"^[0-9]{1,18}$")]
BYTES = {"description": "The bytes, with the artifact's own media type.", "content": {"*/*": {}}}
FORM = {
    "type": "object",
    "required": ["file"],
    "properties": {"file": {"type": "string", "format": "binary"}},
    "additionalProperties": False,
}


@router.head("/v1/artifacts/{artifact_id}", include_in_schema=False, response_model=None)
@router.get(
    "/v1/artifacts/{artifact_id}",
    response_model=None,
    responses={
        200: BYTES,
        206: {"description": "The range that was asked for."},
        304: {"description": "You have them."},
    },
)
async def get_artifact(artifact_id: str, request: Request, here: Here, tenant: Tenant) -> Response:
    """Fetch an artifact, or a range of it."""
    stored = await here.artifacts.head(tenant, here.checked(artifact_id))
    if stored.run_id is not None and await here.runs.is_deleted(tenant, stored.run_id):
        raise NotFound
    ref = stored.ref
    known = known_as(request.headers, ref)
    if known is not None:
        kept = {name: value for name, value in headers_of(ref).items() if not name.startswith("Content-L")}
        return Response(status_code=304, headers={**kept, "ETag": known})
    span = span_of(request.headers, ref)
    if request.method == "HEAD":
        return Response(status_code=200 if span is None else 206, headers=headers_of(ref, span))
    compressed = is_compressed(request.headers, ref, span)
    offset, length = (span.offset, span.length) if span else (0, None)
    download = await here.artifacts.get(tenant, artifact_id, offset=offset, length=length)
    return streamed(download, span, compressed=compressed)


@router.post(
    "/v1/artifacts",
    status_code=201,
    response_model=ArtifactRef,
    openapi_extra={
        "requestBody": {
            "description": "The file, under this or any other media type that its bytes agree with; or a form that holds it.",
            "required": False,  # An empty file has no body.
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
                "multipart/form-data": {"schema": FORM},
            },
        }
    },
)
async def upload_artifact(
    request: Request,
    here: Here,
    tenant: Tenant,
    session_id: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
    filename: Annotated[str | None, Query(max_length=1000)] = None,
    namespace: Annotated[str, Query(pattern=r"^[A-Za-z0-9_.-]{1,64}$")] = "upload",
    ttl_s: Annotated[int | None, Query(ge=1, le=315_360_000)] = None,
) -> Response:
    """Keep a file, as the body or as the file of a form, and return its reference."""
    if namespace == INPUT_IMAGE:
        raise InvalidInput(
            "namespace", f"{INPUT_IMAGE} is kept for images that were checked with a question; leave it out"
        )
    limit = here.settings.max_upload_bytes
    async with incoming(request, limit) as file:
        try:
            ref = await here.artifacts.put(
                tenant,
                file.chunks,
                session=session_id,
                namespace=namespace,
                filename=(filename or file.filename or "")[:1000] or None,
                mime_type=file.mime_type,
                ttl_s=ttl_s,
                limit=limit,
            )
        except ArtifactTooLarge as error:
            raise BodyTooLarge(limit) from error
    return Response(ref.model_dump_json(), 201, {"Location": f"/v1/artifacts/{ref.artifact_id}"}, "application/json")


@router.get("/v1/artifacts")
async def list_artifacts(
    here: Here,
    tenant: Tenant,
    session_id: Annotated[str, Query(min_length=1, max_length=200)],
    limit: Limit = 100,
    cursor: Position = None,
) -> ArtifactList:
    """List what a session has: uploads, and what its runs have stored; the oldest first."""
    return await _page(here, tenant, session_id, None, limit, cursor)


@router.get("/v1/runs/{run_id}/artifacts")
async def list_artifacts_of_a_run(
    run_id: str, here: Here, tenant: Tenant, limit: Limit = 100, cursor: Position = None
) -> ArtifactList:
    """List what the tools of a run have stored, and the images that it was shown; the oldest first."""
    request = (await here.find(tenant, run_id)).request()
    return await _page(here, tenant, request.session_id if request else None, run_id, limit, cursor)


async def _page(
    here: Gateway, tenant: str, session: str | None, run: str | None, limit: int, cursor: str | None
) -> ArtifactList:
    page = await here.artifacts.list(tenant, session=session, run=run, limit=limit, cursor=int(cursor or 0))
    deleted = await here.deletions.among(tenant, {each.run_id for each in page.artifacts if each.run_id})
    shown = [each for each in page.artifacts if each.run_id not in deleted]
    return ArtifactList(artifacts=shown, next_cursor=str(page.next_cursor) if page.next_cursor is not None else None)


@router.delete("/v1/artifacts/{artifact_id}", status_code=204, response_class=Response)
async def delete_artifact(artifact_id: str, here: Here, tenant: Tenant) -> None:
    """Forget an artifact. Payloads that name it keep the reference, which then leads nowhere."""
    await here.artifacts.delete(tenant, here.checked(artifact_id))
