"""What the gateway says of itself: a few words at `/`, and the OpenAPI document.

The document is FastAPI's, with the bodies that the gateway reads itself, one shape for every error, and the two
addresses of health, which `services/runtime/http_server.py` answers, also without NATS.
"""

from typing import Any, Literal

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field, TypeAdapter
from pydantic.json_schema import models_json_schema

from contracts.runs.events import RunEvent
from contracts.sessions.records import SessionEvent
from services.gateway.edge.routing import BODY_MODELS
from services.gateway.errors import MEDIA_TYPE, ProblemBody

_EVENTS: list[tuple[str, Literal["validation"], TypeAdapter[Any]]] = [
    ("RunEvent", "validation", TypeAdapter(RunEvent)),
    ("SessionEvent", "validation", TypeAdapter(SessionEvent)),
]
_UNUSED = ("HTTPValidationError", "ValidationError")
_PROBLEM = {MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/{ProblemBody.__name__}"}}}

_WELCOME = """This is a Runwire gateway. It speaks HTTP and JSON; /openapi.json describes it. In a browser: /playground

Ask something:

  runwire run "What is 17*23?"
  curl -s <this address>/chat -H 'Content-Type: application/json' -d '{"query": "What is 17*23?"}'
"""

router = APIRouter()


@router.get("/", include_in_schema=False)
async def welcome(request: Request) -> Response:
    """Send a browser to the playground, and tell everybody else in a few words what this is."""
    if "text/html" in request.headers.get("accept", ""):
        # Relative, so that it is right behind a proxy that serves the gateway below a path.
        return Response(status_code=303, headers={"Location": "playground", "Vary": "Accept"})
    return PlainTextResponse(_WELCOME, headers={"Vary": "Accept"})


class Alive(BaseModel):
    """The answer of `/livez`."""

    status: Literal["alive"]
    service: str


class Readiness(BaseModel):
    """The answer of `/readyz`."""

    status: Literal["ready", "not ready"]
    problems: list[str] = Field(description="why the gateway is not ready, as sentences")
    warnings: list[str] = Field(description="what should be mended although it works, such as a wrong clock")


def _operation(summary: str, description: str, answers: dict[str, tuple[str, type[BaseModel]]]) -> dict[str, Any]:
    responses = {
        status: {
            "description": meaning,
            "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}},
        }
        for status, (meaning, model) in answers.items()
    }
    return {"get": {"tags": ["health"], "summary": summary, "description": description, "responses": responses}}


_HEALTH_PATHS = {
    "/livez": _operation("Livez", "Whether the process runs.", {"200": ("It runs.", Alive)}),
    "/readyz": _operation(
        "Readyz",
        "Whether requests can be answered now.",
        {"200": ("They can.", Readiness), "503": ("They cannot; `problems` says why.", Readiness)},
    ),
}
"""Descriptions of the two addresses. They need no key, so they belong to `auth.guard.OPEN_PATHS`."""


def openapi(app: FastAPI) -> dict[str, Any]:
    """Return the document, which is generated once per application."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes, servers=app.servers
        )
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        described: list[type[BaseModel]] = [*BODY_MODELS.values(), ProblemBody, Alive, Readiness]
        _, found = models_json_schema(
            [(model, "validation") for model in described], ref_template="#/components/schemas/{model}"
        )
        schemas.update(found["$defs"])
        events, parts = TypeAdapter.json_schemas(_EVENTS, ref_template="#/components/schemas/{model}")
        schemas.update({**parts["$defs"], **{name: schema for (name, _), schema in events.items()}, **schemas})
        for name in _UNUSED:
            schemas.pop(name, None)
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}, {}]
        for operations in document["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
                for parameter in operation.get("parameters", ()):
                    schema = parameter["schema"]
                    if "anyOf" in schema:  # A parameter is left out where Python has None; `null` would be a text.
                        types = [each for each in schema.pop("anyOf") if each.get("type") != "null"]
                        schema.update(types[0] if len(types) == 1 else {"anyOf": types})
                operation["responses"]["default"] = {"description": "A problem (RFC 9457).", "content": _PROBLEM}
        for path, operations in _HEALTH_PATHS.items():
            document["paths"][path] = {method: {**each, "security": []} for method, each in operations.items()}
        app.openapi_schema = document
    return app.openapi_schema
