"""What the gateway answers when something is wrong: `application/problem+json` (RFC 9457), always.

`code` is for programs and from a closed list (docs/http.md); `detail` is for people.
"""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, ClassVar

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from services.messaging.errors import BusError
from services.shared.artifacts.errors import (
    ArtifactFailed,
    ArtifactInvalid,
    ArtifactNotFound,
    ArtifactTooLarge,
    StorageUnavailable,
)

MEDIA_TYPE = "application/problem+json"
_NAME_SHOWN = 64
_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")


class StartRefused(Exception):
    """The gateway must not start with these settings: one sentence says why."""


class FieldError(BaseModel):
    """One thing that is wrong with the input."""

    field: str = Field(description="its path, as `limits.max_steps`; empty for the body as a whole")
    message: str


class ProblemBody(BaseModel):
    """Every error of the gateway, with the media type `application/problem+json`."""

    type: str = Field(description="`urn:runwire:problem:<code>`")
    title: str
    status: int
    code: str
    detail: str
    errors: list[FieldError] = Field(default_factory=list)
    run_id: str | None = Field(
        default=None, description="the run that the request started, where it was accepted all the same"
    )


class Problem(Exception):
    """The request ends with this answer."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal"
    default: ClassVar[str] = "Something went wrong here; the log of the gateway says what."

    def __init__(self, detail: str | None = None, *, headers: Mapping[str, str] | None = None, **more: Any) -> None:
        super().__init__(detail or self.default)
        self.detail = detail or self.default
        self.headers = dict(headers or {})
        self.more = more

    def response(self) -> Response:
        """The answer as bytes: the same problem always gives the same ones."""
        return _response(self.status, self.code, self.detail, self.headers, self.more)


class InvalidInput(Problem):
    """The input does not have the form that it needs; `errors` names the fields."""

    status, code, default = 422, "invalid_input", "The request does not have the expected form."

    def __init__(self, field: str, message: str) -> None:
        super().__init__(errors=[{"field": field, "message": message}])

    @classmethod
    def unknown(cls, names: Iterable[str]) -> "InvalidInput":
        """These fields are not among those that are taken."""
        problem = cls("", "")
        problem.more = {
            "errors": [{"field": _shown(name), "message": _in_words("extra_forbidden", "")} for name in names]
        }
        return problem

    @classmethod
    def of(cls, error: ValidationError | RequestValidationError, prefix_length: int = 0) -> "InvalidInput":
        """From what pydantic says, without the values themselves."""
        found = [
            {"field": ".".join(map(_shown, e["loc"][prefix_length:])), "message": _in_words(e["type"], e["msg"])}
            for e in error.errors()
        ]
        problem = cls("", "")
        problem.more = {"errors": found}
        return problem


class ImageInvalid(Problem):
    """An image is damaged, or not what it is said to be.

    `reason` is a sentence of ours, with nothing of the image in it.
    """

    status, code = 422, "image_invalid"

    def __init__(self, number: int, reason: str) -> None:
        super().__init__("An image cannot be taken.", errors=[{"field": f"images.{number}", "message": reason}])


class ImageTooLarge(ImageInvalid):
    """An image has too many bytes or pixels."""

    code = "image_too_large"


class VisionUnsupported(Problem):
    """None of the models that would answer sees images."""

    status, code = 422, "vision_unsupported"

    def __init__(self, models: list[str]) -> None:
        super().__init__(
            f"{' and '.join(models)} cannot see images. Name another `model` or `agent`, or leave the images out. If it does see them, "
            "declare it in RUNWIRE_MODEL_VISION; with `vision: lenient` the run goes on without its images."
        )


class BodyTooLarge(Problem):
    """The body, or the run's request made from it, exceeds the limit."""

    status, code = 413, "body_too_large"

    def __init__(self, limit: int, what: str = "The body") -> None:
        # The rest of the body may still be on its way, so the connection cannot be used again.
        super().__init__(f"{what} must not exceed {limit} bytes.", headers={"Connection": "close"})


class BadRequest(Problem):
    """What came cannot be read as an HTTP request."""

    status, code, default = (
        400,
        "bad_request",
        "This is no HTTP/1.1 request that can be read, or its head exceeds 64 KiB.",
    )


class RequestTooSlow(Problem):
    """The head of a request did not arrive in time."""

    status, code = 408, "request_too_slow"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"The head of the request did not arrive within {seconds:g} s.")


class BodyTooSlow(Problem):
    """The body did not arrive in time."""

    status, code = 408, "body_too_slow"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"The body did not arrive within {seconds:g} s.", headers={"Connection": "close"})


class BadCursor(Problem):
    """`Last-Event-ID` does not come from this run's stream."""

    status, code, default = 400, "bad_cursor", "Last-Event-ID is not the id of an event of this run."


