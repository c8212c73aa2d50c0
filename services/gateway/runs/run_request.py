"""Turn the body of a run into the request that is stored for planners. Pure, but for the time of the request."""

import hashlib
import json
from typing import Any

from contracts.artifacts.images import ImageInput
from contracts.runs.requests import CallInput, JobRequested, LimitsInput, MemoryInput, RunInput, RunRequested
from contracts.wire import names
from contracts.wire.limits import MAX_REQUEST_BYTES
from contracts.wire.names import new_id, unix_ms
from services.gateway.auth.caller import Caller
from services.gateway.edge.routing import RequestIds
from services.gateway.errors import BodyTooLarge, InvalidInput, NotFound
from services.shared.runs.pages.registry import OF_PAGES, Pages, UnknownPlace

NO_SUCH_TOOL = "There is no such tool; GET /v1/tools lists those that there are."
_WITHOUT_NULL: dict[type[LimitsInput | MemoryInput], frozenset[str]] = {
    LimitsInput: frozenset({"max_steps", "max_parallel", "grace_s"}),
    MemoryInput: frozenset({"recent_turns", "max_tokens"}),
}
"""Fields in which null means that the caller did not set them."""


def run_request(
    caller: Caller, run_id: str, run_input: RunInput, given_ids: RequestIds, image_digests: list[dict[str, Any]]
) -> RunRequested:
    """Return the request, still without images, with what the caller's key adds.

    Raises NotAllowed, and InvalidInput for an impossible name of a tool, and for messages beside a session.
    """
    for number, name in enumerate(run_input.tools or ()):
        try:
            names.checked_tool(name)
        except names.InvalidName as error:
            raise InvalidInput(f"tools.{number}", str(error)) from error
    if run_input.messages and run_input.session_id is not None:
        raise InvalidInput.of_fields(
            [("messages", "a session has its own conversation"), ("session_id", "leave it out, or the messages")]
        )
    # Defaults are left out of the digest: a version with a new field still recognises the requests of this one.
    content = {
        **run_input.model_dump(exclude={"limits", "images", "memory"}, exclude_defaults=True),
        "limits": given_fields(run_input.limits),
    }
    if memory := given_fields(run_input.memory):
        content["memory"] = memory
    return RunRequested(
        **{**content, **caller.request_fields(run_input)},
        run_id=run_id,
        may_change=run_id if caller.is_limited else None,
        requested_at=unix_ms(),
        trace_id=given_ids.trace_id or new_id(),
        request_id=given_ids.request_id,
        body_sha256=digest_of({**content, "images": image_digests} if image_digests else content),
    )


def check_page(pages: Pages, run_input: RunInput) -> None:
    """Raise InvalidInput for a page, tab or subtab that is not registered, and for a strategy that knows no pages."""
    if run_input.page is None:
        return
    try:
        pages.parts(run_input.page)
    except UnknownPlace as error:
        raise InvalidInput(f"page.{error.field}", str(error)) from error
    if run_input.strategy not in {None, OF_PAGES}:
        raise InvalidInput("strategy", f"a request with a page has the strategy {OF_PAGES}: leave it out")


def call_request(caller: Caller, run_id: str, tool: str, given: CallInput, given_ids: RequestIds) -> RunRequested:
    """Return the request for a run that makes one call. Raises NotAllowed, and NotFound for no tool's name."""
    if not names.TOOL_NAME.pattern.fullmatch(tool):
        raise NotFound(NO_SUCH_TOOL)
    caller.check_tool(tool, "name")
    shared = given.model_dump(include={"agent", "user_id", "tool_context", "limits"}, exclude_unset=True)
    requested = run_request(caller, run_id, RunInput(query=tool, tools=[tool], **shared), given_ids, [])
    content = {**given.model_dump(exclude={"limits"}, exclude_defaults=True), "limits": given_fields(given.limits)}
    job = JobRequested(tool=tool, args=given.args)
    return requested.model_copy(
        update={"cause": "call", "job": job, "body_sha256": digest_of({"tool": tool, **content})}
    )


def encoded(request: RunRequested) -> bytes:
    """Return the request as JSON. Raises BodyTooLarge."""
    data = request.model_dump_json().encode()
    if len(data) > MAX_REQUEST_BYTES:
        raise BodyTooLarge(MAX_REQUEST_BYTES, "The request as it is stored")
    return data


def given_fields(part: LimitsInput | MemoryInput) -> dict[str, Any]:
    """Return the fields of a part of the body that the caller set."""
    given, without_null = part.model_dump(exclude_unset=True), _WITHOUT_NULL[type(part)]
    return {name: value for name, value in given.items() if value is not None or name not in without_null}


def digest_of(content: dict[str, Any]) -> str:
    """Return the SHA-256 of a body, whatever the order and spacing of its JSON."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def image_digests(images: list[ImageInput]) -> list[dict[str, Any]]:
    """Return the images as the caller gave them, with a digest in place of their bytes."""
    content = [image.model_dump(exclude={"data"}, exclude_defaults=True) for image in images]
    for given, image in zip(content, images, strict=True):
        if image.data is not None:
            given["data"] = hashlib.sha256(image.data.encode(errors="surrogatepass")).hexdigest()
    return content
