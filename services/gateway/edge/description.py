"""What the gateway says of itself: a few words at `/`, the OpenAPI document, and that document as a page at `/docs`.

The document is FastAPI's, with the bodies that the gateway reads itself, one shape for every error, and the two
addresses of health, which `services/runtime/http_server.py` answers, also without NATS. The page is one file of HTML
without a script.
"""

import asyncio
import base64
import hashlib
import json
import re
from html import escape
from typing import Any, Literal

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, PlainTextResponse
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
_OPENAPI = "3.2.0"
"""The first version with `itemSchema`, which says what the events of a stream are."""
_UNUSED = ("HTTPValidationError", "ValidationError")
_PROBLEM = {MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/{ProblemBody.__name__}"}}}

_WELCOME = """This is a Runwire gateway. It speaks HTTP and JSON: /openapi.json and /docs. In a browser: /playground

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


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    """Return the OpenAPI document as a page."""
    state = request.app.state
    if not hasattr(state, "docs"):  # It needs no key, so it is made once.
        state.docs = await asyncio.to_thread(lambda: page(openapi(request.app)))
    return HTMLResponse(
        state.docs, headers={"Content-Security-Policy": _PAGE_POLICY, "X-Content-Type-Options": "nosniff"}
    )


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
            title=app.title,
            version=app.version,
            openapi_version=_OPENAPI,
            description=app.description,
            routes=app.routes,
            servers=app.servers,
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


_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font: 0.9em ui-monospace, monospace; overflow-wrap: anywhere; white-space: pre-wrap; }
details { border-top: 1px solid #8886; padding: 0.4rem 0; }
summary { cursor: pointer; }
td { padding: 0.1rem 1rem 0.1rem 0; vertical-align: top; }
"""
_STYLE_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_PAGE_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_DIGEST}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


def page(document: dict[str, Any]) -> str:
    """Return an OpenAPI document as HTML: the operations by tag, then the schemas."""
    tags: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tags.setdefault(operation["tags"][0], []).append(_operation_html(f"{method.upper()} {path}", operation))
    tags["schemas"] = [
        _details(f"<code>{escape(name)}</code>", f'<div id="{escape(name)}">{_schema_html(schema)}</div>')
        for name, schema in sorted(document["components"]["schemas"].items())
    ]
    title = escape(document["info"]["title"])
    sections = "".join(f"<h2>{escape(tag)}</h2>{''.join(parts)}" for tag, parts in tags.items())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f'</head><body><h1>{title}</h1><p><a href="openapi.json">openapi.json</a> · '
        f'<a href="playground">playground</a></p>'
        f"{sections}</body></html>"
    )


def _details(summary: str, body: str) -> str:
    return f"<details><summary>{summary}</summary>{body}</details>"


def _operation_html(address: str, operation: dict[str, Any]) -> str:
    rows = [(f"{each['name']} ({each['in']})", each["schema"], each) for each in operation.get("parameters", ())]
    rows += [("body", each["schema"], {}) for each in operation.get("requestBody", {}).get("content", {}).values()]
    for status, answer in operation["responses"].items():
        kinds = [(f"{status} {kind}", each) for kind, each in answer.get("content", {"": {}}).items()]
        rows += [(name, each.get("schema", each.get("itemSchema", {})), answer) for name, each in kinds]
    table = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{_type_html(schema)}</td>"
        f"<td>{_text_html(about.get('description', ''))}</td></tr>"
        for name, schema, about in rows
    )
    summary = f"<code>{escape(address)}</code> {escape(operation['summary'])}"
    return _details(summary, f"<p>{_text_html(operation.get('description', ''))}</p><table>{table}</table>")


def _schema_html(schema: dict[str, Any]) -> str:
    required = schema.get("required", ())
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code>{'' if name in required else '?'}</td><td>{_type_html(field)}</td>"
        f"<td>{_text_html(field.get('description', ''))}</td></tr>"
        for name, field in schema.get("properties", {}).items()
    )
    return f"<p>{_text_html(schema.get('description', ''))}</p><table>{rows}</table>" + (
        "" if rows else _type_html(schema)
    )


def _type_html(schema: dict[str, Any]) -> str:
    """A type in a few words, with links to the schemas that it names."""
    match schema:
        case {"$ref": str(reference)}:
            name = escape(reference.rpartition("/")[2])
            return f'<a href="#{name}">{name}</a>'
        case {"anyOf": several} | {"oneOf": several}:
            return " or ".join(map(_type_html, several))
        case {"allOf": [only]}:
            return _type_html(only)
        case {"const": value}:
            return f"<code>{escape(json.dumps(value))}</code>"
        case {"enum": values}:
            return ", ".join(f"<code>{escape(json.dumps(value))}</code>" for value in values)
        case {"properties": {"data": {"contentSchema": dict(event)}}}:
            return f"events of {_type_html(event)}"
        case {"type": "array"}:
            return f"list of {_type_html(schema.get('items', {}))}"
        case {"type": "object", "additionalProperties": dict(values)}:
            return f"object of {_type_html(values)}"
    return escape(schema.get("format") or schema.get("type") or "anything")


def _text_html(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