class KeyMissing(Problem):
    """No API key, or one that nobody has."""

    status, code, default = 401, "unauthorized", "This needs an API key: Authorization: Bearer <key>."

    def __init__(self) -> None:
        super().__init__(headers={"WWW-Authenticate": "Bearer"})


class Forbidden(Problem):
    """A keyless gateway serves programs and pages of its own machine only."""

    status, code = 403, "forbidden"


class NotFound(Problem):
    """There is no such thing, or it is another tenant's: the answer is the same."""

    status, code, default = 404, "not_found", "There is nothing here; GET /openapi.json lists the addresses."


class IdempotencyConflict(Problem):
    """The idempotency key was used for another body."""

    status, code, default = 409, "idempotency_conflict", "This Idempotency-Key was used with another body."


class NotRunning(Problem):
    """The run has not begun, or has ended: it cannot be topped up."""

    status, code, default = 409, "not_running", "Only a run that has begun and has not ended can be topped up."


class RangeNotSatisfiable(Problem):
    """The range lies beyond the end of the artifact."""

    status, code = 416, "range_not_satisfiable"

    def __init__(self, size: int) -> None:
        super().__init__(f"The artifact has {size} bytes.", headers={"Content-Range": f"bytes */{size}"})


class TooManyRuns(Problem):
    """The tenant has as many open runs as it may have."""

    status, code = 429, "too_many_runs"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"{limit} runs are open, and no more are allowed; wait for one to end, or cancel one.",
            headers={"Retry-After": "2"},
        )


class TooManyStreams(Problem):
    """The tenant watches as many runs as it may, each counted once per connection."""

    status, code = 429, "too_many_streams"

    def __init__(self, limit: int, **more: Any) -> None:
        super().__init__(
            f"{limit} connections wait for runs, and no more are allowed; close one.",
            headers={"Retry-After": "5"},
            **more,
        )


class TryAgain(Problem):
    """NATS is unavailable, or the queue of new runs is full; nothing is lost, but nothing was accepted either."""

    status, code, default = 503, "unavailable", "The service cannot take this right now."

    def __init__(self, detail: str | None = None, *, after_s: int = 2, **more: Any) -> None:
        super().__init__(detail, headers={"Retry-After": str(after_s)}, **more)


def _in_words(kind: str, message: str) -> str:
    """What pydantic says of a value, for people who do not know that it is pydantic who speaks."""
    match kind:
        case "extra_forbidden":
            return "there is no such field"
        case "model_type" | "model_attributes_type" | "dict_type":
            return "must be a JSON object"
    return message.removeprefix("Value error, ")


def _shown(name: object) -> str:
    # What got into the place of a field's name by mistake is not sent back.
    text = str(name)
    return text if len(text) <= _NAME_SHOWN else f"<{len(text)} characters>"


def _response(status: int, code: str, detail: str, headers: Mapping[str, str], more: Mapping[str, Any]) -> Response:
    body = {
        "type": f"urn:runwire:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
    }
    return Response(orjson.dumps({**body, **more}), status, {**headers, "Cache-Control": "no-store"}, MEDIA_TYPE)


def _on_problem(_request: Request, error: Exception) -> Response:
    problem = error if isinstance(error, Problem) else Problem()
    return problem.response()


def _on_validation(_request: Request, error: Exception) -> Response:
    # FastAPI puts the place (query, path, header) before the field's name.
    return InvalidInput.of(error, 1).response() if isinstance(error, RequestValidationError) else Problem().response()


def _on_http(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        return Problem().response()
    if error.status_code == NotFound.status:
        return NotFound().response()
    code, headers = HTTPStatus(error.status_code).name.lower(), error.headers or {}
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers = {**headers, "Allow": _allowed(request)}
    return _response(error.status_code, code, str(error.detail), headers, {})


def _allowed(request: Request) -> str:
    """The methods of an address. A route for each says no more than its own."""
    routes, scope = request.app.routes, request.scope
    return ", ".join(
        name for name in _METHODS if any(route.matches({**scope, "method": name})[0] is Match.FULL for route in routes)
    )


def _on_bus(_request: Request, _error: Exception) -> Response:
    return TryAgain("The message bus does not answer.").response()


def _on_artifact(_request: Request, error: Exception) -> Response:
    match error:
        case ArtifactNotFound():
            return NotFound().response()
        case ArtifactTooLarge():
            return _response(413, "body_too_large", error.reason, {}, {})
        case ArtifactInvalid():
            return InvalidInput("", error.reason).response()
        case StorageUnavailable():
            return TryAgain("The artifact store does not answer.").response()
    return Problem().response()


def _on_disconnect(_request: Request, _error: Exception) -> Response:
    return Response(status_code=400)  # Nobody reads it.


def add_handlers(app: FastAPI) -> None:
    """Make every error of this application a problem; one that nobody foresaw is a 500 without details, and logged by the server."""
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(BusError, _on_bus)
    app.add_exception_handler(ArtifactFailed, _on_artifact)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_exception_handler(Exception, _on_problem)
