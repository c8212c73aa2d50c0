"""Turn every exception of a route into a problem. An unexpected one is a 500 without details; the server logs it."""

from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from services.gateway.errors import InvalidInput, NotFound, Problem, TryAgain
from services.messaging.errors import BusError
from services.shared.artifacts import errors

HANDLED = (Problem, RequestValidationError, HTTPException, BusError, errors.ArtifactFailed, ClientDisconnect, Exception)
METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")


def add_error_handlers(app: FastAPI) -> None:
    """Handle all exceptions of the application."""

    async def answer(request: Request, error: Exception) -> Response:
        if isinstance(error, ClientDisconnect):
            return Response(status_code=400)  # Nobody reads it.
        return _problem_of(request, error).response()

    for kind in HANDLED:
        app.add_exception_handler(kind, answer)


def _problem_of(request: Request, error: Exception) -> Problem:
    match error:
        case Problem():
            return error
        case RequestValidationError():
            return InvalidInput.of(error, 1)  # FastAPI puts the place (query, path, header) before the field's name.
        case HTTPException():
            return _of_http(request, error)
        case BusError():
            return TryAgain("The message bus does not answer.")
        case errors.ArtifactNotFound():
            return NotFound()
        case errors.ArtifactTooLarge():
            return Problem.other(413, "body_too_large", error.reason)
        case errors.ArtifactInvalid():
            return InvalidInput("", error.reason)
        case errors.StorageUnavailable():
            return TryAgain("The artifact store does not answer.")
    return Problem()


def _of_http(request: Request, error: HTTPException) -> Problem:
    """Translate an error of Starlette: an unknown address, or a method that its address does not have."""
    if error.status_code == NotFound.status:
        return NotFound()
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # The methods of all routes of the address; Starlette names those of one route only.
        routes, scopes = request.app.routes, [{**request.scope, "method": method} for method in METHODS]
        allowed = (each for each in scopes if any(route.matches(each)[0] is Match.FULL for route in routes))
        headers["Allow"] = ", ".join(each["method"] for each in allowed)
    return Problem.other(error.status_code, HTTPStatus(error.status_code).name.lower(), str(error.detail), headers)
